package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

var (
	webs4 = []string{"10.2.0.11", "10.2.0.12", "10.2.0.13"}
	webs6 = []string{"fd02::11", "fd02::12", "fd02::13"}
)

// declared is the text of a Service; more are lines that it has besides.
func declared(name string, vips, ports, backends []string, more ...string) string {
	list := func(values []string) string {
		text, _ := json.Marshal(values)
		return string(text)
	}
	lines := []string{
		"", "[[service]]", fmt.Sprintf("name = %q", name), "vips = " + list(vips), "ports = " + list(ports),
	}
	if len(backends) > 0 {
		lines = append(lines, "backends = "+list(backends))
	}
	return strings.Join(append(lines, more...), "\n") + "\n"
}

// weighted are the three web servers of both families with a weight each.
func weighted(weights [3]int) string {
	var b strings.Builder
	for _, addrs := range [][]string{webs4, webs6} {
		for i, addr := range addrs {
			fmt.Fprintf(&b, "[[service.backend]]\naddress = %q\nweight = %d\n", addr, weights[i])
		}
	}
	return b.String()
}

// at is the address of a port of a VIP of either family.
func at(vip string, port int) string {
	if strings.Contains(vip, ":") {
		return fmt.Sprintf("[%s]:%d", vip, port)
	}
	return fmt.Sprintf("%s:%d", vip, port)
}

// fresh runs weir with a configuration on a box that knows nothing of another.
func (s *site) fresh(t testing.TB, toml string) {
	t.Helper()
	s.cleanSlate(t)
	s.run(t, toml)
}

// spread looks at whom guests have met, one after the other, and says what is
// wrong with that.
type spread func(met []string) error

func count(met []string) map[string]int {
	n := map[string]int{}
	for _, name := range met {
		n[name]++
	}
	return n
}

// shares wants so many for each of the web servers, more or less.
func shares(tolerance int, want ...int) spread {
	return func(met []string) error {
		got := count(met)
		for i, name := range webs {
			if d := got[name] - want[i]; d < -tolerance || d > tolerance {
				return fmt.Errorf("met %v, want %v (±%d)", got, want, tolerance)
			}
		}
		return nil
	}
}

// runs wants so many in a row of one web server, then of another one, and so on.
func runs(want ...int) spread {
	return func(met []string) error {
		var got []int
		for i, name := range met {
			switch {
			case i > 0 && name == met[i-1]:
				got[len(got)-1]++
			case slices.Contains(met[:i], name):
				return fmt.Errorf("met %v, want each server's turn to come once", met)
			default:
				got = append(got, 1)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("met %v: runs of %v, want %v", met, got, want)
		}
		return nil
	}
}

// atLeast wants so many for each of the three.
func atLeast(n int) spread {
	return func(met []string) error {
		for _, name := range webs {
			if got := count(met); got[name] < n {
				return fmt.Errorf("met %v, want at least %d of each", got, n)
			}
		}
		return nil
	}
}

func both(a, b spread) spread {
	return func(met []string) error {
		if err := a(met); err != nil {
			return err
		}
		return b(met)
	}
}

// scheduling is how the connections of one client spread that all stay open.
type scheduling struct {
	name      string
	scheduler string
	shown     string // by ipvsadm
	more      string
	weights   [3]int // of the web servers
	guests    int
	want      spread
}

// schedulers are all that Debian's kernels have.
var schedulers = []scheduling{
	{"rr takes turns", "rr", "rr", "", [3]int{1, 1, 1}, 9, shares(0, 3, 3, 3)},
	{"rr passes over weight 0", "rr", "rr", "", [3]int{1, 0, 1}, 10, shares(0, 5, 0, 5)},
	{"wrr takes turns by weight", "wrr", "wrr", "", [3]int{3, 2, 1}, 60, shares(3, 30, 20, 10)},
	{"wrr passes over weight 0", "wrr", "wrr", "", [3]int{2, 0, 1}, 12, shares(1, 8, 0, 4)},
	{"lc evens out", "lc", "lc", "", [3]int{1, 1, 1}, 9, shares(0, 3, 3, 3)},
	{"wlc evens out by weight", "wlc", "wlc", "", [3]int{3, 2, 1}, 12, shares(1, 6, 4, 2)},
	// The two differ while a slow server is idle.
	{"sed rather queues at the strong one", "sed", "sed", "", [3]int{10, 1, 1}, 8, shares(0, 8, 0, 0)},
	{"nq leaves none idle", "nq", "nq", "", [3]int{10, 1, 1}, 8, shares(0, 6, 1, 1)},
	{"fo takes the highest weight alone", "fo", "fo", "", [3]int{1, 3, 2}, 9, shares(0, 0, 9, 0)},
	// Full is who has more connections than weight (ip_vs_ovf.c).
	{"ovf fills one after the other", "ovf", "ovf", "", [3]int{3, 2, 1}, 9, both(shares(0, 4, 3, 2), runs(4, 3, 2))},
	// One VIP is one locality, which moves when more than weight are open.
	{"lblc stays until overload", "lblc", "lblc", "", [3]int{2, 2, 2}, 9, runs(3, 3, 3)},
	{"lblcr stays until overload", "lblcr", "lblcr", "", [3]int{2, 2, 2}, 9, runs(3, 3, 3)},
	{"dh keeps a VIP together", "dh", "dh", "", [3]int{1, 1, 1}, 9, runs(9)},
	{"sh keeps a client together", "sh", "sh (sh-fallback)", "", [3]int{1, 1, 1}, 9, runs(9)},
	{"sh with port does not", "sh", "sh (sh-port)", `scheduler_flags = ["port"]`, [3]int{1, 1, 1}, 60, atLeast(6)},
	{"mh has fallback and port", "mh", "mh (mh-fallback,mh-port)", "", [3]int{1, 1, 1}, 60, atLeast(6)},
	{"mh without flags keeps a client together", "mh", "mh", "scheduler_flags = []", [3]int{1, 1, 1}, 9, runs(9)},
}

// vipsOf are the VIPs of the i-th of schedulers: some, for those that hash them.
func vipsOf(i int) (v4, v6 []string) {
	for j := range 8 {
		v4 = append(v4, fmt.Sprintf("198.51.100.%d", 8*i+j+1))
		v6 = append(v6, fmt.Sprintf("2001:db8:%d::%d", i+1, j+1))
	}
	return v4, v6
}

func TestSpreading(t *testing.T) {
	s := newSite(t, lab.UML)
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	t.Run("schedulers", s.testSchedulers)
	t.Run("a scheduler may be missing", s.testMissingScheduler)
	t.Run("mh refuses nobody while a backend is out", s.testMaglevFallback)
	t.Run("sh and dh refuse nobody while a backend is out", s.testHashFallback)
	t.Run("affinity", s.testAffinity)
	t.Run("connection limits", s.testConnectionLimits)
}

func (s *site) testSchedulers(t *testing.T) {
	var toml strings.Builder
	for i, sched := range schedulers {
		v4, v6 := vipsOf(i)
		toml.WriteString(declared(fmt.Sprintf("s%d", i), append(v4, v6...), []string{"80:8080"}, nil,
			fmt.Sprintf("scheduler = %q", sched.scheduler), sched.more, weighted(sched.weights)))
	}
	s.fresh(t, toml.String())
	listed := strings.Split(s.box.Must(t, "ipvsadm", "-Ln"), "\n")
	for i, sched := range schedulers {
		v4, v6 := vipsOf(i)
		for _, vip := range []string{v4[0], v6[0]} {
			t.Run(sched.name+"/"+vip, func(t *testing.T) {
				want := "TCP  " + at(vip, 80) + " " + sched.shown
				if !slices.ContainsFunc(listed, func(l string) bool { return strings.TrimRight(l, " ") == want }) {
					t.Errorf("ipvsadm shows no %q:\n%s", want, strings.Join(listed, "\n"))
				}
				var met []string
				for range sched.guests {
					_, a := stay(t, s.client1, at(vip, 80))
					met = append(met, a.server)
				}
				if err := sched.want(met); err != nil {
					t.Error(err)
				}
			})
		}
	}
	t.Run("lc goes where connections have ended", s.testLeastConnections)
	t.Run("dh spreads VIPs", s.testDestinationHash)
	t.Run("sh spreads clients", s.testSourceHash)
}

// vipsWith are the VIPs of a scheduler, those of the first test with it.
func vipsWith(scheduler string) (v4, v6 []string) {
	return vipsOf(slices.IndexFunc(schedulers, func(s scheduling) bool { return s.scheduler == scheduler }))
}

// twos is younger than the others, and a kernel may be without it. Then it is
// named, and the Services with other schedulers are served.
func (s *site) testMissingScheduler(t *testing.T) {
	s.fresh(t, declared("new", []string{"198.51.100.1", "2001:db8:2::1"}, []string{"80:8080"}, nil,
		`scheduler = "twos"`, weighted([3]int{1, 1, 1}))+service("old", ""))
	if _, err := s.box.Run(t.Context(), "modprobe", "-n", "ip_vs_twos"); err == nil {
		t.Log("this kernel has it")
		for _, vip := range []string{"198.51.100.1", "2001:db8:2::1"} {
			if met := visits(t, s.client1, "tcp", at(vip, 80), 60); len(met) != 3 {
				t.Errorf("%s: met %v, want all backends", vip, met)
			}
		}
	} else if n := s.noted(t, "static/new", "failed"); !strings.Contains(n, "modprobe ip_vs_twos") {
		t.Errorf("notes %q, want the module to be named", n)
	}
	for _, vip := range []string{vip4, vip6} {
		if met := visits(t, s.client1, "tcp", at(vip, 80), 9); len(met) != 3 {
			t.Errorf("%s: met %v, want all backends", vip, met)
		}
	}
}

// noted are the texts of the notes in weir's status about a Service with a
// reason.
func (s *site) noted(t testing.TB, service, reason string) string {
	t.Helper()
	var doc struct {
		Notes []struct{ Service, Reason, Text string } `json:"notes"`
	}
	s.weirJSON(t, &doc, "status")
	var texts []string
	for _, n := range doc.Notes {
		if n.Service == service && n.Reason == reason {
			texts = append(texts, n.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func (s *site) testLeastConnections(t *testing.T) {
	v4, _ := vipsWith("lc")
	addr := at(v4[1], 80)
	for range 9 {
		c, a := stay(t, s.client1, addr)
		if a.server == "web2" {
			_ = c.Close()
		}
	}
	eventually(t, 10*time.Second, func() error {
		if n := s.server(t, addr, "10.2.0.12:8080").Active; n != 0 {
			return fmt.Errorf("web2 has %d active connections", n)
		}
		return nil
	})
	if _, a := stay(t, s.client1, addr); a.server != "web2" {
		t.Errorf("met %s, want web2, which has no connection open", a.server)
	}
}

func (s *site) testDestinationHash(t *testing.T) {
	v4, v6 := vipsWith("dh")
	for _, vips := range [][]string{v4, v6} {
		all := map[string]int{}
		for _, vip := range vips {
			met := visits(t, s.client1, "tcp", at(vip, 80), 3)
			for name := range met {
				all[name]++
			}
			if len(met) != 1 {
				t.Errorf("%s: met %v, want one backend", vip, met)
			}
		}
		if len(all) < 2 {
			t.Errorf("VIPs %v: met %v, want several backends", vips, all)
		}
	}
}

func (s *site) testSourceHash(t *testing.T) {
	v4, v6 := vipsWith("sh")
	for _, family := range []struct{ vip, client string }{{v4[0], "10.1.0.%d/24"}, {v6[0], "fd01::%d/64"}} {
		all := map[string]int{}
		for i := range 12 {
			client := netip.MustParsePrefix(fmt.Sprintf(family.client, 100+i))
			s.client1.Must(t, "ip", "addr", "add", client.String(), "dev", "front", "nodad")
			met := map[string]int{}
			for range 3 {
				met[visitFrom(t, s.client1, client.Addr(), at(family.vip, 80)).server]++
			}
			if len(met) != 1 {
				t.Errorf("%s at %s: met %v, want one backend", client, family.vip, met)
			}
			for name := range met {
				all[name]++
			}
		}
		if len(all) < 2 {
			t.Errorf("%s: 12 clients met %v, want several backends", family.vip, all)
		}
	}
}

// visitFrom visits from one of the addresses of a client.
func visitFrom(t *testing.T, client *lab.Machine, from netip.Addr, addr string) answer {
	t.Helper()
	c, a, err := visit(t.Context(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		return client.DialFrom(ctx, network, &net.TCPAddr{IP: from.AsSlice()}, addr)
	}, "tcp", addr)
	if err != nil {
		t.Fatalf("%s visits %s: %v", from, addr, err)
	}
	_ = c.Close()
	return a
}

// server is what weir and the kernel know of a backend of a frontend.
type server struct {
	Address  string `json:"address"`
	Weight   int    `json:"weight"`
	Active   int    `json:"active"`
	Draining bool   `json:"draining"`
}

// server reads a backend of a frontend, both as ADDRESS:PORT.
func (s *site) server(t testing.TB, frontend, backend string) server {
	t.Helper()
	var doc struct {
		Frontends []struct {
			Address string   `json:"address"`
			Port    int      `json:"port"`
			Servers []server `json:"servers"`
		} `json:"frontends"`
	}
	s.weirJSON(t, &doc, "services")
	for _, f := range doc.Frontends {
		if at(f.Address, f.Port) != frontend {
			continue
		}
		for _, be := range f.Servers {
			if be.Address == backend {
				return be
			}
		}
	}
	t.Fatalf("weir services shows no %s at %s: %+v", backend, frontend, doc)
	return server{}
}

// A backend that takes no new connections still has its place in the table of
// mh, and who is hashed there would be refused without the flag fallback.
func (s *site) testMaglevFallback(t *testing.T) {
	vips, ports := []string{vip4, vip6}, []string{"80:8080"}
	mh := func(weights [3]int) string {
		return declared("mh", vips, ports, nil, `scheduler = "mh"`, weighted(weights))
	}
	gone := declared("mh", vips, ports, append(slices.Delete(slices.Clone(webs4), 1, 2), slices.Delete(slices.Clone(webs6), 1, 2)...),
		`scheduler = "mh"`)
	s.fresh(t, mh([3]int{1, 1, 1}))
	for _, vip := range vips {
		if met := visits(t, s.client1, "tcp", at(vip, 80), 60); met["web2"] == 0 {
			t.Errorf("%s: met %v, want web2 as well", vip, met)
		}
	}
	_, _ = stay(t, s.client1, at(vip4, 80))
	for _, out := range []struct{ name, toml string }{
		{"with weight 0", mh([3]int{1, 0, 1})}, {"up again", mh([3]int{1, 1, 1})}, {"draining", gone},
	} {
		t.Run(out.name, func(t *testing.T) {
			s.holdAt(t, "web2", at(vip4, 80), at(vip6, 80))
			s.reload(t, out.toml)
			if draining := s.server(t, at(vip4, 80), "10.2.0.12:8080").Draining; draining != (out.name == "draining") {
				t.Errorf("web2 draining: %v", draining)
			}
			for _, vip := range vips {
				met := visits(t, s.client1, "tcp", at(vip, 80), 200)
				if web2 := met["web2"]; (web2 > 0) != (out.name == "up again") {
					t.Errorf("%s: met %v of web2 %s", vip, met, out.name)
				}
			}
		})
	}
}

// testHashFallback has one backend down, then draining, where many VIPs (dh) and
// many clients (sh) hash to it.
func (s *site) testHashFallback(t *testing.T) {
	var hearts []*webServer // what the checks ask
	for i := range webs {
		hearts = append(hearts, serveHTTP(t, s.web(i+1), 9999))
	}
	dh4, dh6 := vipsWith("dh")
	dhs := append(dh4, dh6...)
	var clients [][2]string // address and VIP
	for i := range 12 {
		for _, f := range [][2]string{{fmt.Sprintf("10.1.0.%d", 130+i), vip4}, {fmt.Sprintf("fd01::%d", 130+i), vip6}} {
			bits := map[bool]string{true: "/64", false: "/24"}[strings.Contains(f[0], ":")]
			s.client1.Must(t, "ip", "addr", "replace", f[0]+bits, "dev", "front", "nodad")
			clients = append(clients, f)
		}
	}
	meet := func(t *testing.T, scheduler string) map[string]int {
		met := map[string]int{}
		if scheduler == "dh" {
			for _, vip := range dhs {
				met[mustVisit(t, s.client1, "tcp", at(vip, 80)).server]++
			}
			return met
		}
		for _, c := range clients {
			met[visitFrom(t, s.client1, netip.MustParseAddr(c[0]), at(c[1], 80)).server]++
		}
		return met
	}
	toml := func(on ...string) string {
		return declared("dh", dhs, []string{"80:8080"}, on, `scheduler = "dh"`, check("tcp", "port = 9999")) +
			declared("sh", []string{vip4, vip6}, []string{"80:8080"}, on, `scheduler = "sh"`, check("tcp", "port = 9999"))
	}
	// serving waits until so many frontends give web2 traffic.
	serving := func(want int) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			n := 0
			text := s.box.Must(t, "ipvsadm", "-Sn")
			for _, line := range append(linesWith(text, " 10.2.0.12:8080 "), linesWith(text, " [fd02::12]:8080 ")...) {
				if !strings.HasSuffix(strings.TrimSpace(line), "-w 0") {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("%d frontends give web2 traffic, want %d", n, want)
			}
			return nil
		})
	}
	all := append(slices.Clone(webs4), webs6...)
	s.fresh(t, toml(all...))
	for _, step := range []struct {
		name string
		do   func(*testing.T)
		out  bool
	}{
		{"up", func(t *testing.T) { serving(len(dhs) + 2) }, false},
		{"down", func(t *testing.T) { hearts[1].stop(); serving(0) }, true},
		{"up again", func(t *testing.T) { hearts[1] = serveHTTP(t, s.web(2), 9999); serving(len(dhs) + 2) }, false},
		{"draining", func(t *testing.T) {
			for _, vip := range append([]string{vip4, vip6}, dhs...) {
				_, _ = stay(t, s.client1, at(vip, 80))
			}
			s.reload(t, toml(webs4[0], webs4[2], webs6[0], webs6[2]))
		}, true},
	} {
		step.do(t)
		for _, scheduler := range []string{"sh", "dh"} {
			t.Run(scheduler+" "+step.name, func(t *testing.T) {
				met := meet(t, scheduler)
				t.Logf("met %v", met)
				if (met["web2"] == 0) != step.out {
					t.Errorf("met %v of web2 %s", met, step.name)
				}
			})
		}
	}
}

// holdAt keeps a connection with a backend open at each address, if the backend
// takes any.
func (s *site) holdAt(t *testing.T, backend string, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		for range 60 {
			if c, a := stay(t, s.client1, addr); a.server == backend {
				break
			} else {
				_ = c.Close()
			}
		}
	}
}

func (s *site) testAffinity(t *testing.T) {
	vips := []string{vip4, vip6}
	with := func(affinity string, backends ...string) string {
		return "[kernel]\nsync_period = \"2s\"\nudp_timeout = \"1s\"\n" +
			declared("sticky", vips, []string{"80:8080", "80:8080/udp"}, backends, fmt.Sprintf("affinity = %q", affinity))
	}
	all := append(slices.Clone(webs4), webs6...)
	s.fresh(t, with("1h", all...))
	stuck := map[string]string{} // by VIP: whom client1 meets
	for _, vip := range vips {
		t.Run("each client has its backend/"+vip, func(t *testing.T) {
			whom := map[string]bool{}
			for _, client := range []*lab.Machine{s.client1, s.client2} {
				met := visits(t, client, "tcp", at(vip, 80), 50)
				if len(met) != 1 {
					t.Errorf("%s met %v in 50 visits, want one backend", client.Name(), met)
				}
				for name := range met {
					whom[name] = true
					if client == s.client1 {
						stuck[vip] = name
					}
				}
			}
			if len(whom) != 2 {
				t.Errorf("both clients have %v, want two backends: a client is one address", whom)
			}
		})
	}
	without := func(name string) []string {
		i := slices.Index(webs, name)
		return append(slices.Delete(slices.Clone(webs4), i, i+1), slices.Delete(slices.Clone(webs6), i, i+1)...)
	}
	for _, vip := range vips {
		t.Run("a client moves when its backend is removed/"+vip, func(t *testing.T) {
			s.reload(t, with("1h", without(stuck[vip])...))
			met := visits(t, s.client1, "tcp", at(vip, 80), 20)
			if met[stuck[vip]] > 0 || len(met) != 1 {
				t.Errorf("met %v, want one backend that is not %s", met, stuck[vip])
			}
			s.reload(t, with("1h", all...))
		})
	}
	t.Run("off again", func(t *testing.T) {
		s.reload(t, with("0s", all...))
		for _, vip := range vips {
			if met := visits(t, s.client1, "tcp", at(vip, 80), 9); met["web1"] != 3 || met["web2"] != 3 || met["web3"] != 3 {
				t.Errorf("%s: met %v, want 3 of each", vip, met)
			}
		}
	})
	t.Run("ends with its time", func(t *testing.T) {
		s.reload(t, with("2s", all...))
		for _, vip := range vips {
			before := visits(t, s.client1, "udp", at(vip, 80), 5)
			if len(before) != 1 {
				t.Errorf("%s: met %v in 5 visits, want one backend", vip, before)
			}
			took := eventually(t, 20*time.Second, func() error {
				if out := s.box.Must(t, "ipvsadm", "-Lnc"); strings.Contains(out, "UDP") {
					return fmt.Errorf("the kernel still knows the client:\n%s", out)
				}
				return nil
			})
			if took < time.Second {
				t.Errorf("%s: forgotten after %s, want 2s", vip, took)
			}
			// rr goes on where it was.
			for name := range visits(t, s.client1, "udp", at(vip, 80), 1) {
				if before[name] > 0 {
					t.Errorf("%s: met %s again, want the next one", vip, name)
				}
			}
		}
	})
}

func (s *site) testConnectionLimits(t *testing.T) {
	var b strings.Builder
	for _, addr := range append(slices.Clone(webs4), webs6...) {
		fmt.Fprintf(&b, "[[service.backend]]\naddress = %q\n", addr)
		if addr == "10.2.0.11" || addr == "fd02::11" {
			b.WriteString("max_connections = 2\nmin_connections = 1\n")
		}
	}
	s.fresh(t, declared("limited", []string{vip4, vip6}, []string{"80:8080"}, nil, b.String()))
	thresholds := s.box.Must(t, "ipvsadm", "-Ln", "--thresholds")
	for _, be := range []string{"10.2.0.11:8080", "[fd02::11]:8080"} {
		if !slices.ContainsFunc(strings.Split(thresholds, "\n"), func(l string) bool {
			f := strings.Fields(l)
			return len(f) >= 4 && f[1] == be && f[2] == "2" && f[3] == "1"
		}) {
			t.Errorf("ipvsadm shows no thresholds of 2 and 1 for %s:\n%s", be, thresholds)
		}
	}
	vips := []string{vip4, vip6}
	var first []net.Conn // of web1
	for _, vip := range vips {
		met := map[string]int{}
		for range 12 {
			c, a := stay(t, s.client1, at(vip, 80))
			met[a.server]++
			if a.server != "web1" {
				continue
			}
			// A reset ends a connection for IPVS within 10 s; after a FIN it
			// would count for two minutes.
			if err := c.(*net.TCPConn).SetLinger(0); err != nil {
				t.Fatal(err)
			}
			first = append(first, c)
		}
		if met["web1"] != 2 || met["web2"] != 5 || met["web3"] != 5 {
			t.Errorf("%s: met %v, want 2 of web1 and 5 of the others", vip, met)
		}
	}
	for _, c := range first {
		_ = c.Close()
	}
	for _, vip := range vips {
		eventually(t, 30*time.Second, func() error {
			if met := visits(t, s.client1, "tcp", at(vip, 80), 3); met["web1"] == 0 {
				return fmt.Errorf("%s: met %v, want web1 again after its connections have ended", vip, met)
			}
			return nil
		})
	}
}

// family is what both families have in their own way.
type family struct {
	name             string
	vip, other       string // two VIPs
	client1, client2 string
	box              string // as backends see it
	web1             string
}

var families = []family{
	{"IPv4", vip4, "198.51.100.10", "10.1.0.2", "10.1.0.3", "10.2.0.1", "10.2.0.11"},
	{"IPv6", vip6, "2001:db8:3::10", "fd01::2", "fd01::3", "fd02::1", "fd02::11"},
}

// bothFamilies gives the values that both families have for something.
func bothFamilies(of func(family) string) []string {
	return []string{of(families[0]), of(families[1])}
}

func vipOf(f family) string   { return f.vip }
func otherOf(f family) string { return f.other }
func web1Of(f family) string  { return f.web1 }

func TestSourceAddress(t *testing.T) {
	s := newSite(t, lab.UML)
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	t.Run("LoadBalancer", s.testSourceOfLoadBalancer)
	t.Run("ClusterIP", s.testSourceOfClusterIP)
	t.Run("hairpin", s.testHairpin)
	t.Run("the box itself", s.testSourceOfBox)
}

// sees checks whom the backends see when a client visits.
func sees(t *testing.T, from *lab.Machine, addr, want string) {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		for range 4 {
			if a := mustVisit(t, from, network, addr); a.saw != want {
				t.Errorf("%s visits %s %s: %s saw %s, want %s", from.Name(), network, addr, a.server, a.saw, want)
			}
		}
	}
}

var (
	dualWebs  = append(slices.Clone(webs4), webs6...)
	tcpAndUDP = []string{"80:8080", "80:8080/udp"}
)

func (s *site) testSourceOfLoadBalancer(t *testing.T) {
	toml := func(first, second string) string {
		return declared("first", bothFamilies(vipOf), tcpAndUDP, dualWebs, first) +
			declared("second", bothFamilies(otherOf), tcpAndUDP, dualWebs, second)
	}
	const keep, masquerade = `source_address = "keep"`, `source_address = "masquerade"`
	s.fresh(t, toml("", keep))
	for _, f := range families {
		sees(t, s.client1, at(f.vip, 80), f.box)
		sees(t, s.client1, at(f.other, 80), f.client1)
		sees(t, s.client2, at(f.other, 80), f.client2)
	}
	s.reload(t, toml(keep, masquerade))
	for _, f := range families {
		sees(t, s.client1, at(f.vip, 80), f.client1)
		sees(t, s.client1, at(f.other, 80), f.box)
	}
}

func (s *site) testSourceOfClusterIP(t *testing.T) {
	const kept, masked = true, false
	tests := []struct {
		name             string
		kernel           string
		client1, client2 bool
	}{
		{"nobody says who is inside", "", kept, kept},
		{"all ranges count", `cluster_cidrs = ["10.1.0.2/32", "fd01::2/128", "10.1.0.3/32", "fd01::3/128"]`, kept, kept},
		{"outside is masqueraded", `cluster_cidrs = ["10.77.0.0/16", "fd77::/64", "10.1.0.2/32", "fd01::2/128"]`, kept, masked},
		{"everybody is", `masquerade_all = true`, masked, masked},
		{"everybody is, though inside", `masquerade_all = true
cluster_cidrs = ["10.1.0.0/24", "fd01::/64"]`, masked, masked},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			toml := "[kernel]\nsync_period = \"2s\"\n" + tt.kernel + "\n" +
				declared("inside", bothFamilies(vipOf), tcpAndUDP, dualWebs, `type = "ClusterIP"`)
			if i == 0 {
				s.fresh(t, toml)
			} else {
				s.reload(t, toml)
			}
			for _, f := range families {
				for client, want := range map[*lab.Machine]string{
					s.client1: map[bool]string{kept: f.client1, masked: f.box}[tt.client1],
					s.client2: map[bool]string{kept: f.client2, masked: f.box}[tt.client2],
				} {
					sees(t, client, at(f.vip, 80), want)
				}
				s.boxIsSeenAs(t, f.box, at(f.vip, 80))
			}
		})
	}
}

// A backend that meets itself at its VIP would answer itself without the box, if
// it saw its own address.
func (s *site) testHairpin(t *testing.T) {
	s.fresh(t, "")
	for _, how := range []string{`source_address = "keep"`, `source_address = "masquerade"`, `type = "ClusterIP"`} {
		t.Run(how, func(t *testing.T) {
			s.reload(t, declared("alone", bothFamilies(vipOf), tcpAndUDP, bothFamilies(web1Of), how))
			for _, f := range families {
				sees(t, s.web(1), at(f.vip, 80), f.box)
			}
		})
	}
}

func (s *site) testSourceOfBox(t *testing.T) {
	const route = `vip_mode = "route"
route_pools = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"]
route_source = ["10.1.0.1", "fd01::1"]`
	for _, mode := range []struct{ name, kernel string }{{"address", ""}, {"route", route}} {
		t.Run(mode.name, func(t *testing.T) {
			s.fresh(t, "[kernel]\nsync_period = \"2s\"\n"+mode.kernel+"\n"+
				declared("masked", bothFamilies(vipOf), tcpAndUDP, dualWebs)+
				declared("kept", bothFamilies(otherOf), tcpAndUDP, dualWebs, `source_address = "keep"`))
			for _, f := range families {
				s.boxIsSeenAs(t, f.box, at(f.vip, 80), at(f.other, 80))
				// As any client, to see that the mode does not matter for them.
				sees(t, s.client1, at(f.vip, 80), f.box)
				sees(t, s.client1, at(f.other, 80), f.client1)
			}
			if mode.name == "route" {
				s.wantsSource(t, vip4, "10.1.0.1")
				s.wantsSource(t, vip6, "fd01::1")
			}
		})
	}
}

// wantsSource checks the address from which the box would speak to another.
func (s *site) wantsSource(t *testing.T, to, want string) {
	t.Helper()
	if out := s.box.Must(t, "ip", "route", "get", to); !slices.Contains(strings.Fields(out), want) {
		t.Errorf("ip route get %s: %s, want source %s", to, strings.TrimSpace(out), want)
	}
}
