package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"weir/cmd/weirlab/fuzzing"
)

// A file that reads like a rule: a packet is only dropped by a rule with that target.
func FuzzPass(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(weirRules)
	f.Add("*filter\n:INPUT DROP [0:0]\n:A - [0:0]\n-A INPUT ! -s 10.0.0.0/8 -g A\n-A A -j A\n-A A -p tcp -m multiport --dports 1:2,179 -j REJECT\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := packet{hook: "INPUT", src: netip.MustParseAddr("10.0.0.1"), proto: "tcp", port: 179, state: "NEW"}
		x := pass(tables("legacy", text), "KUBE", p)
		if x.dropped && !strings.Contains(text, "DROP") && !strings.Contains(text, "REJECT") {
			t.Errorf("%s", x)
		}
	})
}

// ufw is what ufw's rules are like, with its users' in chain user.
const ufw = `:before - [0:0]
:not-local - [0:0]
:log - [0:0]
:user - [0:0]
-A INPUT -j before
-A before -i lo -j ACCEPT
-A before -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A before -m conntrack --ctstate INVALID -j log
-A before -m conntrack --ctstate INVALID -j DROP
-A before -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A before -p udp -m udp --sport 67 --dport 68 -j ACCEPT
-A before -j not-local
-A before -d 224.0.0.251/32 -p udp -m udp --dport 5353 -j ACCEPT
-A before -j user
-A not-local -m addrtype --dst-type LOCAL -j RETURN
-A not-local -m addrtype --dst-type MULTICAST -j RETURN
-A not-local -m limit --limit 3/min --limit-burst 10 -j log
-A not-local -j DROP
-A log -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix "[UFW BLOCK] "
`

func TestPassReadsRules(t *testing.T) {
	peer := packet{hook: "INPUT", src: netip.MustParseAddr("10.0.0.1"), proto: "tcp", port: 179, state: "NEW"}
	for _, tt := range []struct {
		name, rules    string
		dropped, maybe bool
	}{
		{"a policy", ":INPUT DROP [0:0]\n", true, false},
		{"accepted before a policy", ":INPUT DROP [0:0]\n-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 179 -j ACCEPT\n", false, false},
		{"another port", ":INPUT DROP [0:0]\n-A INPUT -p tcp -m multiport --dports 22,80:90 -j ACCEPT\n", true, false},
		{"from outside", ":INPUT ACCEPT [0:0]\n-A INPUT ! -i lo -j DROP\n", true, false},
		{"an interface that is not known", ":INPUT DROP [0:0]\n-A INPUT -i eth+ -j ACCEPT\n", true, true},
		{"a state", ":INPUT ACCEPT [0:0]\n-A INPUT -m conntrack --ctstate INVALID,NEW -j DROP\n", true, false},
		{"negated", ":INPUT ACCEPT [0:0]\n-A INPUT ! -s 10.0.0.1/32 -j DROP\n", false, false},
		{"a chain that returns", ":INPUT DROP [0:0]\n:A - [0:0]\n-A INPUT -j A\n-A INPUT -j ACCEPT\n-A A -p tcp -j RETURN\n-A A -j DROP\n", false, false},
		{"chains in a circle", ":INPUT ACCEPT [0:0]\n:A - [0:0]\n-A INPUT -j A\n-A A -j A\n", false, false},
		{"a match that is not known drops nobody for sure", ":INPUT ACCEPT [0:0]\n-A INPUT -m set --match-set bad src -j DROP\n", false, false},
		{"a match that is not known may accept", ":INPUT DROP [0:0]\n-A INPUT -m set --match-set good src -j ACCEPT\n", true, true},
		{"a match that is not known may return", ":INPUT ACCEPT [0:0]\n:A - [0:0]\n-A INPUT -j A\n-A A -m recent --rcheck -j RETURN\n-A A -j DROP\n", true, true},
		{"ufw's chains, with a port that is open", ":INPUT DROP [0:0]\n" + ufw + "-A user -p tcp -m tcp --dport 179 -j ACCEPT\n", false, false},
		{"ufw's chains, with another", ":INPUT DROP [0:0]\n" + ufw + "-A user -p tcp -m tcp --dport 22 -j ACCEPT\n", true, false},
		{"ufw's chains, that refuse it", ":INPUT DROP [0:0]\n" + ufw + "-A user -s 10.0.0.1/32 -p tcp -j REJECT --reject-with tcp-reset\n", true, false},
		{"a return to a policy", ":INPUT DROP [0:0]\n-A INPUT -p tcp -j RETURN\n-A INPUT -j ACCEPT\n", true, false},
		{"a chain that does not return", ":INPUT DROP [0:0]\n:A - [0:0]\n:B - [0:0]\n-A INPUT -j A\n-A A -g B\n-A A -j ACCEPT\n-A B -p udp -j ACCEPT\n", true, false},
		{"of nf_tables, lists", ":INPUT DROP [0:0]\n-A INPUT --nfproto ipv4 -s 10.9.0.0/16,10.0.0.1 -p udp,tcp -i front,back -j ACCEPT\n", true, true},
		{"of nf_tables, another family", ":INPUT DROP [0:0]\n-A INPUT --nfproto ipv6 -j ACCEPT\n", true, false},
		{"of nf_tables, a match without words", ":INPUT DROP [0:0]\n-A INPUT --unknown -j ACCEPT\n", true, true},
		{"nothing", "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := pass(tables("legacy", "*filter\n"+tt.rules+"COMMIT\n"), "KUBE", peer)
			if x.dropped != tt.dropped || x.maybe != tt.maybe {
				t.Errorf("%+v", x)
			}
		})
	}
}
