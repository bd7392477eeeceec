package linux

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// nftConfigs have every kind of rule between them.
func nftConfigs() map[string]Config {
	all := map[string]Config{}
	for name, change := range map[string]func(*Config){
		"default": func(*Config) {},
		"inside": func(c *Config) {
			c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")}
			c.LocalInterfaces = []string{"cni0", "veth+"}
		},
		"sources": func(c *Config) {
			c.Sources, c.SloppyTCP = []netip.Addr{netip.MustParseAddr("192.0.2.250"), netip.MustParseAddr("2001:db8::250")}, true
		},
		"masquerade": func(c *Config) { c.MasqueradeAll, c.Ping, c.Mark = true, false, 1 },
	} {
		c := DefaultConfig()
		c.Backend = NFTables
		change(&c)
		all[name] = c
	}
	return all
}

// nftBox has all sets, and the rules of a configuration that are not installed.
func nftBox(t *testing.T, f lb.Family, c Config) *nftRules {
	t.Helper()
	inNamespace(t)
	tables := sharedTables(newConn(unix.NETLINK_NETFILTER, &Traffic{}))
	t.Cleanup(func() {
		tables.conn.close()
		sh(t, "nft flush ruleset")
	})
	var ops []lb.Op
	for _, s := range lb.Sets() {
		ops = append(ops, lb.Op{Verb: lb.Add, Object: lb.IPSet{Set: s, Family: f}})
	}
	must(t, firstError(newNFTSets(tables, c.Prefix, marking{c.Mark}).applySets(context.Background(), ops)))
	r := newNFTRules(f, c.Prefix, tables)
	r.configure(c, byIPVS, insidePorts{lb.MarkFrontend(f, 3): 8080})
	return r
}

func (r *nftRules) mustBe(t *testing.T, present bool) {
	t.Helper()
	same, err := r.observe(context.Background())
	if err != nil || same != present {
		t.Fatalf("the kernel has the rules: %v, %v", same, err)
	}
}

func (r *nftRules) mustInstall(t *testing.T) {
	t.Helper()
	must(t, r.install(context.Background()))
}

// The kernel reports the rules as they were written: all of every configuration, and of each
// family.
func TestNFTRulesComeBack(t *testing.T) {
	for name, c := range nftConfigs() {
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			t.Run(fmt.Sprintf("%s %s", name, f), func(t *testing.T) {
				r := nftBox(t, f, c)
				r.mustBe(t, false)
				for range 2 {
					r.mustInstall(t)
					r.mustBe(t, true)
				}
				ports, err := r.readPorts(context.Background(), tableOf(lb.VirtualServer{Frontend: lb.MarkFrontend(f, 3)}), marking{c.Mark})
				if err != nil || len(ports) != 1 || ports[lb.MarkFrontend(f, 3)] != 8080 {
					t.Errorf("ports of clients inside: %v, %v", ports, err)
				}
				if ports, err = r.readPorts(context.Background(), tableOf(), marking{c.Mark}); err != nil || len(ports) != 0 {
					t.Errorf("ports without their virtual servers: %v, %v", ports, err)
				}
			})
		}
	}
}

func tableOf(objects ...lb.Object) *lb.Table {
	out := lb.Expecting(nil)
	for _, o := range objects {
		out.Put(o)
	}
	return &out
}

// A change of any rule is seen, and repaired by the next write.
func TestNFTRulesAreRepaired(t *testing.T) {
	c := nftConfigs()["inside"]
	r := nftBox(t, lb.IPv4, c)
	sh(t, "nft 'add table ip other; add chain ip other c { type filter hook input priority 0; policy accept; }; add rule ip other c tcp dport 7 drop'")
	foreign := sh(t, "nft list table ip other")
	r.mustInstall(t)
	for _, command := range []string{
		"nft add rule ip weir KUBE-SERVICES accept",
		"nft insert rule ip weir filter-INPUT drop",
		"nft flush chain ip weir KUBE-VIP",
		"nft flush table ip weir",
		"nft 'chain ip weir filter-INPUT { policy drop; }'",
		"nft 'add table ip weir { flags dormant; }'",
		"nft add chain ip weir another",
		"nft 'add chain ip weir another { type filter hook input priority -5; }; add rule ip weir another drop'",
		"nft 'flush chain ip weir nat-PREROUTING; delete chain ip weir nat-PREROUTING; add chain ip weir nat-PREROUTING { type nat hook prerouting priority 0; }'",
		// One rule at a time becomes another: its first expression, an operator, a value.
		"nft replace rule ip weir KUBE-MARK-MASQ handle $(nft -a list chain ip weir KUBE-MARK-MASQ | awk '/mark set/ {print $NF}') meta mark set 0x1",
		"nft replace rule ip weir KUBE-POSTROUTING handle $(nft -a list chain ip weir KUBE-POSTROUTING | awk '/fully-random/ {print $NF}') masquerade",
		"nft replace rule ip weir filter-FORWARD handle $(nft -a list chain ip weir filter-FORWARD | awk '/jump/ {print $NF}') jump KUBE-FORWARD",
	} {
		sh(t, "%s", command)
		r.mustBe(t, false)
		r.mustInstall(t)
		r.mustBe(t, true)
	}
	if now := sh(t, "nft list table ip other"); now != foreign {
		t.Errorf("another program's table was\n%s\nand is\n%s", foreign, now)
	}
	for range 2 { // the second time there is none
		must(t, r.remove(context.Background()))
	}
	if tables := sh(t, "nft list tables"); tables != "table ip other\n" {
		t.Errorf("tables: %q", tables)
	}
}

// Rules without their sets are refused as a whole: no rule of the transaction stays.
func TestNFTRulesAreOneTransaction(t *testing.T) {
	r := nftBox(t, lb.IPv4, nftConfigs()["default"])
	sh(t, "nft delete set ip weir KUBE-IPVS-PORTS")
	if err := r.install(context.Background()); err == nil {
		t.Fatal("rules without one of their sets were written")
	}
	if out := sh(t, "nft list chains"); out != "table ip weir {\n}\n" {
		t.Errorf("chains: %q", out)
	}
}

// Equal lists of expressions compare as equal, and no other does.
func TestExpressionsCompare(t *testing.T) {
	t.Parallel()
	n := ruleNames{"KUBE", lb.IPv6}
	var all []rule
	for _, c := range nftConfigs() {
		for _, table := range append(staticRules(c, lb.IPv6, byIPVS, nil), onlyNFT(c, lb.IPv6, byIPVS)...) {
			for _, chain := range table.chains {
				all = append(all, chain.rules...)
			}
		}
	}
	encoded := func(r rule) []byte {
		var e encoder
		at := e.nest(0)
		for _, x := range r.nft(n) {
			x.put(&e)
		}
		e.end(at)
		return e.b[4:]
	}
	for _, a := range all {
		for _, b := range all {
			same := reflect.DeepEqual(a, b)
			if got := sameExpressions(a.nft(n), encoded(b)); got != same {
				t.Errorf("%v and %v: the same expressions: %v", a, b, got)
			}
		}
	}
}

// FuzzExpressions has a kernel report anything.
func FuzzExpressions(f *testing.F) {
	fuzzing.Wide(f)
	n := ruleNames{"KUBE", lb.IPv4}
	want := when(protocol("tcp"), state("NEW")).then(refuse{reset: true}).nft(n)
	var e encoder
	for _, x := range want {
		x.put(&e)
	}
	f.Add(e.b)
	f.Add(e.b[:len(e.b)-3])
	f.Fuzz(func(t *testing.T, have []byte) {
		if sameExpressions(want, have) && !sameExpressions(want, append([]byte(nil), have...)) {
			t.Error("one list compares in two ways")
		}
		nftRule{expressions: want}.same(have)
	})
}

// The kernel examines all sets and rules, and changes nothing.
func TestNFTablesAreTried(t *testing.T) {
	inNamespace(t)
	sh(t, "nft flush ruleset")
	c := newConntrack(&Traffic{})
	defer c.conn.close()
	before := c.generation(context.Background())
	for name, config := range nftConfigs() {
		for _, config.Mode = range []Mode{ModeIPVS, ModeNetfilter} {
			if err := TryNFTables(context.Background(), config); err != nil {
				t.Errorf("%s, mode %s: %v", name, config.Mode, err)
			}
		}
	}
	config := DefaultConfig()
	config.Prefix = strings.Repeat("LONG", 100)
	if err := TryNFTables(context.Background(), config); err == nil {
		t.Error("the kernel refuses these names")
	}
	if left, now := sh(t, "nft list ruleset"), c.generation(context.Background()); left != "" || now != before {
		t.Errorf("generation %d became %d, and the kernel has\n%s", before, now, left)
	}
}
