package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// spread compares which servers guests have reached, one after the other, and returns what is
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
	t.Parallel()
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
			declared("sticky", vips, []string{"80:8080", "80:8080/udp"}, backends, fmt.Sprintf("affinity_timeout = %q", affinity))
	}
	all := append(slices.Clone(webs4), webs6...)
	s.fresh(t, with("1h", all...))
	stuck := map[string]string{} // by VIP: the server of client1
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
		s.reload(t, with("10s", all...))
		for _, vip := range vips {
			before := visits(t, s.client1, "udp", at(vip, 80), 4)
			begin := time.Now()
			for name := range visits(t, s.client1, "udp", at(vip, 80), 1) {
				before[name]++
			}
			if len(before) != 1 {
				t.Errorf("%s: met %v in 5 visits, want one backend", vip, before)
			}
			// A template that ends before its last connection gets another minute.
			eventually(t, 2*time.Minute, func() error {
				if out := s.box.Must(t, "ipvsadm", "-Lnc"); strings.Contains(out, "UDP") {
					return fmt.Errorf("the kernel still knows the client:\n%s", out)
				}
				return nil
			})
			if took := time.Since(begin); took < 9*time.Second {
				t.Errorf("%s: forgotten after %s, want 10s", vip, took)
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
			must(t, c.(*net.TCPConn).SetLinger(0))
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
