package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// check is the text of a quick check; the rest of the service comes before it.
func check(typ, more string) string {
	return fmt.Sprintf("[service.check]\ntype = %q\ninterval = \"400ms\"\ntimeout = \"300ms\"\nrise = 2\nfall = 2\n%s\n", typ, more)
}

// calmCheck is a check that a short pause of the machine does not fail: neither its first result nor a later one.
func calmCheck(typ, more string) string {
	return fmt.Sprintf("[service.check]\ntype = %q\ninterval = \"1s\"\ntimeout = \"1s\"\nrise = 1\nfall = 3\n%s\n", typ, more)
}

const httpCheck = `path = "/healthz"`

func TestHealth(t *testing.T) {
	t.Parallel()
	lab.Routers.Require(t)
	s := newSite(t, lab.UML)
	stories(t, s, []story{
		{"HTTP check spares clients a sick backend", httpHealth},
		{"TCP check", tcpHealth},
		{"UDP check", udpHealth},
		{"gRPC check", grpcHealth},
		{"BFD check", bfdHealth},
		{"quorum lost", quorumLost},
		{"quorum lost in one family", quorumLostInFamily},
		{"health survives a reload", healthSurvivesReload},
		{"backend that is dead at the start is spared", deadAtStart},
		{"health, events and top say what happens", reportsChanges},
	})
}

// weight is what the kernel gives a real server, as ipvsadm shows it; "" if it
// has none such.
func (s *site) weight(t testing.TB, real string) string {
	t.Helper()
	for _, line := range linesWith(s.box.Must(t, "ipvsadm", "-Sn"), " -r "+real+" ") {
		_, w, _ := strings.Cut(line, " -w ")
		return strings.Fields(w)[0]
	}
	return ""
}

// mustWeigh waits until the kernel has a real server with a weight.
func (s *site) mustWeigh(t testing.TB, real, want string) time.Duration {
	t.Helper()
	return eventually(t, 20*time.Second, func() error {
		if w := s.weight(t, real); w != want {
			return fmt.Errorf("weight of %s is %q, want %q", real, w, want)
		}
		return nil
	})
}

func httpHealth(t *testing.T, s *site) {
	webs := s.serveAll(t, 8080)
	s.run(t, service("web", check("http", httpCheck)))
	const sick4, sick6 = "10.2.0.13:8080", "[fd02::13]:8080"
	for _, ill := range []struct {
		name string
		fall func()
		rise func()
		// mayFail: requests before the notice can fail.
		mayFail bool
	}{
		{"answers 503",
			func() { webs[2].health.Store(http.StatusServiceUnavailable) },
			func() { webs[2].health.Store(http.StatusOK) }, false},
		{"is stopped",
			func() { webs[2].stop() },
			func() { webs[2] = serveHTTP(t, s.web(3), 8080) }, true},
		{"loses its cable",
			func() { must(t, s.web(3).Unplug("back")) },
			func() { must(t, s.web(3).Plug("back")) }, true},
	} {
		t.Run(ill.name, func(t *testing.T) {
			streams := []*load{startStream(t, s.client1, vip4+":80"), startStream(t, s.client2, "["+vip6+"]:80")}
			for _, x := range streams {
				x.more(t, 6)
			}
			begin := time.Now()
			ill.fall()
			s.mustWeigh(t, sick4, "0")
			s.mustWeigh(t, sick6, "0")
			noticed := time.Now()
			for _, x := range streams {
				x.more(t, 15)
			}
			out, _ := s.box.Run(t.Context(), s.weir, "services")
			for _, line := range linesWith(out.Stdout, "13:8080") {
				if !strings.Contains(line, "down (") {
					t.Errorf("weir services says of the sick backend %q", line)
				}
			}
			tries := append(streams[0].Stop(), streams[1].Stop()...)
			before := tries.Between(begin, noticed)
			mustAllBeAnswered(t, "after the notice", tries, noticed, time.Time{})
			if n := tries.Between(noticed, time.Time{}).By()["web3"]; n > 0 {
				t.Errorf("the sick backend had %d requests that began after it was noticed", n)
			}
			if lost := before.Lost(); len(lost) > 0 && !ill.mayFail {
				t.Errorf("%d requests failed: %v", len(lost), lost.Err(3))
			}
			ill.rise()
			risen := s.mustWeigh(t, sick4, "1")
			s.mustWeigh(t, sick6, "1")
			eventually(t, 20*time.Second, func() error {
				if got := mustGet(t, s.client1, vip4+":80", 6); got["web3"] != 2 {
					return fmt.Errorf("after its return %v answer", got)
				}
				return nil
			})
			t.Logf("seen in the kernel %s after it fell ill; requests until then: %s; back %s after it was well",
				noticed.Sub(begin).Round(time.Millisecond), before.Report(), risen.Round(time.Millisecond))
		})
	}
}

func tcpHealth(t *testing.T, s *site) {
	var servers []*webServer
	for _, i := range allWebs {
		servers = append(servers, serveHTTP(t, s.web(i), 8080))
	}
	s.run(t, service("web", check("tcp", "")))
	mustGet(t, s.client1, vip4+":80", 3)
	servers[0].stop()
	took := s.mustWeigh(t, "10.2.0.11:8080", "0")
	if got := mustGet(t, s.client1, vip4+":80", 6); got["web1"] > 0 {
		t.Errorf("answers %v, want none of the stopped one", got)
	}
	serveHTTP(t, s.web(1), 8080)
	t.Logf("down seen after %s, up after %s", took.Round(time.Millisecond), s.mustWeigh(t, "10.2.0.11:8080", "1").Round(time.Millisecond))
}

func udpHealth(t *testing.T, s *site) {
	for _, i := range allWebs[:2] {
		serveUDP(t, s.web(i), 5300)
	}
	c, err := s.web(3).ListenPacket("udp4", ":5300")
	must(t, err)
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(fmt.Sprintf("%s web3", buf[:n])), from)
		}
	}()
	s.run(t, serves("dns", []string{vip4}, "5300/udp", allWebs, calmCheck("udp", "send = \"hello\"\nexpect = \"hello web\"")))
	var flows []*flow
	for i := range 3 {
		flows = append(flows, startFlow(t, s.client1, 41000+i, vip4+":5300"))
	}
	on := map[string]*flow{}
	for _, f := range flows {
		on[f.answered(t, 3).Server] = f
	}
	if len(on) != 3 {
		t.Fatalf("three flows are on %d backends", len(on))
	}
	begin := time.Now()
	must(t, c.Close())
	eventually(t, 20*time.Second, func() error {
		if d, _ := on["web3"].Last(); d.Server == "web3" {
			return fmt.Errorf("the flow is still on web3")
		}
		return nil
	})
	on["web3"].answered(t, 10)
	lost, gap := on["web3"].Stop()
	if w := s.weight(t, "10.2.0.13:5300"); w != "" {
		t.Errorf("a UDP backend that is down is still there, with weight %q", w)
	}
	t.Logf("the flow of the dead backend moved within %s; %d datagrams lost, gap %s", time.Since(begin).Round(time.Millisecond), lost, gap.Round(time.Millisecond))
	for _, name := range []string{"web1", "web2"} {
		on[name].answered(t, 3)
		if lost, _ := on[name].Stop(); lost > 0 {
			t.Errorf("the flow on %s lost %d datagrams", name, lost)
		}
	}
}

// serveGRPC answers grpc.health.v1 with the value of health: 1 is SERVING.
func serveGRPC(t testing.TB, m *lab.Machine, port int) *atomic.Int32 {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	must(t, err)
	health := new(atomic.Int32)
	health.Store(1)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/grpc.health.v1.Health/Check" {
			_, _ = fmt.Fprintf(w, "%s %s", m.Name(), "10.2.0.1")
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 0x08, byte(health.Load())})
		w.Header().Set("Grpc-Status", "0")
	})
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return health
}

func grpcHealth(t *testing.T, s *site) {
	var health []*atomic.Int32
	for _, i := range allWebs {
		health = append(health, serveGRPC(t, s.web(i), 9090))
	}
	s.run(t, serves("rpc", []string{vip4}, "80:9090", allWebs, calmCheck("grpc", "")))
	if got := mustGet(t, s.client1, vip4+":80", 6); got["web2"] != 2 {
		t.Errorf("answers %v, want 2 of each", got)
	}
	health[1].Store(2) // NOT_SERVING
	took := s.mustWeigh(t, "10.2.0.12:9090", "0")
	if got := mustGet(t, s.client1, vip4+":80", 6); got["web2"] > 0 {
		t.Errorf("answers %v, want none of the one that does not serve", got)
	}
	health[1].Store(1)
	t.Logf("NOT_SERVING seen after %s, SERVING after %s", took.Round(time.Millisecond), s.mustWeigh(t, "10.2.0.12:9090", "1").Round(time.Millisecond))
}

func quorumLost(t *testing.T, s *site) {
	webs := s.serveAll(t, 8080)
	config := func(more string) string {
		return serves("web", bothVIPs, "80:8080", []int{1, 2}, "quorum = 2\n"+more+calmCheck("http", httpCheck))
	}
	s.run(t, config(`when_down = "keep"`+"\n"))
	sick := func(status int) { webs[0].health.Store(int32(status)) }
	lost := func(want bool) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			out, _ := s.box.Run(t.Context(), s.weir, "status")
			n := 0
			if want {
				n = 2 // one family may learn it before the other
			}
			if strings.Count(out.Stdout, "quorum-lost") != n {
				return fmt.Errorf("want quorum lost %v:\n%s", want, out.Stdout)
			}
			return nil
		})
	}
	addrs := []string{vip4 + ":80", "[" + vip6 + "]:80"}
	sick(503)
	lost(true)
	for _, a := range addrs {
		if got := mustGet(t, s.client1, a, 4); got["web1"] != 2 || got["web2"] != 2 {
			t.Errorf("keep: %s: %v, want all backends as if they were up", a, got)
		}
	}

	s.reload(t, config(`when_down = "refuse"`+"\n"))
	for _, a := range addrs {
		if got := fate(t.Context(), s.client1, "tcp", a); got != traffic.Refused {
			t.Errorf("refuse: %s: %s", a, got)
		}
	}
	sick(200)
	lost(false)
	for _, a := range addrs {
		mustGet(t, s.client1, a, 4)
	}

	s.reload(t, config("when_down = \"fallback\"\nfallback = [\"10.2.0.13\", \"fd02::13\"]\n"))
	for _, a := range addrs {
		if got := mustGet(t, s.client1, a, 4); got["web3"] > 0 {
			t.Errorf("fallback: %s: %v before the quorum is lost", a, got)
		}
	}
	requests := startStream(t, s.client2, addrs...)
	requests.more(t, 5)
	sick(503)
	lost(true)
	for _, a := range addrs {
		if got := mustGet(t, s.client1, a, 4); got["web3"] != 4 {
			t.Errorf("fallback: %s: %v, want the fallback alone", a, got)
		}
	}
	sick(200)
	lost(false)
	for _, a := range addrs {
		if got := mustGet(t, s.client1, a, 4); got["web3"] > 0 {
			t.Errorf("fallback: %s: %v after the quorum is back", a, got)
		}
	}
	mustHaveLostNothing(t, requests)
}

// A fault of IPv4 backends is a fault for IPv4 clients, and when_down is
// for them: that IPv6 backends are up does not help them.
func quorumLostInFamily(t *testing.T, s *site) {
	for _, i := range []int{1, 2} {
		l, err := s.web(i).Listen("tcp", ":8080")
		must(t, err)
		w := &webServer{name: s.web(i).Name()}
		w.health.Store(http.StatusOK)
		srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" && !strings.HasPrefix(r.RemoteAddr, "[fd") {
				rw.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.ServeHTTP(rw, r)
		})}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close() })
	}
	config := func(more string) string {
		return serves("web", bothVIPs, "80:8080", []int{1, 2}, more+calmCheck("http", httpCheck))
	}
	s.run(t, config("")) // when_down = keep: the checks are wrong, as they are here
	six := "[" + vip6 + "]:80"
	eventually(t, 20*time.Second, func() error {
		out, _ := s.box.Run(t.Context(), s.weir, "status")
		if strings.Count(out.Stdout, "quorum-lost") != 1 || !strings.Contains(out.Stdout, "too few IPv4 backends of 80/tcp are up: all backends are used") {
			return fmt.Errorf("status:\n%s", out.Stdout)
		}
		return nil
	})
	for _, up := range []string{"[fd02::11]:8080", "[fd02::12]:8080"} {
		s.mustWeigh(t, up, "1")
	}
	for _, a := range []string{vip4 + ":80", six} {
		if got := mustGet(t, s.client1, a, 4); got["web1"] != 2 || got["web2"] != 2 {
			t.Errorf("keep: %s: %v, want both backends", a, got)
		}
	}
	s.reload(t, config("when_down = \"refuse\"\n"))
	if got := fate(t.Context(), s.client1, "tcp", vip4+":80"); got != traffic.Refused {
		t.Errorf("refuse: IPv4: %s", got)
	}
	mustGet(t, s.client1, six, 4)
}

func healthSurvivesReload(t *testing.T, s *site) {
	webs := s.serveAll(t, 8080)
	webs[2].health.Store(503)
	s.run(t, service("web", calmCheck("http", httpCheck)))
	s.mustWeigh(t, "10.2.0.13:8080", "0")
	requests := startStream(t, s.client1, vip4+":80")
	before, log := s.ops(t), len(s.daemon.Output())
	for i := range 3 {
		s.reload(t, service("web", calmCheck("http", httpCheck))+serves(fmt.Sprintf("more%d", i), []string{"192.0.2.20"}, "80:8080", allWebs, `drain_timeout = "0s"`))
	}
	requests.more(t, 20)
	if w := s.weight(t, "10.2.0.13:8080"); w != "0" {
		t.Errorf("the sick backend has weight %q after reloads", w)
	}
	ops := s.opsSince(t, before)
	if ops["change real_server"] > 0 {
		t.Errorf("reloads changed real servers: %v", ops)
	}
	for _, line := range linesWith(s.daemon.Output()[log:], "10.2.0.13:8080") {
		if !strings.Contains(line, "192.0.2.20") {
			t.Errorf("reloads made weir say %q", line)
		}
	}
	tries := requests.Stop()
	if n := tries.By()["web3"]; n > 0 {
		t.Errorf("the sick backend had %d requests", n)
	}
	mustAllBeAnswered(t, "three reloads", tries, time.Time{}, time.Time{})
}

func deadAtStart(t *testing.T, s *site) {
	serveHTTP(t, s.web(1), 8080)
	sick := serveHTTP(t, s.web(2), 8080)
	sick.health.Store(503)
	// web3 has no server at all.
	s.configure(t, service("web", calmCheck("http", httpCheck)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make(chan string, 10000)
	go func() {
		defer close(results)
		for ctx.Err() == nil {
			// Until weir begins no VIP answers; from then on every VIP must.
			if fate(ctx, s.client1, "tcp", vip4+":80") != traffic.Answered {
				continue
			}
			a, err := get(context.WithoutCancel(ctx), s.client1, vip4+":80")
			if err != nil {
				results <- err.Error()
				continue
			}
			results <- a.server
		}
	}()
	s.start(t)
	eventually(t, 10*time.Second, func() error {
		if n := len(results); n < 10 {
			return fmt.Errorf("%d requests answered", n)
		}
		return nil
	})
	cancel()
	got := map[string]int{}
	for r := range results {
		got[r]++
	}
	if len(got) != 1 || got["web1"] == 0 {
		t.Errorf("from the first packet on %v, want the healthy one alone", got)
	}
	if n := sick.served.Load(); n > 0 {
		t.Errorf("the sick backend had %d requests", n)
	}
	// The same over a restart: the kernel keeps the dead ones out all the time.
	s.stop(t, syscall.SIGTERM)
	stream := startStream(t, s.client1, vip4+":80")
	s.start(t)
	stream.more(t, 10)
	mustHaveLostNothing(t, stream)
	t.Logf("from the first packet on: %v", got)
}
