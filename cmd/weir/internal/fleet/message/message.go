// Package message is the format of the messages between members of the fleet: the part of
// a member in each VIP, and digests of its sources. It never decides anything.
package message

import (
	"iter"
	"net/netip"

	"weir/cluster"
)

// Flags are the part of a member in a VIP.
type Flags uint8

// The flags.
const (
	// Serves: it has a usable backend there, and its kernel has all of it.
	Serves Flags = 1 << iota
	// Owns: it owns the VIP.
	Owns
	// Drains: an operator drains this VIP there.
	Drains
	// Mute: it serves the VIP and does not answer ARP and NDP for it, owner or not.
	Mute
	// Contested: it owns the VIP, and a foreign host answers for it there.
	Contested
)

// Message is the long message of a member. The zero Message is that of a member that has
// sent none.
type Message struct {
	// VIPs are all that Services of the member claim, with or without a flag; Parse
	// leaves those without out.
	VIPs map[netip.Addr]Flags
	// Sources are digests of each source, by name.
	Sources map[string]cluster.Digest
	// Orders are digests of the backends of each frontend with scheduler mh, in the order
	// of the kernel.
	Orders map[string]string
	// MACs are those of the interfaces on which it answers ARP and NDP.
	MACs []string
	// Answers is set if it answers ARP and NDP at all.
	Answers bool
}

// texts returns all texts of a Message: users and programs see them as they are.
func (m Message) texts() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, digest := range m.Sources {
			if !yield(name) || !yield(string(digest)) {
				return
			}
		}
		for frontend, digest := range m.Orders {
			if !yield(frontend) || !yield(digest) {
				return
			}
		}
		for _, mac := range m.MACs {
			if !yield(mac) {
				return
			}
		}
	}
}

// Changed returns the VIPs in which two Messages differ.
func (m Message) Changed(other Message) []netip.Addr {
	var out []netip.Addr
	for a, p := range m.VIPs {
		if other.VIPs[a] != p {
			out = append(out, a)
		}
	}
	for a := range other.VIPs {
		if _, both := m.VIPs[a]; !both {
			out = append(out, a)
		}
	}
	return out
}

// Has returns a function that reports whether a VIP has a flag.
func (m Message) Has(f Flags) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return m.VIPs[a]&f != 0 }
}

// Count returns how many VIPs have a flag.
func (m Message) Count(f Flags) int {
	n := 0
	for _, x := range m.VIPs {
		if x&f != 0 {
			n++
		}
	}
	return n
}
