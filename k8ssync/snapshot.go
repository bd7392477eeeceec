package k8ssync

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The snapshot has the last objects of a cluster's API server, so that a box
// that starts while it is unreachable serves them. It has reduced objects and not
// lb.Services, so that a new configuration applies to them.
//
//	weir snapshot 1 SHA256 BYTES
//	gzip of JSON, one value a line: a snapshotHead, Services, EndpointSlices, Nodes
//
// SHA256 and BYTES are of the gzip stream. There is nothing secret in it.
const (
	snapshotMagic   = "weir snapshot"
	snapshotVersion = 1
	// Limits of the file, packed and unpacked. The objects of a cluster are shorter.
	maxPacked   = 256 << 20
	maxUnpacked = 2 << 30
	// maxHeadLine is the limit of the first line.
	maxHeadLine = 256
)

// snapshotHead is the origin of a snapshot.
type snapshotHead struct {
	Cluster string
	// Server is the API server's URL: another one is another cluster.
	Server string
	// AnnotationPrefix is that of the annotations and conditions of the Services.
	AnnotationPrefix        string
	Written                 time.Time
	Services, Slices, Nodes int
	// Holdings are the addresses that weir has assigned. Older versions skip them.
	Holdings []holding
}

// snapshot is the content of a snapshot file.
type snapshot struct {
	snapshotHead
	services []*service
	slices   []*slice
	nodes    []*node
}

// errForeign is that of a valid file of another cluster.
var errForeign = errors.New("it is of another cluster")

// snapshotOf returns the objects of o. The objects themselves are shared.
func snapshotOf(o *objects) snapshot {
	var s snapshot
	for _, v := range o.services {
		s.services = append(s.services, v)
	}
	for _, v := range o.slices {
		s.slices = append(s.slices, v)
	}
	for _, v := range o.nodes {
		s.nodes = append(s.nodes, v)
	}
	return s
}

// write returns the file's content: the same for the same objects. Objects that can't be
// encoded, such as with a time after the year 9999, are left out.
func (s snapshot) write() ([]byte, error) {
	content, err := s.encode()
	if _, invalid := errors.AsType[*json.MarshalerError](err); invalid {
		s.services, s.slices, s.nodes = encodable(s.services), encodable(s.slices), encodable(s.nodes)
		return s.encode()
	}
	return content, err
}

// encodable returns the objects that can be encoded.
func encodable[T any](list []T) []T {
	var out []T
	for _, v := range list {
		if _, err := json.Marshal(v); err == nil {
			out = append(out, v)
		}
	}
	return out
}

// encode is write with all objects.
func (s snapshot) encode() ([]byte, error) {
	slices.SortFunc(s.services, func(a, b *service) int { return a.compare(b.key) })
	slices.SortFunc(s.slices, func(a, b *slice) int { return a.compare(b.key) })
	slices.SortFunc(s.nodes, func(a, b *node) int { return strings.Compare(a.Name, b.Name) })
	s.Services, s.Slices, s.Nodes = len(s.services), len(s.slices), len(s.nodes)
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewWriter(z)
	enc := json.NewEncoder(lines)
	errs := []error{enc.Encode(s.snapshotHead)}
	for _, v := range s.services {
		errs = append(errs, enc.Encode(v))
	}
	for _, v := range s.slices {
		errs = append(errs, enc.Encode(v))
	}
	for _, v := range s.nodes {
		errs = append(errs, enc.Encode(v))
	}
	if err := errors.Join(append(errs, lines.Flush(), z.Close())...); err != nil {
		return nil, err
	}
	if packed.Len() > maxPacked {
		return nil, fmt.Errorf("the cluster is too big: %d MiB packed", packed.Len()>>20)
	}
	sum := sha256.Sum256(packed.Bytes())
	head := fmt.Sprintf("%s %d %s %d\n", snapshotMagic, snapshotVersion, hex.EncodeToString(sum[:]), packed.Len())
	return append([]byte(head), packed.Bytes()...), nil
}

// readSnapshot reads a file's content.
func readSnapshot(file []byte) (snapshot, error) {
	packed, err := unseal(file)
	if err != nil {
		return snapshot{}, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return snapshot{}, err
	}
	dec := json.NewDecoder(io.LimitReader(z, maxUnpacked))
	var s snapshot
	if err := dec.Decode(&s.snapshotHead); err != nil {
		return snapshot{}, err
	}
	if slices.ContainsFunc(s.Holdings, func(h holding) bool { return !h.valid() }) {
		return snapshot{}, errors.New("the address of a Service is invalid")
	}
	if s.services, err = decode(dec, s.Services, most.services, (*service).valid); err != nil {
		return snapshot{}, fmt.Errorf("services: %w", err)
	}
	if s.slices, err = decode(dec, s.Slices, most.slices, (*slice).valid); err != nil {
		return snapshot{}, fmt.Errorf("endpointslices: %w", err)
	}
	if s.nodes, err = decode(dec, s.Nodes, most.nodes, (*node).valid); err != nil {
		return snapshot{}, fmt.Errorf("nodes: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return snapshot{}, errors.New("it is longer than its header states")
	}
	return s, nil
}

// unseal checks the first line and returns the rest.
func unseal(file []byte) ([]byte, error) {
	line, _, ok := bytes.Cut(file[:min(len(file), maxHeadLine)], []byte("\n"))
	words, isOurs := strings.CutPrefix(string(line), snapshotMagic+" ")
	fields := strings.Fields(words)
	if !ok || !isOurs || len(fields) < 1 {
		return nil, errors.New("it is no snapshot")
	}
	if v, err := strconv.Atoi(fields[0]); err != nil || v != snapshotVersion {
		return nil, fmt.Errorf("its version is %.16q, this weir reads %d", fields[0], snapshotVersion)
	}
	packed := file[len(line)+1:]
	if len(fields) != 3 || fields[2] != strconv.Itoa(len(packed)) {
		return nil, errors.New("its length differs from its header")
	}
	if sum := sha256.Sum256(packed); fields[1] != hex.EncodeToString(sum[:]) {
		return nil, errors.New("its checksum is wrong")
	}
	return packed, nil
}

// decode reads n values.
func decode[T any](dec *json.Decoder, n, most int, valid func(*T) bool) ([]*T, error) {
	if n < 0 || n > most {
		return nil, fmt.Errorf("%d are too many", n)
	}
	var out []*T
	for range n {
		v := new(T)
		if err := dec.Decode(v); err != nil {
			return nil, err
		}
		if !valid(v) {
			return nil, fmt.Errorf("number %d is invalid", len(out)+1)
		}
		out = append(out, v)
	}
	return out, nil
}

// valid reports whether a Service is a possible result of readService.
func (s *service) valid() bool {
	return s.Name != "" && s.AffinitySeconds >= 0 && addrsValid(s.ClusterIPs, s.ExternalIPs, s.Ingress, s.Proxied) &&
		prefixesValid(s.SourceRanges) &&
		!slices.ContainsFunc(s.Ports, func(p servicePort) bool { return p.Port == 0 || !protoValid(p.Proto) })
}

// valid reports whether a slice is a possible result of readSlice.
func (s *slice) valid() bool {
	return s.Name != "" && s.Service != "" &&
		!slices.ContainsFunc(s.Endpoints, func(e endpoint) bool { return !addrValid(e.Addr) }) &&
		!slices.ContainsFunc(s.Ports, func(p slicePort) bool { return p.Port == 0 || !protoValid(p.Proto) })
}

// valid reports whether a Node is a possible result of readNode.
func (n *node) valid() bool {
	return n.Name != "" && addrsValid(n.InternalIPs, n.ExternalIPs) && prefixesValid(n.PodCIDRs)
}

func addrValid(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }

func addrsValid(lists ...[]netip.Addr) bool {
	return !slices.ContainsFunc(slices.Concat(lists...), func(a netip.Addr) bool { return !addrValid(a) })
}

func prefixesValid(list []netip.Prefix) bool {
	return !slices.ContainsFunc(list, func(p netip.Prefix) bool { return !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() })
}

func protoValid(p string) bool { return p == "TCP" || p == "UDP" || p == "SCTP" }
