package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The parts of sessions: passwords, hops, ASNs, limits, and the direction of connections.

const (
	passwordFile    = "/etc/weir/bgp.password"
	password        = "correct-horse"
	passwordMissing = "PUT-THE-PASSWORD-HERE" // what weir prints for it
)

// internals: iBGP, signed, over IPv6, only from the same link; both families all the same.
func (s *bgpSite) internals(t *testing.T) {
	figure(t, "iBGP with MD5 and TTL security over IPv6: sessions up after", s.peerWith(t, s.guarded(t), passwordMissing, password, "hold time", "hold time"))
	have(t, s.routers, hosts(vip4, vip6)...)
	s.forwarding(t)
	mustGet(t, s.client1, at(vip4, 80), 3)
	mustGet(t, s.client2, at(vip6, 80), 3)
	for _, r := range s.routers {
		for _, vip := range []string{vip4, vip6} {
			s.hearsPath(t, r, vip, "path [] pref 200 med 50 communities [64500:100] [64500:1:0]")
		}
		if n := s.neighbor(t, r.name); n.Address != r.v6 || n.Authentication == "" || n.Authentication == "none" {
			t.Errorf("weir says of %s: %+v", r.name, n)
		}
	}
	s.keepsSecret(t, password)
}

// guarded is a configuration with a password and with TTL security for all routers.
func (s *bgpSite) guarded(t testing.TB) string {
	t.Helper()
	must(t, s.box.WriteFile(within(t, 10*time.Second), passwordFile, password+"\n", 0o600))
	toml := speaker(`router_id = "10.1.0.1"`) // no IPv4 session to derive it from
	for _, r := range s.routers {
		toml += r.internal(`password_file = "bgp.password"`, "ttl_security = 1")
	}
	return toml + `
[[bgp.advertise]]
communities = ["64500:100", "64500:1:0"]
med = 50
local_pref = 200
` + service("web", "")
}

// keepsSecret searches all output of weir for a password.
func (s *bgpSite) keepsSecret(t *testing.T, secret string) {
	t.Helper()
	said := map[string]string{
		"the log":       s.daemon.Output(),
		"/metrics":      s.box.Must(t, "curl", "-sf", "http://127.0.0.1:10266/metrics"),
		"processes":     s.box.Must(t, "ps", "axww", "-o", "args"),
		"plan":          s.box.Must(t, s.weir, "plan"),
		"router-config": s.side(t, s.routers[0]),
	}
	for _, command := range [][]string{{"status"}, {"bgp", "neighbors"}, {"bgp", "routes"}} {
		var doc json.RawMessage
		s.weirJSON(t, &doc, command...)
		said["weir "+strings.Join(command, " ")] = string(doc)
	}
	areDocumented(t, said["/metrics"])
	for where, text := range said {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells the password", where)
		}
	}
}

// downTime is how long sessions that must not come up are given for it: weir and the routers
// try again meanwhile.
const downTime = 2 * connectRetry

// staysDown requires that sessions do not come up; at its end weir must report for each which one it is, and why:
// one of these words.
func (s *bgpSite) staysDown(t *testing.T, names []string, words ...string) {
	t.Helper()
	for _, name := range names { // weir reads the end of the earlier session a moment after the router has stopped
		lab.Must(t, traffic.Every(t.Context(), sessionBeat, 2*time.Second, func(context.Context) error {
			if n := s.neighbor(t, name); n.State == "Established" {
				return fmt.Errorf("weir says of %s: %+v", name, n)
			}
			return nil
		}))
	}
	for end := time.Now().Add(downTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for _, name := range names {
			// A router may take a session for one that weir has not accepted yet, but has no route by it.
			if n, err := s.router(name).boxSession(t.Context()); err != nil || n.Accepted > 0 {
				t.Fatalf("%s says of the box: %+v, %v", name, n, err)
			}
			if n := s.neighbor(t, name); n.State == "Established" {
				t.Fatalf("weir says of %s: %+v", name, n)
			}
		}
	}
	for _, name := range names {
		becomes(t, func() error {
			n := s.neighbor(t, name)
			if n.State == "Established" || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(n.Down, w) }) {
				return fmt.Errorf("weir says of %s: %+v; want it to be down, with one of the words %q", name, n, words)
			}
			t.Logf("weir says of %s: %s", name, n.Down)
			return nil
		})
		if log := s.daemon.Output(); !strings.Contains(log, "peer="+name) {
			t.Errorf("the log does not speak of %s:\n%s", name, log)
		}
	}
}

// sameRouterID: an internal router with the router ID of the box is refused, and weir does not try
// without end. The others and their clients notice nothing.
func (s *bgpSite) sameRouterID(t *testing.T) {
	bird := s.router("bird")
	s.peerWith(t, s.guarded(t), passwordMissing, password)
	unharmed := s.throughOne(t, s.router("frr"), s.client2)
	flaps := s.neighbor(t, "gobgp").Flaps
	s.begin(t, bird, "router id 10.1.0.1;\n"+s.side(t, bird, passwordMissing, password))
	attempts := s.attemptsTo(t, bird)
	s.staysDown(t, []string{"bird"}, "the same router ID")
	attempts(t, "the same router ID")
	if n := s.neighbor(t, "gobgp"); n.State != "Established" || n.Flaps != flaps {
		t.Errorf("weir says of gobgp: %+v", n)
	}
	begin := time.Now()
	s.begin(t, bird, s.side(t, bird, passwordMissing, password))
	s.established(t, bird)
	figure(t, "  and with another one: session up after", time.Since(begin))
	have(t, s.routers, hosts(vip4, vip6)...)
	unharmed(t)
}

// attemptsTo counts the connections that weir opens to an internal router from now on. The function that it
// returns requires at most one for each connectRetry, and few lines in the log.
func (s *bgpSite) attemptsTo(t *testing.T, r *router) func(t *testing.T, why string) {
	t.Helper()
	syns, err := r.Machine().Start("tcpdump", "-lnni", "front", "ip6[6] == 6 and ip6[53] & 18 == 2 and src host fd01::1 and dst port 179")
	must(t, err)
	must(t, syns.Expect(within(t, 20*time.Second), "listening on"))
	begin, lines := time.Now(), strings.Count(s.daemon.Output(), "\n")
	return func(t *testing.T, why string) {
		t.Helper()
		took, ports := time.Since(begin), map[string]bool{} // of each attempt another port; a SYN that is sent again has the same
		for line := range strings.Lines(syns.Output()) {
			if _, from, ok := strings.Cut(line, "IP6 "); ok {
				ports[strings.Fields(from)[0]] = true
			}
		}
		syns.Kill()
		if most := int(took/connectRetry) + 2; len(ports) > most {
			t.Errorf("weir tried to connect to %s %d times in %s, want at most %d:\n%s", r.name, len(ports), took, most, syns.Output())
		}
		said := strings.Count(s.daemon.Output(), "\n") - lines
		figure(t, fmt.Sprintf("%s: attempts to connect in %s, lines in the log", why, took.Round(time.Second)), fmt.Sprintf("%d, %d", len(ports), said))
		if said > 40 {
			t.Errorf("weir wrote %d lines into the log:\n%s", said, s.daemon.Output())
		}
	}
}

// otherPassword: routers with another password than weir's, or with none, never get a session, and weir does not try
// without end. BIRD has the right one, and its clients notice nothing.
func (s *bgpSite) otherPassword(t *testing.T) {
	bird, others := s.router("bird"), []*router{s.router("frr"), s.router("gobgp")}
	s.serve(t, s.guarded(t))
	s.beginWith(t, func(r *router) string { return s.side(t, r, passwordMissing, password) })
	s.established(t, bird)
	unharmed := s.throughOne(t, bird, s.client1)
	for which, wrong := range map[string]map[string]string{
		"another password": {"frr": "password battery-staple", "gobgp": `auth-password = "battery-staple"`},
		"no password":      {"frr": "description weir", "gobgp": ""},
	} {
		configs := map[*router]string{}
		for _, r := range others {
			right := map[string]string{"frr": "password " + passwordMissing, "gobgp": fmt.Sprintf("auth-password = %q", passwordMissing)}
			configs[r] = s.side(t, r, right[r.name], wrong[r.name])
		}
		s.beginAll(t, configs)
		attempts := s.attemptsTo(t, s.router("frr"))
		s.staysDown(t, []string{"frr", "gobgp"}, "password")
		attempts(t, which)
		for name, up := range map[string]float64{"bird": 1, "frr": 0, "gobgp": 0} {
			if got := s.metric(t, fmt.Sprintf("weir_bgp_session_up{address=%q,peer=%q}", s.router(name).v6, name)); got != up {
				t.Errorf("weir_bgp_session_up of %s is %v, want %v", name, got, up)
			}
		}
		s.keepsSecret(t, password)
	}
	for _, r := range others {
		must(t, r.Reconfigure(within(t, time.Minute), s.repaired(t, r)))
	}
	begin := time.Now()
	s.established(t, s.routers...)
	figure(t, "  and with the right one: sessions up after", time.Since(begin))
	have(t, s.routers, hosts(vip4, vip6)...)
	unharmed(t)
}

// throughOne has a client send requests through a router from now on, and returns a function that
// requires that the router kept its routes and that no request failed.
func (s *bgpSite) throughOne(t testing.TB, r *router, client *lab.Machine) (unharmed func(testing.TB)) {
	t.Helper()
	for _, vip := range []string{vip4, vip6} {
		s.reaches(t, client, vip)
	}
	stay, stream := routesStay(t, []*router{r}, hosts(vip4, vip6)...), slowStream(t, client)
	return func(t testing.TB) {
		t.Helper()
		stay(t)
		mustHaveLostNothing(t, stream)
	}
}

// repaired is what gives a router that has a wrong password the right one.
func (s *bgpSite) repaired(t testing.TB, r *router) string {
	if r.name == "frr" {
		return fmt.Sprintf("router bgp %d\n neighbor fd01::1 password %s\n", weirASN, password)
	}
	return s.side(t, r, passwordMissing, password)
}

// tooFar: packets without the TTL of the same link, as those of an attacker far away, come to nothing.
func (s *bgpSite) tooFar(t *testing.T) {
	toml := service("web", "")
	s.serve(t, speaker()+s.externals()+toml)
	s.beginWith(t, func(r *router) string { return s.side(t, r) }) // without TTL security
	s.established(t, s.routers...)
	s.reload(t, speaker()+s.externals("ttl_security = 1")+toml)
	for _, r := range s.routers { // all that came by the sessions before is gone
		must(t, r.Restart(within(t, time.Minute)))
	}
	s.staysDown(t, []string{"bird", "frr", "gobgp"}, "")
	have(t, s.routers)
}

// otherASN: a router that is not who it should be, and one that takes the box for another; the third
// and its clients notice nothing.
func (s *bgpSite) otherASN(t *testing.T) {
	bird, frr, gobgp := s.router("bird"), s.router("frr"), s.router("gobgp")
	s.peerWith(t, speaker()+s.externals()+service("web", ""))
	unharmed := s.throughOne(t, frr, s.client2)
	s.beginAll(t, map[*router]string{
		bird: s.side(t, bird, "as 64511;", "as 64999;"), gobgp: s.side(t, gobgp, "peer-as = 64500", "peer-as = 64998"),
	})
	s.staysDown(t, []string{"bird", "gobgp"}, "ASN")
	becomes(t, func() error { // an attempt that BIRD refused may be the reason for a moment
		if n := s.neighbor(t, "bird"); !strings.Contains(n.Down, "ASN is not 64511") {
			return fmt.Errorf("weir says of bird: %+v", n)
		}
		return nil
	})
	unharmed(t)
}

// otherFamily: routers with only one family receive no routes of the other one, and weir names it. One without any
// family of weir's is refused. The third and its clients notice nothing.
func (s *bgpSite) otherFamily(t *testing.T) {
	bird, frr, gobgp := s.router("bird"), s.router("frr"), s.router("gobgp")
	web, v4, v6 := service("web", ""), `families = ["ipv4"]`, `families = ["ipv6"]`
	s.serve(t, speaker()+s.externals()+web)
	s.configure(t, speaker()+bird.external(v6)+frr.external()+gobgp.external(v4)+web) // only for the sides of the routers
	s.beginWith(t, func(r *router) string { return s.side(t, r) })
	s.established(t, frr)
	unharmed := s.throughOne(t, frr, s.client2)
	s.established(t, bird, gobgp)
	have(t, []*router{bird}, hosts(vip6)...)
	have(t, []*router{gobgp}, hosts(vip4)...)
	s.carries(t, "bird", "IPv6", "no IPv4 unicast")
	s.carries(t, "gobgp", "IPv4", "no IPv6 unicast")

	s.reload(t, speaker()+bird.external(v4)+frr.external()+gobgp.external()+web)
	s.staysDown(t, []string{"bird"}, "families")
	have(t, []*router{bird})
	begin := time.Now()
	s.reload(t, speaker()+bird.external(v6)+frr.external()+gobgp.external()+web)
	s.established(t, bird)
	figure(t, "no family in common, and one again: session up after", time.Since(begin))
	have(t, []*router{bird}, hosts(vip6)...)
	s.carries(t, "bird", "IPv6", "")
	unharmed(t)
}

// carries requires that a session has only one family, and that weir names this problem, in its status, too.
func (s *bgpSite) carries(t *testing.T, name, family, problem string) {
	t.Helper()
	n := s.neighbor(t, name)
	if !slices.Equal(n.Families, []string{family}) || n.Advertised != 1 || !strings.Contains(n.Problem, problem) || problem == "" && n.Problem != "" {
		t.Errorf("weir says of %s: %+v; want only %s, and the problem %q", name, n, family, problem)
	}
	becomes(t, func() error { // it is up to a second old
		var d statusDoc
		s.weirJSON(t, &d, "status")
		if strings.Contains(fmt.Sprint(d.Problems), "BGP peer "+name+": ") != (problem != "") {
			return fmt.Errorf("the problems of weir status are %q; want of %s: %q", d.Problems, name, problem)
		}
		return nil
	})
}

// tooMany: a router that sends more than the limit loses its session; one that sends fewer keeps it, and
// its routes are not used.
func (s *bgpSite) tooMany(t *testing.T) {
	bird, frr, gobgp := s.router("bird"), s.router("frr"), s.router("gobgp")
	s.serve(t, speaker()+s.externals("max_prefixes = 10")+service("web", ""))
	var routes, networks strings.Builder
	for i := range 20 {
		fmt.Fprintf(&routes, "route 203.0.113.%d/32 blackhole;\n", i)
		if i < 5 {
			fmt.Fprintf(&networks, "  network 203.0.113.%d/32\n", i)
		}
	}
	s.beginAll(t, map[*router]string{
		frr: s.side(t, frr, "route-map WEIR-OUT deny 10", "route-map WEIR-OUT permit 10") +
			fmt.Sprintf("\nrouter bgp %d\n no bgp network import-check\n address-family ipv4 unicast\n%s exit-address-family\nexit\n", frr.asn, networks.String()),
		bird:  s.side(t, bird, "export none;", "export where source = RTS_STATIC;") + "\nprotocol static {\nipv4;\n" + routes.String() + "}\n",
		gobgp: s.side(t, gobgp),
	})
	s.established(t, frr)
	becomes(t, func() error {
		if n := s.neighbor(t, "bird"); n.State == "Established" || !strings.Contains(n.Down, "more than 10 prefixes") {
			return fmt.Errorf("weir says of BIRD, which sends 20 prefixes: %+v", n)
		}
		return nil
	})
	s.staysDown(t, []string{"bird"}, "more than 10 prefixes")
	s.established(t, frr, gobgp)
	becomes(t, func() error { // weir asks GoBGP once a second
		if n := s.neighbor(t, "frr"); n.Received != 7 {
			return fmt.Errorf("weir says of FRR, which sends 5 prefixes, and the 2 that it has from weir: %+v", n)
		}
		return nil
	})
	if out := s.box.Must(t, "ip", "route"); strings.Contains(out, "203.0.113.") {
		t.Errorf("routes of routers are in the box's kernel:\n%s", out)
	}
	have(t, []*router{frr, gobgp}, hosts(vip4, vip6)...)
	// An operator who means it raises the limit, and need not wait for an hour.
	s.reload(t, speaker()+s.externals("max_prefixes = 100")+service("web", ""))
	s.established(t, bird)
	becomes(t, func() error {
		if n := s.neighbor(t, "bird"); n.Received < 20 {
			return fmt.Errorf("weir says of BIRD, which sends 20 prefixes: %+v", n)
		}
		return nil
	})
}

// waysToConnect: the box waits for routers on another port and knows only the range of two, or it listens nowhere.
func (s *bgpSite) waysToConnect(t *testing.T) {
	bird, gobgp := s.router("bird"), s.router("gobgp")
	toml := service("web", "")
	s.peerWith(t, speaker("listen_port = 1179")+s.externals()+toml)
	rack := "[[bgp.peer]]\nname = \"rack\"\nrange = \"10.1.0.12/31\"\nasn = 0\nmax_prefixes = 10\n"
	s.reload(t, speaker("listen_port = 1179")+bird.external("passive = true")+rack+toml)
	s.begin(t, bird, s.side(t, bird)) // it connects now
	begin := time.Now()
	becomes(t, func() error {
		up := 0
		for _, n := range slices.Concat(s.neighbors(t, "bird"), s.neighbors(t, "rack")) {
			if n.State == "Established" {
				up++
			}
		}
		if up != 3 {
			return fmt.Errorf("%d of 3 routers connected:\n%s", up, s.box.Must(t, "sh", "-c", s.weir+" bgp neighbors || true"))
		}
		return nil
	})
	have(t, s.routers, hosts(vip4, vip6)...)
	figure(t, "routers connect to port 1179 of the box, two of them from a range, after", time.Since(begin))
	if out := s.box.Must(t, "ss", "-Htn", "state", "established", "sport = :1179"); strings.Count(out, "\n") != 3 {
		t.Errorf("connections to port 1179, want three:\n%s", out)
	}
	t.Log(s.box.Must(t, s.weir, "bgp", "neighbors"))

	// Nothing listens: weir connects to all of them, two on a port of their own.
	toml0 := speaker("listen_port = 0") + bird.external("port = 1790") + s.router("frr").external() + gobgp.external("port = 1790") + toml
	figure(t, "the box listens nowhere: sessions up after", s.peerWith(t, toml0))
	have(t, s.routers, hosts(vip4, vip6)...)
	if out := s.box.Must(t, "ss", "-Hltn", "sport = :179"); out != "" {
		t.Errorf("something listens on port 179:\n%s", out)
	}
}
