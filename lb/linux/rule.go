package linux

import (
	"net/netip"

	"weir/lb"
)

// rule is what a packet must match, and what happens to it then. ruleiptables.go renders it for
// iptables, nftrules.go for nf_tables. A value states the meaning, never the syntax of a backend.
type rule struct {
	matches []match
	action  action
}

// match is one condition of a rule.
type match interface {
	// iptables returns the options of iptables for it, nft the expressions of nf_tables.
	iptables(n ruleNames) string
	nft(n ruleNames) []expression
}

// action is the effect of a rule.
type action interface {
	// iptables returns the option -j or -g, nft the expressions of nf_tables.
	iptables(n ruleNames) string
	nft(n ruleNames) []expression
}

// when begins a rule: when(matches).then(action).
func when(matches ...match) rule { return rule{matches: matches} }

func (r rule) then(a action) rule {
	r.action = a
	return r
}

// inSet matches by members of a set. dims selects an address and port of the packet for each
// part of a member, as in ipset: "dst,dst,src".
type inSet struct {
	set  lb.Set
	dims string
	not  bool
}

// to matches packets to an address and port in a set.
func to(s lb.Set) inSet { return inSet{set: s, dims: "dst,dst"} }

type (
	// protocol is one above IP: "tcp", "icmp".
	protocol string
	// icmpType matches ICMP or ICMPv6 messages. A match of the protocol comes before it.
	icmpType uint8
	// state matches states of the packet's connection in conntrack: "RELATED,ESTABLISHED". DNAT is
	// a connection with another destination address or port than its client's.
	state string
	// isReply matches packets from the side that did not begin the connection.
	isReply struct{}
	// source matches the packet's source address.
	source netip.Prefix
	// ownSource matches packets with a source address of the box.
	ownSource struct{ not bool }
	// inputInterface matches the interface of arrival. A final "+" matches any name with the
	// prefix before it.
	inputInterface string
	// notFirst matches TCP packets that do not begin a connection.
	notFirst struct{}
	// accepting matches TCP packets that accept a connection (SYN and ACK).
	accepting struct{}
	// checksummed matches UDP packets with a checksum: with IPv4 they need none. A match of the protocol comes
	// before it. iptables has no such match.
	checksummed struct{ not bool }
)

// bits is a value of a mark under a mask.
type bits struct{ value, mask uint32 }

type (
	// mark matches the mark of the packet.
	mark struct {
		bits
		not bool
	}
	// connMark matches the mark of the connection.
	connMark bits
)

// result ends the walk of a packet through the rules.
type result string

const (
	pass   result = "RETURN" // to the chain before
	drop   result = "DROP"
	accept result = "ACCEPT"
)

type (
	// jump goes through another chain, and comes back at its end.
	jump string
	// goTo goes through another chain instead of the rest of this one.
	goTo string
	// refuse answers with an error: with a reset of TCP, or with ICMP's port unreachable.
	refuse struct{ reset bool }
	// setMark and setConnMark clear the bits of the mask, and flip those of the value.
	setMark     bits
	setConnMark bits
	// keepDestination ends nat for a connection that keeps its destination: no other program's
	// rules may change it.
	keepDestination struct{}
	// markFrom sets the mark that a set has for the packet's address and port.
	markFrom lb.Set
	// masquerade sets the source address to the one of the outgoing interface; random selects the
	// port at random.
	masquerade struct{ random bool }
	// sourceNAT sets the source address.
	sourceNAT netip.Addr
	// setSegment lowers the largest segment (MSS) in a TCP packet.
	setSegment uint16
	// destinationPort sets the destination port.
	destinationPort uint16
	// originalAddress and originalPort set the source of a reply to the address, or to the port, to which the client
	// sends. The value is the protocol, tcp or udp, which has a checksum; "" is none. iptables has no such targets.
	originalAddress struct{}
	originalPort    protocol
)
