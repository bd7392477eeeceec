package walk

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
	"weir/lb/linux"
)

func tables(text string) linux.Tables {
	return linux.Tables{Backend: linux.Legacy, Family: lb.IPv4, Chains: linux.ParseTables(text)}
}

// A file that reads like a rule: a packet is only dropped by a rule with that target.
func FuzzPass(f *testing.F) {
	fuzzing.Wide(f)
	f.Add("*filter\n:FORWARD DROP [0:0]\n:KUBE-FORWARD - [0:0]\n-A FORWARD -m comment --comment \"weir: replies of backends\" -j KUBE-FORWARD\nCOMMIT\n")
	f.Add("*filter\n:INPUT DROP [0:0]\n:A - [0:0]\n-A INPUT ! -s 10.0.0.0/8 -g A\n-A A -j A\n-A A -p tcp -m multiport --dports 1:2,179 -j REJECT\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := Packet{Hook: "INPUT", Src: netip.MustParseAddr("10.0.0.1"), Proto: "tcp", Port: 179, State: "NEW"}
		x := Pass(tables(text), "filter", p.Hook, "KUBE", p)
		if x.Dropped && !strings.Contains(text, "DROP") && !strings.Contains(text, "REJECT") {
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

// Packets meet the rules of real firewalls, which lb/linux has from iptables-save.
func TestPassReadsRealFirewalls(t *testing.T) {
	client := Packet{Hook: "INPUT", Src: netip.MustParseAddr("10.0.0.1"), Proto: "tcp", Port: 80, State: "NEW"}
	ssh, client6, reply, out := client, client, client, client
	ssh.Port, reply.Hook, reply.In, reply.Out, reply.State = 22, "FORWARD", "eth1", "eth0", "ESTABLISHED"
	client6.Src = netip.MustParseAddr("fd00::1")
	out.Hook, out.Out = "OUTPUT", "eth0"
	for _, tt := range []struct {
		file string
		Packet
		dropped bool
		where   string
	}{
		{"ufw4", client, true, "the policy of chain INPUT is DROP"},
		{"ufw4", ssh, false, ""},
		{"ufw4", reply, false, ""},
		{"ufw4", out, false, ""},
		{"ufw6", client6, true, "the policy of chain INPUT is DROP"},
		{"docker4", client, false, ""},
		{"docker4", reply, true, "the policy of chain FORWARD is DROP"},
		{"docker4", out, false, ""},
		{"firewalld4", client, true, "rule 9 of chain IN_public drops it"},
		{"firewalld4", ssh, false, ""},
		{"firewalld4", reply, false, ""},
		{"firewalld4", out, false, ""},
		{"firewalld6", client6, true, "rule 9 of chain IN_public drops it"},
	} {
		text, err := os.ReadFile("../../../../../lb/linux/testdata/firewalls/" + tt.file + ".rules")
		if err != nil {
			t.Fatal(err)
		}
		x := Pass(tables(string(text)), "filter", tt.Hook, "KUBE", tt.Packet)
		if x.Dropped != tt.dropped || x.Maybe || tt.dropped && x.String() != tt.where {
			t.Errorf("%s: %+v: %+v, want %v %s", tt.file, tt.Packet, x, tt.dropped, tt.where)
		}
	}
}

// weir's own rules at PREROUTING drop some packets by sets, which are not known. They do not hide a drop behind them.
func TestPassReadsWeirsRules(t *testing.T) {
	client := Packet{Hook: "PREROUTING", Dst: netip.MustParseAddr("192.0.2.10"), Proto: "tcp", Port: 80, State: "NEW"}
	reply := Packet{Hook: "PREROUTING", In: "eth0", Src: netip.MustParseAddr("10.2.0.11"), Proto: "tcp", Port: 40000, State: "ESTABLISHED"}
	for _, file := range []string{"default4", "checkvips4", "tunnels4"} {
		text, err := os.ReadFile("../../../../../lb/linux/testdata/" + file + ".rules")
		if err != nil {
			t.Fatal(err)
		}
		weirs := strings.NewReplacer("*mangle\n", "*mangle\n:PREROUTING ACCEPT [0:0]\n", "-I PREROUTING 1", "-A PREROUTING").Replace(string(text))
		behind := strings.Replace(weirs, "COMMIT", "-A PREROUTING -j DROP\nCOMMIT", 1)
		for _, p := range []Packet{client, reply} {
			if x := Pass(tables(weirs), "mangle", p.Hook, "KUBE", p); x.Dropped {
				t.Errorf("%s: %+v: %+v", file, p, x)
			}
			if x := Pass(tables(behind), "mangle", p.Hook, "KUBE", p); !x.Dropped || x.Maybe || x.Chain != p.Hook {
				t.Errorf("%s: a drop behind: %+v: %+v", file, p, x)
			}
		}
	}
}

func TestPassReadsRules(t *testing.T) {
	peer := Packet{Hook: "INPUT", Src: netip.MustParseAddr("10.0.0.1"), Proto: "tcp", Port: 179, State: "NEW"}
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
		{"a match that is not known may return before a jump", ":INPUT ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n-A INPUT -j A\n-A A -m recent --rcheck -j RETURN\n-A A -j B\n-A B -j DROP\n", true, true},
		{"a match that is not known returns from a chain that ends", ":INPUT ACCEPT [0:0]\n:A - [0:0]\n-A INPUT -j A\n-A INPUT -j DROP\n-A A -m recent --rcheck -j RETURN\n", true, false},
		{"a match that is not known returns to a policy", ":INPUT DROP [0:0]\n-A INPUT -m recent --rcheck -j RETURN\n", true, false},
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
			x := Pass(tables("*filter\n"+tt.rules+"COMMIT\n"), "filter", peer.Hook, "KUBE", peer)
			if x.Dropped != tt.dropped || x.Maybe != tt.maybe {
				t.Errorf("%+v", x)
			}
		})
	}
}
