package message

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"weir/cluster"
)

// A Message on the wire is a head and parts. The parts are the VIPs and the orders, cut by
// a hash: a change of one VIP changes one part. Members that agree have equal parts, and
// send digests. The head has one set of VIPs for each flag, by their places in the list of
// all VIPs of the parts. So the head is exact without regard to the VIPs of its reader.

// head is the head of a Message. Unknown fields are ignored: later versions may have more.
type head struct {
	Serves  subset                    `json:"serves,omitzero"`
	Owns    subset                    `json:"owns,omitzero"`
	Drains  subset                    `json:"drains,omitzero"`
	Mute    subset                    `json:"mute,omitzero"`
	Contest subset                    `json:"contested,omitzero"`
	Answers bool                      `json:"answers,omitempty"`
	Sources map[string]cluster.Digest `json:"sources,omitempty"`
	MACs    []string                  `json:"macs,omitempty"`
}

type flagged struct {
	set  *subset
	flag Flags
}

func (h *head) flags() []flagged {
	return []flagged{{&h.Serves, Serves}, {&h.Owns, Owns}, {&h.Drains, Drains}, {&h.Mute, Mute}, {&h.Contest, Contested}}
}

// subset is a set of places in a list: all of the list or nothing, except some; or one bit
// for each place. The zero subset is empty.
type subset struct {
	All    bool   `json:"all,omitempty"`
	Except []int  `json:"except,omitempty"`
	Bits   []byte `json:"bits,omitempty"`
}

// exceptionBytes is about the length of an exception, in bytes.
const exceptionBytes = 6

// subsetOf returns a set of n places in its shortest form.
func subsetOf(n int, has func(int) bool) subset {
	field, count := make([]byte, (n+7)/8), 0
	for i := range n {
		if has(i) {
			field[i/8] |= 1 << (i % 8)
			count++
		}
	}
	s := subset{All: count > n/2}
	if exceptions := min(count, n-count); exceptions*exceptionBytes > len(field)*4/3 {
		return subset{Bits: field}
	}
	for i := range n {
		if has(i) != s.All {
			s.Except = append(s.Except, i)
		}
	}
	return s
}

var errSubset = errors.New("a set of VIPs that does not fit their number")

// places returns the places of a set in a list of n.
func (s subset) places(n int) ([]int, error) {
	if len(s.Bits) > 0 {
		if len(s.Bits) != (n+7)/8 || s.All || len(s.Except) > 0 {
			return nil, errSubset
		}
		var out []int
		for i, b := range s.Bits {
			for ; b != 0; b &= b - 1 {
				out = append(out, i*8+bits.TrailingZeros8(b))
			}
		}
		if len(out) > 0 && out[len(out)-1] >= n {
			return nil, errSubset
		}
		return out, nil
	}
	for i, x := range s.Except {
		if x < 0 || x >= n || i > 0 && x <= s.Except[i-1] {
			return nil, errSubset
		}
	}
	if !s.All {
		return s.Except, nil
	}
	out, except := make([]int, 0, n), s.Except
	for i := range n {
		if len(except) > 0 && except[0] == i {
			except = except[1:]
			continue
		}
		out = append(out, i)
	}
	return out, nil
}

// The kinds of parts, in their first bytes. Others are ignored.
const (
	partVIPs   byte = 'v' // a number of IPv4 addresses, those, and IPv6 addresses
	partOrders byte = 'o' // JSON: a digest for each frontend
)

// cuts is the number of parts of one kind.
const cuts = 32

// cut returns the part that something belongs to. Members with other cuts understand each
// other, but send each other everything.
func cut(key []byte) int {
	h := fnv.New32a()
	_, _ = h.Write(key)
	return int(h.Sum32() % cuts)
}

// Encode returns a Message as it is sent; equal ones give equal bytes. VIPs without a flag
// are sent, too: other members may serve them.
func (m Message) Encode() (cluster.Message, error) {
	h := head{Sources: m.Sources, MACs: m.MACs, Answers: m.Answers}
	var vips [cuts][]netip.Addr
	for _, a := range slices.SortedFunc(maps.Keys(m.VIPs), netip.Addr.Compare) {
		key := a.As16()
		i := cut(key[:])
		vips[i] = append(vips[i], a)
	}
	list := slices.Concat(vips[:]...)
	for _, x := range h.flags() {
		*x.set = subsetOf(len(list), func(i int) bool { return m.VIPs[list[i]]&x.flag != 0 })
	}
	var out cluster.Message
	for _, part := range vips {
		if len(part) > 0 {
			out.Parts = append(out.Parts, encodeVIPs(part))
		}
	}
	var orders [cuts]map[string]string
	for frontend, digest := range m.Orders {
		i := cut([]byte(frontend))
		if orders[i] == nil {
			orders[i] = map[string]string{}
		}
		orders[i][frontend] = digest
	}
	for _, part := range orders {
		if part == nil {
			continue
		}
		text, err := json.Marshal(part)
		if err != nil {
			return cluster.Message{}, err
		}
		out.Parts = append(out.Parts, append([]byte{partOrders}, text...))
	}
	text, err := json.Marshal(h)
	out.Head = text
	return out, err
}

// encodeVIPs returns the part of some VIPs in the order of netip.Addr.Compare.
func encodeVIPs(vips []netip.Addr) []byte {
	four := 0
	for four < len(vips) && vips[four].Is4() {
		four++
	}
	out := binary.AppendUvarint([]byte{partVIPs}, uint64(four))
	for _, a := range vips {
		out = append(out, a.AsSlice()...)
	}
	return out
}

// parseVIPs parses the part of some VIPs, without its kind.
func parseVIPs(b []byte) ([]netip.Addr, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)-n)/4 || (len(b)-n-int(count)*4)%16 != 0 {
		return nil, fmt.Errorf("a list of VIPs of %d bytes is cut off", len(b))
	}
	four, six := b[n:n+int(count)*4], b[n+int(count)*4:]
	var out []netip.Addr
	for x := range slices.Chunk(four, 4) {
		out = append(out, netip.AddrFrom4([4]byte(x)))
	}
	for x := range slices.Chunk(six, 16) {
		a := netip.AddrFrom16([16]byte(x))
		if a.Is4In6() {
			return nil, fmt.Errorf("invalid VIP %q", a)
		}
		out = append(out, a)
	}
	return out, nil
}

const (
	// The limits of a message of another member.
	maxMessageVIPs    = 400_000
	maxMessageSources = 1000
	maxMessageMACs    = 1000
	maxMessageText    = 512
)

// Parse reads the message of another member. VIPs without a flag are left out.
func Parse(in cluster.Message) (Message, error) {
	var h head
	if err := json.Unmarshal(in.Head, &h); err != nil {
		return Message{}, err
	}
	m := Message{VIPs: map[netip.Addr]Flags{}, Sources: h.Sources, MACs: h.MACs, Answers: h.Answers}
	list, err := m.parseParts(in.Parts)
	if err != nil {
		return Message{}, err
	}
	if len(m.Sources) > maxMessageSources || len(m.MACs) > maxMessageMACs {
		return Message{}, fmt.Errorf("%d sources, %d MACs: too many", len(m.Sources), len(m.MACs))
	}
	for _, x := range h.flags() {
		places, err := x.set.places(len(list))
		if err != nil {
			return Message{}, err
		}
		for _, i := range places {
			m.VIPs[list[i]] |= x.flag
		}
	}
	for text := range m.texts() {
		if len(text) > maxMessageText || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return Message{}, fmt.Errorf("a text of %d bytes, longer than %d or with control characters: %.32q", len(text), maxMessageText, text)
		}
	}
	return m, nil
}

// parseParts reads the orders, and returns the VIPs in the order of the parts.
func (m *Message) parseParts(parts [][]byte) (list []netip.Addr, err error) {
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		switch part[0] {
		case partVIPs:
			vips, err := parseVIPs(part[1:])
			if err != nil {
				return nil, err
			}
			list = append(list, vips...)
		case partOrders:
			if err := json.Unmarshal(part[1:], &m.Orders); err != nil { // adds to the map
				return nil, err
			}
		}
		if len(list) > maxMessageVIPs || len(m.Orders) > maxMessageVIPs {
			return nil, fmt.Errorf("more than %d VIPs or orders", maxMessageVIPs)
		}
	}
	return list, nil
}
