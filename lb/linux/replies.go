package linux

import "weir/lb"

// onlyNFT returns the rules of a family that iptables can't state.
func onlyNFT(c Config, f lb.Family, s stage) []ruleTable {
	if s == byDNAT {
		return nil
	}
	return []ruleTable{replies(c, f)}
}

// replies returns the rules for packets of backends behind ip_vs. A client can use one port for two
// connections to different frontends, and ip_vs can send both to one backend. It finds the connection of a reply only
// by the client and the backend (ip_vs_conn_out_get), and takes one of the two, mostly the newest one, also after its
// end. The source becomes the frontend of that one, so the other connection is dead (kubernetes/kubernetes#107249).
// conntrack knows the connection: the kernel gives each one a source port of its own towards the backend, by
// masquerading, or because two entries of the table can't have one tuple (get_unique_tuple in nf_nat_core.c).
//
// The rules repair the packet. ip_vs itself still counts it for the other connection: kernel.md has the limits.
//
// Packets for programs of the box pass INPUT. Errors of ICMP keep their source, and SCTP its port: old kernels can't
// correct its checksum.
func replies(c Config, f lb.Family) ruleTable {
	errors := protocol("icmp")
	if f == lb.IPv6 {
		errors = "ipv6-icmp"
	}
	return ruleTable{
		name:  "replies",
		jumps: []ruleJump{{"POSTROUTING", "frontends of replies", "REPLIES"}, {"INPUT", "frontends of replies", "REPLIES"}},
		chains: []ruleChain{
			{"REPLIES", []rule{when(isReply{}, connMark{c.Mark, c.Mark}).then(goTo("REPLY-SOURCE"))}},
			{"REPLY-SOURCE", []rule{
				when(errors).then(pass),
				when(protocol("tcp")).then(originalPort("tcp")),
				when(protocol("udp"), checksummed{}).then(originalPort("udp")),
				when(protocol("udp"), checksummed{not: true}).then(originalPort("")),
				when().then(originalAddress{}),
			}},
		},
	}
}
