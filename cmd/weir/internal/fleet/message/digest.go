package message

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"weir/cluster"
	"weir/lb"
)

// Sums are digests of the Services of each source, by which members notice that they
// have received different ones. The cost of an update depends on its size.
type Sums map[string]*sum

// sum is the exclusive or of the hashes of all Services of a source, in any order.
type sum struct {
	total uint64
	of    map[lb.ServiceID]uint64
}

// Update applies an Update of a source, guarded or not: members that receive the same
// should agree.
func (s Sums) Update(u lb.Update) {
	t := s[u.Source]
	if t == nil {
		t = &sum{of: map[lb.ServiceID]uint64{}}
		s[u.Source] = t
	}
	if u.Synced {
		*t = sum{of: make(map[lb.ServiceID]uint64, len(u.Put))}
	}
	for _, id := range u.Delete {
		t.total ^= t.of[id]
		delete(t.of, id)
	}
	for _, svc := range u.Put {
		h := hashService(svc)
		t.total ^= t.of[svc.ID] ^ h
		t.of[svc.ID] = h
	}
}

// Keep forgets all sources but some.
func (s Sums) Keep(sources []string) {
	maps.DeleteFunc(s, func(name string, _ *sum) bool { return !slices.Contains(sources, name) })
}

// Digests returns the digest of each source.
func (s Sums) Digests() map[string]cluster.Digest {
	out := make(map[string]cluster.Digest, len(s))
	for name, t := range s {
		out[name] = DigestOf(t.total)
	}
	return out
}

// DigestOf returns a number as a digest.
func DigestOf(n uint64) cluster.Digest {
	return cluster.Digest(hex.EncodeToString(binary.BigEndian.AppendUint64(nil, n)))
}

// DigestOfAll returns one digest of several sources.
func DigestOfAll(sources map[string]cluster.Digest) cluster.Digest {
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		all = fmt.Appendf(all, "%q %s\n", name, sources[name])
	}
	return cluster.DigestOf(all)
}

// hashService hashes the parts of a Service that all members should have alike. Parts
// that depend on the box are left out: the backends of its own node, and the complaints
// of its source. The order of a list does not count.
func hashService(s lb.Service) uint64 {
	b := fmt.Appendf(make([]byte, 0, 1024), "%q %q %q %d %s %d %v %v %v %v %v %s %d %d %s %v %v %d", s.ID.Source, s.ID.Namespace, s.ID.Name, s.Created.UnixNano(),
		s.Scheduler, s.Affinity, s.Keep, s.Restricted, s.Ranges, s.HealthCheck.Port, s.Apart, s.WhenDown, s.Drain, s.Forward, s.Encap, s.OnePacket, s.Group, s.FWMark)
	b = list(b, "vips", s.VIPs, func(b []byte, v lb.VIP) []byte {
		return append(v.Addr.AppendTo(b), byte(v.Kind), bit(v.Local), bit(v.Foreign))
	})
	b = list(b, "ranges", s.SourceRanges, func(b []byte, p netip.Prefix) []byte { return p.AppendTo(b) })
	b = list(b, "fallback", s.Fallback, func(b []byte, a netip.AddrPort) []byte { return a.AppendTo(b) })
	b = list(b, "labels", slices.Collect(maps.Keys(s.Labels)), func(b []byte, k string) []byte { return fmt.Appendf(b, "%q=%q", k, s.Labels[k]) })
	b = list(b, "ports", s.Ports, func(b []byte, p lb.Port) []byte {
		wide := slices.DeleteFunc(slices.Clone(p.Backends), func(x lb.Backend) bool { return x.Scope == lb.Near })
		b = append(binary.BigEndian.AppendUint16(b, p.Port), byte(p.Proto))
		return list(binary.BigEndian.AppendUint16(b, p.NodePort), "backends", wide, func(b []byte, x lb.Backend) []byte {
			b = fmt.Appendf(append(x.Addr.AppendTo(b), byte(x.Forward)), "%s ", x.Encap)
			for _, n := range []uint32{x.Weight, x.Upper, x.Lower} {
				b = binary.BigEndian.AppendUint32(b, n)
			}
			return b
		})
	})
	h := sha256.Sum256(b)
	return binary.BigEndian.Uint64(h[:])
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// list appends the elements of a list, sorted, each after its length.
func list[E any](b []byte, name string, elements []E, add func([]byte, E) []byte) []byte {
	texts, scratch := make([]string, len(elements)), make([]byte, 0, 128)
	for i, e := range elements {
		scratch = add(scratch[:0], e)
		texts[i] = string(scratch)
	}
	slices.Sort(texts)
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(texts)))
	for _, t := range texts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(t))), t...)
	}
	return b
}
