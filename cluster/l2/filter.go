package l2

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// span is a range of 32-bit words.
type span struct{ low, high uint32 }

// maxSpans bounds a filter: each costs two or three instructions, twice.
const maxSpans = 16

// filterWord returns the part of an address that a filter compares: all of an IPv4
// address, the last four bytes of an IPv6 one.
func filterWord(a netip.Addr) uint32 {
	b := a.As16()
	return binary.BigEndian.Uint32(b[12:])
}

// cover returns at most maxSpans spans that contain all of the words and as little else as
// possible: the widest gaps stay outside.
func cover(words []uint32) []span {
	slices.Sort(words)
	words = slices.Compact(words)
	var spans []span
	for _, w := range words {
		if n := len(spans); n > 0 && w == spans[n-1].high+1 {
			spans[n-1].high = w
			continue
		}
		spans = append(spans, span{w, w})
	}
	if len(spans) <= maxSpans {
		return spans
	}
	gaps := make([]uint32, 0, len(spans)-1)
	for i, s := range spans[1:] {
		gaps = append(gaps, s.low-spans[i].high)
	}
	slices.Sort(gaps)
	wide := gaps[len(gaps)-(maxSpans-1)]
	merged := spans[:1]
	for _, s := range spans[1:] {
		last := &merged[len(merged)-1]
		if s.low-last.high < wide || len(merged) == maxSpans {
			last.high = s.high
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

const (
	acceptAll = 1 << 16 // the whole frame

	offsetType      = 12
	offsetSenderIP  = headerEthernet + 14
	offsetTargetIP  = headerEthernet + 24
	offsetNext      = headerEthernet + 6
	offsetSource    = headerEthernet + 8 + 12 // the last word
	offsetND        = headerEthernet + lengthIPv6
	offsetTargetEnd = offsetND + 8 + 12 // the last word
)

// program returns the instructions of a filter.
type program func([]span) []bpf.Instruction

// Filters run in the kernel for each frame of their protocol, before it is copied: the
// process sees only frames about addresses that may be claimed.

// filterARP passes ARP with a sender or target within the spans.
func filterARP(spans []span) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeARP, SkipTrue: 1},
		bpf.RetConstant{},
	}
	p = append(p, receivedOnly()...)
	p = append(p, within(offsetTargetIP, spans)...)
	p = append(p, within(offsetSenderIP, spans)...)
	return append(p, bpf.RetConstant{})
}

// filterND passes neighbour solicitations and advertisements if the last four bytes of the
// target, or of the source, are within the spans.
func filterND(spans []span) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetNext, Size: 1}, // most frames end here
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: protocolICMPv6, SkipTrue: 1},
		bpf.RetConstant{},
		bpf.LoadAbsolute{Off: offsetND, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeSolicitation, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeAdvertisement, SkipTrue: 1},
		bpf.RetConstant{},
	}
	p = append(p, receivedOnly()...)
	p = append(p, within(offsetTargetEnd, spans)...)
	p = append(p, within(offsetSource, spans)...)
	return append(p, bpf.RetConstant{})
}

// receivedOnly drops frames for another host or VLAN, which the kernel marks, and those
// that the box itself sent.
func receivedOnly() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipFalse: 1},
		bpf.RetConstant{},
	}
}

// arrivedOn drops frames for a VLAN or a macvlan on top of an interface: the kernel passes
// them to the sockets of that interface, too.
func arrivedOn(index int) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(index), SkipTrue: 1},
		bpf.RetConstant{},
	}
}

// within passes the frame if the word at an offset is within one of the spans.
func within(offset uint32, spans []span) []bpf.Instruction {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: offset, Size: 4}}
	for _, s := range spans {
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: s.low, SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: s.high, SkipTrue: 1},
			bpf.RetConstant{Val: acceptAll})
	}
	return p
}
