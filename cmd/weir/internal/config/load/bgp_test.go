package load

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/bgp/advertise"
)

const (
	onePool    = "[[pool]]\nname = \"public\"\naddresses = [\"192.0.2.0/24\"]\n"
	oneCluster = "[[kubernetes]]\nname = \"prod\"\n"
	onePeer    = "[bgp]\nasn = 64500\n[[bgp.peer]]\nname = \"tor1\"\naddress = \"10.0.0.1\"\nasn = 64501\n"
)

// TestBGPDefaults repeats the defaults, so that a change of one
// is always intended.
func TestBGPDefaults(t *testing.T) {
	got := parse(t, serviceText("web", "192.0.2.10")+onePeer).BGP
	peers := []bgp.Peer{{
		Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), ASN: 64501, Port: bgp.DefaultPort,
		Hold: bgp.DefaultHold, Keepalive: bgp.DefaultKeepalive, ConnectRetry: bgp.DefaultConnectRetry,
		Families: advertise.Families{IPv4: true, IPv6: true}, MaxPrefixes: bgp.DefaultMaxPrefixes,
	}}
	told := []advertise.Peer{{Name: "tor1", Families: peers[0].Families, Standby: advertise.Handicap{MED: 100}}}
	want := &config.BGP{
		Speaker:    bgp.Config{ASN: 64500, ListenPort: bgp.DefaultPort, GracefulRestart: bgp.DefaultGracefulRestart, Peers: peers},
		Policy:     advertise.Policy{Rules: []advertise.Rule{advertise.DefaultRule()}, Peers: told, ReannounceDelay: 5 * time.Second, MinAnnounced: 0.5},
		DrainDelay: 10 * time.Second,
		Announced:  prefixesOf("192.0.2.10/32"),
	}
	if diff := compare(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c := parse(t, ""); c.BGP != nil {
		t.Errorf("without [bgp]: %+v", c.BGP)
	}
}

// TestPeers shows what one of the peers makes of single keys.
func TestPeers(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       func(*bgp.Peer)
	}{
		{"a short hold time", `hold_time = "4s"`, func(p *bgp.Peer) { p.Hold, p.Keepalive = 4*time.Second, time.Second }},
		{"a long hold time", `hold_time = "90s"`, func(p *bgp.Peer) { p.Hold, p.Keepalive = 90*time.Second, 30*time.Second }},
		{"BFD", `bfd = true`, func(p *bgp.Peer) {
			p.BFD = bgp.BFD{Enabled: true, Interval: bgp.DefaultBFDInterval, Multiplier: bgp.DefaultBFDMultiplier}
		}},
		{"IPv6 alone", `families = ["ipv6"]`, func(p *bgp.Peer) { p.Families = advertise.Families{IPv6: true} }},
		{"two hops", `multihop = 2`, func(p *bgp.Peer) { p.Multihop = 2 }},
		{"TTL security", `ttl_security = 1`, func(p *bgp.Peer) { p.TTLSecurity = 1 }},
		{"a range", "range = \"10.3.0.0/24\"\naddress = \"\"", func(p *bgp.Peer) {
			p.Address, p.Range, p.Port = netip.Addr{}, netip.MustParsePrefix("10.3.0.0/24"), 0
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := onePeer
			if strings.Contains(tt.text, "address = ") {
				text = strings.ReplaceAll(text, "address = \"10.0.0.1\"\n", "")
			}
			want := parse(t, onePeer).BGP.Speaker.Peers
			tt.want(&want[0])
			if diff := compare(want, parse(t, text+tt.text).BGP.Speaker.Peers); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestFamiliesOfAPeerAreServed shows that no peer is offered a family which the
// box does not serve.
func TestFamiliesOfAPeerAreServed(t *testing.T) {
	got := parse(t, "[kernel]\nfamilies = [\"ipv4\"]\n"+onePeer).BGP.Speaker.Peers[0].Families
	if want := (advertise.Families{IPv4: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestPasswordsAreNeverPrinted shows that no message, however wrong the file is, and
// no printing of a configuration has anything of a password.
func TestPasswordsAreNeverPrinted(t *testing.T) {
	const secret = "tr0ub4dor"
	for _, tt := range []struct{ name, file, want string }{
		{"good", secret + "\n", ""},
		{"of Windows", secret + "\r\n", ""},
		{"without an end", secret, ""},
		{"with spaces", " " + secret + " ", ""},
		{"empty", "\n", "password is empty"},
		{"two lines", secret + "\nmore\n", "has more than one line"},
		{"with a zero", secret + "\x00", "has more than one line"},
		{"too long", secret + strings.Repeat("x", 80), "the password in password has 89 bytes, and the kernel accepts at most"},
		{"unreadable", "unreadable", "permission denied"},
		{"of everybody", "public" + secret, "password is readable by all users (-rw-r--r--); chmod 600 password"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("weir.toml", []byte(onePeer+"password_file = \"password\"\n"), memory{"password": tt.file})
			said := fmt.Sprint(err)
			if err == nil {
				said = fmt.Sprintf("%v %+v %#v %s", c.Warnings, *c.BGP, *c.BGP, c.BGP.Speaker.Peers[0].Password)
				if got, want := string(c.BGP.Speaker.Peers[0].Password), strings.TrimRight(tt.file, "\r\n"); got != want {
					t.Errorf("password %q, want %q", got, want)
				}
			}
			if strings.Contains(said, secret) {
				t.Errorf("the password is said: %s", said)
			}
			if !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}

// TestPasswordIsReadAgain shows that a reload makes a new peer of one with a changed
// password file.
func TestPasswordIsReadAgain(t *testing.T) {
	read := func(password string) bgp.Peer {
		t.Helper()
		c, err := Parse("weir.toml", []byte(onePeer+"password_file = \"password\"\n"), memory{"password": password})
		must(t, err)
		return c.BGP.Speaker.Peers[0]
	}
	if read("a\n") != read("a") {
		t.Error("a line's end makes another password")
	}
	if read("a") == read("b") {
		t.Error("another password makes no other peer")
	}
}

func TestCommunities(t *testing.T) {
	const names = "[bgp.communities]\nsmall = \"64500:100\"\nlarge = \"4200000000:1:2\"\nshut = \"graceful-shutdown\"\n"
	for _, tt := range []struct {
		text  string
		small []advertise.Community
		large []advertise.LargeCommunity
	}{
		{`[]`, nil, nil},
		{`["small", "65535:0", "no-export"]`, []advertise.Community{64500<<16 | 100, advertise.GracefulShutdown, advertise.NoExport}, nil},
		{`["large", "1:2:3", "shut"]`, []advertise.Community{advertise.GracefulShutdown}, []advertise.LargeCommunity{{ASN: 4200000000, Data1: 1, Data2: 2}, {ASN: 1, Data1: 2, Data2: 3}}},
	} {
		r := parse(t, serviceText("a", "192.0.2.1")+onePeer+names+"[[bgp.advertise]]\ncommunities = "+tt.text).BGP.Policy.Rules[0]
		if !slices.Equal(r.Communities, tt.small) || !slices.Equal(r.LargeCommunities, tt.large) {
			t.Errorf("%s: %v and %v", tt.text, r.Communities, r.LargeCommunities)
		}
	}
}

// TestPoolRules shows the attributes of a pool for its own addresses: rules of its own,
// after all others.
func TestPoolRules(t *testing.T) {
	pool := func(peers ...string) advertise.Rule {
		return advertise.Rule{Name: "pool public", Match: advertise.Match{Pools: []string{"public"}}, Peers: peers}
	}
	refused := pool()
	refused.Refuse = true
	first := advertise.Rule{Name: "advertise 1", Match: advertise.Match{Kinds: []advertise.Kind{advertise.ClusterIP}}, Prepend: 1}
	for _, tt := range []struct {
		name, text, rules string
		want              []advertise.Rule
	}{
		{"nothing", "", "", []advertise.Rule{pool(), advertise.DefaultRule()}},
		{"to nobody", "announce = false\n", "", []advertise.Rule{refused, advertise.DefaultRule()}},
		{"to one peer, and so to no other", "peers = [\"tor1\"]\n", "", []advertise.Rule{pool("tor1"), refused, advertise.DefaultRule()}},
		{"beside a rule", "", "[[bgp.advertise]]\nvips = [\"ClusterIP\"]\nprepend = 1\n", []advertise.Rule{first, pool()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, oneCluster+onePool+tt.text+onePeer+tt.rules).BGP.Policy.Rules
			if diff := compare(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestHome(t *testing.T) {
	two := oneCluster + "[[kubernetes]]\nname = \"test\"\n"
	for _, tt := range []struct{ name, text, want, problem string }{
		{"the only cluster", oneCluster + onePool, "prod", ""},
		{"one of two", two + onePool + "[addresses]\nlease_cluster = \"test\"\n", "test", ""},
		{"neither of two", two + onePool, "", "weir.toml:1: addresses.lease_cluster: is missing: there are several clusters"},
		{"another one", two + onePool + "[addresses]\nlease_cluster = \"tets\"\n", "", `addresses.lease_cluster: there is no cluster "tets"; did you mean "test"?`},
		{"two without pools", two, "", ""},
		{"no cluster", onePool, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("weir.toml", []byte(tt.text), noFiles{})
			switch {
			case tt.problem != "":
				if !onlyError(err, tt.problem) {
					t.Errorf("error %v, want %q", err, tt.problem)
				}
			case err != nil:
				t.Error(err)
			case c.Addresses.LeaseCluster != tt.want:
				t.Errorf("lease cluster %q, want %q", c.Addresses.LeaseCluster, tt.want)
			}
		})
	}
}

func TestReservations(t *testing.T) {
	text := oneCluster + onePool + "[[reservation]]\nnamespace = \"shop\"\nservice = \"web\"\naddresses = [\"192.0.2.80\"]\n"
	if got := parse(t, text).Addresses.IPAM.Reservations[0].Service.String(); got != "prod/shop/web" {
		t.Errorf("reserved for %s, want the only cluster's", got)
	}
}

// TestAggregates shows that a route may be as wide as what is the operator's, even
// if that is written in parts.
func TestAggregates(t *testing.T) {
	for _, tt := range []struct{ name, text, problem string }{
		{"a pool", oneCluster + onePool + "aggregation_length = 24\n" + onePeer, ""},
		{"wider", oneCluster + onePool + "aggregation_length = 23\n" + onePeer, `pool.public.aggregation_length: 23 makes "192.0.2.0/23" of "192.0.2.0/24" of pool "public"`},
		{"two halves", oneCluster + strings.Replace(onePool, "192.0.2.0/24", "192.0.2.0/25\", \"192.0.2.128-192.0.2.255", 1) + "aggregation_length = 24\n" + onePeer, ""},
		{"with the next pool", oneCluster + onePool + "aggregation_length = 23\n[[pool]]\nname = \"next\"\naddresses = [\"192.0.3.0/24\"]\n" + onePeer, ""},
		{"a static VIP", serviceText("a", "192.0.2.1") + onePeer + "[[bgp.advertise]]\naggregation_length = 24\n",
			`bgp.advertise[1].aggregation_length: 24 makes "192.0.2.0/24" of "192.0.2.1" of service "a"`},
		{"a static VIP of route_pools", "[kernel]\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/24\"]\n" +
			serviceText("a", "192.0.2.1") + onePeer + "[[bgp.advertise]]\naggregation_length = 24\n", ""},
		{"what is not announced", serviceText("a", "192.0.2.1") + onePeer + "[[bgp.advertise]]\nvips = [\"ClusterIP\"]\naggregation_length = 24\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("weir.toml", []byte(tt.text), noFiles{})
			switch {
			case tt.problem == "" && err != nil:
				t.Error(err)
			case tt.problem == "" && !c.BGP.Aggregates:
				t.Error("no aggregates")
			case tt.problem != "" && !onlyError(err, tt.problem):
				t.Errorf("error %v, want %q", err, tt.problem)
			}
		})
	}
}

const doubtfulRoutes = `
[bgp]
asn = 64500

[[bgp.peer]]
name = "tor1"
address = "10.0.0.1"
asn = 64500
bfd = true
bfd_interval = "1s"
bfd_multiplier = 20

[[bgp.advertise]]
vips = ["LoadBalancer"]
prepend = 2

[[bgp.advertise]]
pools = ["public"]
med = 1

[[bgp.advertise]]
vips = ["ClusterIP"]

[[bgp.advertise]]
vips = ["static"]
namespaces = ["shop"]

[[service]]
name = "web"
vips = ["198.51.100.1"]
ports = [80]
backends = ["10.9.0.1"]

[[kubernetes]]
name = "prod"
namespaces = ["shop"]

[[pool]]
name = "public"
addresses = ["192.0.2.0/24"]
namespaces = ["mail"]
med = 7

[addresses]
retention = "0s"
`

const routeDoubts = `
weir.toml:9: note: bgp.peer.tor1.bfd: a restart of weir ends the BFD session, and a peer may then drop routes that graceful_restart would keep; check that the peer distinguishes the two (RFC 5882, 4.3), or use only one of them
weir.toml:9: note: bgp.peer.tor1.bfd: works only on the same link, and an internal peer may be further away; make sure that it is on the link
weir.toml:10: warning: bgp.peer.tor1.bfd_interval: BFD detects a failure after 20s, later than hold_time (9s); shorten it, or remove bfd
weir.toml:17: warning: bgp.advertise[2].vips: the rule never applies: that of weir.toml:13 comes first and matches all of its VIPs; put the narrower one first, or remove one
weir.toml:22: warning: bgp.advertise[3].vips: the rule can't match any VIP; remove it, or widen it
weir.toml:25: warning: bgp.advertise[4].vips: the rule can't match any VIP; remove it, or widen it
weir.toml:30: warning: service.web.vips: they are not announced: no [[bgp.advertise]] matches them; add one with vips = ["static"], or one with announce = false if this is intended
weir.toml:41: warning: pool.public.namespaces: no cluster of the pool serves "mail"; add it to namespaces of the [[kubernetes]], or remove it
weir.toml:42: warning: pool.public.med: never applies: the [[bgp.advertise]] of weir.toml:13 comes first and matches all of pool "public"; narrow that one, or remove this
weir.toml:45: warning: addresses.retention: a Service that is deleted and created again may lose its address; the default is "10m"
`

func TestWarningsOfRoutes(t *testing.T) {
	got := (&source.Errors{Problems: parse(t, doubtfulRoutes).Warnings}).Error()
	if diff := cmp.Diff(strings.TrimSpace(routeDoubts), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for text, want := range map[string]string{
		serviceText("a", "192.0.2.1") + "[bgp]\nasn = 1\n":                                                                          "weir.toml:6: warning: bgp.peer: there is no peer, so no router receives the routes; add a [[bgp.peer]]",
		oneCluster + "serve = [\"ExternalIP\"]\nexternal_ip_ranges = [\"203.0.113.0/24\"]\n[addresses]\nlease_cluster = \"prod\"\n": "weir.toml:5: warning: addresses: has no effect without a [[pool]]; add one, or remove this",
		serviceText("a", "192.0.2.1") + "[[pool]]\nname = \"x\"\naddresses = [\"198.51.100.0/24\"]\n":                               "weir.toml:8: warning: pool.x.addresses: no Service can use the pool: there is no [[kubernetes]]; add one",
	} {
		if got := (&source.Errors{Problems: parse(t, text).Warnings}).Error(); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// TestRulesThatNeverCount shows that a rule is reported to be without effect only if
// all that it fits is decided before.
func TestRulesThatNeverCount(t *testing.T) {
	for _, tt := range []struct {
		first, second string
		never         bool
	}{
		{``, ``, true},
		{``, `pools = ["public"]`, true},
		{``, `vips = ["ExternalIP"]`, false},
		{`vips = ["LoadBalancer", "ExternalIP"]`, `vips = ["ExternalIP"]`, true},
		{`vips = ["LoadBalancer"]`, `vips = ["LoadBalancer", "ExternalIP"]`, false},
		{`peers = ["tor1"]`, ``, false},
		{`peers = ["tor1"]`, `peers = ["tor1"]`, true},
		{`namespaces = ["shop"]`, `namespaces = ["shop"]` + "\nservices = [\"web\"]", true},
		{`services = ["web"]`, `namespaces = ["shop"]`, false},
		{`labels = { a = "1" }`, `labels = { a = "1", b = "2" }`, true},
		{`labels = { a = "1", b = "2" }`, `labels = { a = "1" }`, false},
		{`labels = { a = "1" }`, `labels = { a = "2" }`, false},
	} {
		text := oneCluster + "external_ip_ranges = [\"198.51.100.0/24\"]\n" + onePool + onePeer +
			"[[bgp.advertise]]\n" + tt.first + "\n[[bgp.advertise]]\n" + tt.second + "\n"
		said := (&source.Errors{Problems: parse(t, text).Warnings}).Error()
		if never := strings.Contains(said, "the rule never applies"); never != tt.never {
			t.Errorf("%q after %q: %s", tt.second, tt.first, said)
		}
	}
}

// TestOnlyWhetherThereIsBGPNeedsARestart shows that what is in [bgp], and all of
// the pools, a reload brings into effect.
func TestOnlyWhetherThereIsBGPNeedsARestart(t *testing.T) {
	none, some := parse(t, ""), parse(t, onePeer)
	other := parse(t, oneCluster+onePool+strings.ReplaceAll(onePeer, "6450", "6451")+"[bgp.communities]\na = \"1:1\"\n")
	for _, tt := range []struct {
		a, b *config.Config
		want []string
	}{{none, some, []string{"bgp"}}, {some, none, []string{"bgp"}}, {some, other, nil}, {none, none, nil}} {
		if got := config.RestartNeeded(tt.a, tt.b); !slices.Equal(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
