package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// checked makes a service with backends that are checked often, and that refuses clients
// when none of them is well: with when_down = "keep" all of them would be used, and
// the VIP served and announced.
const checked = `
when_down = "refuse"
[service.check]
type = "http"
path = "/healthz"
interval = "300ms"
timeout = "250ms"
rise = 1
fall = 2
`

// ail makes all web servers healthy or not. They continue to serve, whatever state they
// report.
func (e *edge) ail(status int) {
	for _, w := range e.webs {
		w.health.Store(int32(status))
	}
}

// holdDown is the hold-down of the box in these stories.
const holdDown = 3 * time.Second

func withdrawnWithoutBackends(t *testing.T, e *edge) {
	t.Cleanup(func() { e.ail(http.StatusOK) })
	s := e.boxes[0]
	s.run(t, rarely(peering(1, fmt.Sprintf("reannounce_delay = %q", holdDown), ""))+service("web", checked))
	e.awaitRoutes(t, bothVIPs, 1)
	watch := watchRoutes(t, e.Host("router"))
	h := e.hammerWeb(t)
	h.more(t, 25)

	ill := time.Now()
	e.ail(http.StatusServiceUnavailable)
	e.awaitRoutes(t, bothVIPs)
	figure(t, "all backends fail (checks every 300 ms, fall 2): routes gone after", watch.first(t, vip4, false, ill).Sub(ill))
	t.Logf("weir bgp routes:\n%s", s.box.Must(t, s.weir, "bgp", "routes"))

	well := time.Now()
	e.ail(http.StatusOK)
	e.awaitRoutes(t, bothVIPs, 1)
	for _, vip := range bothVIPs {
		back := watch.first(t, vip, true, well).Sub(well)
		if back < holdDown {
			t.Errorf("%s is back after %s, though reannounce_delay is %s", vip, back, holdDown)
		}
		figure(t, fmt.Sprintf("backends are well again, reannounce_delay %s: route of %s is back after", holdDown, vip), back)
	}
	h.more(t, 25)
	tries := h.Stop()
	for _, vip := range bothVIPs {
		rest, torn := apart(tries.To(at(vip, 80)), watch, ill, vip)
		for _, b := range rest {
			if b.Err != nil && b.Outcome() != unreachable {
				t.Errorf("%s: a request %s after the backends fell ill: %v", vip, b.Began.Sub(ill).Round(time.Millisecond), b.Err)
				break
			}
		}
		t.Logf("%s: %s; under way when the route left: %s", vip, rest.Report(), torn.Report())
	}
	flapping(t, e, watch)
}

// backendsAre waits until weir has all backends as healthy, or none.
func (e *edge) backendsAre(t testing.TB, up bool) {
	t.Helper()
	want := map[bool]string{true: "1", false: "0"}[up]
	eventually(t, 30*time.Second, func() error {
		all := e.boxes[0].metrics(t, "weir_backend_up")
		for backend, is := range all {
			if is != want {
				return fmt.Errorf("weir_backend_up of %s is %s, want %s", backend, is, want)
			}
		}
		if len(all) == 0 {
			return fmt.Errorf("no backend is checked")
		}
		return nil
	})
}

// flapping has the backends fail and recover faster than reannounce_delay.
func flapping(t *testing.T, e *edge, watch *routeWatch) {
	begin, most := time.Now(), 1
	var well time.Time
	for i := range 4 {
		e.ail(http.StatusServiceUnavailable)
		e.backendsAre(t, false)
		if i > 0 && time.Since(well) >= holdDown { // on a slow machine they were well for long enough
			most++
		}
		well = time.Now()
		e.ail(http.StatusOK)
		e.backendsAre(t, true)
	}
	took := time.Since(begin)
	e.awaitRoutes(t, bothVIPs, 1)
	for _, vip := range bothVIPs {
		n := watch.flaps(vip, begin)
		if n == 0 || n > most {
			t.Errorf("%s: while its backends failed 4 times in %s its route left %d times, want 1 to %d", vip, took, n, most)
		}
		figure(t, fmt.Sprintf("backends fail 4 times within %s: the route of %s leaves", took.Round(time.Millisecond), vip), fmt.Sprintf("%d times", n))
	}
}

// floorHolds has the backends of eight VIPs fail together: half of the VIPs stay.
func floorHolds(t *testing.T, e *edge) {
	t.Cleanup(func() { e.ail(http.StatusOK) })
	s := e.boxes[0]
	var vips []string
	services := ""
	for i := range 8 {
		vips = append(vips, fmt.Sprintf("198.51.100.%d", i+1))
		services += declared(fmt.Sprintf("s%d", i+1), vips[i:], []string{"80:8080"}, webs4, checked)
	}
	for _, floor := range []struct {
		share string
		stay  int
	}{{"50%", 4}, {"0%", 0}} {
		bgp := fmt.Sprintf("reannounce_delay = \"0s\"\nmin_announced = %q", floor.share)
		if s.daemon == nil {
			s.run(t, rarely(peering(1, bgp, ""))+services)
		} else {
			s.reload(t, rarely(peering(1, bgp, ""))+services)
		}
		e.awaitRoutes(t, vips, 1)
		e.ail(http.StatusServiceUnavailable)
		e.staysAnnounced(t, vips, floor.stay)
		t.Logf("floor %s, all backends fail:\n%s", floor.share, s.box.Must(t, s.weir, "bgp", "routes"))
		e.ail(http.StatusOK)
	}
	e.awaitRoutes(t, vips, 1)
}

// staysAnnounced waits until the router has routes to so many of the VIPs, and looks
// again when weir knows all backends, and has audited everything once more.
func (e *edge) staysAnnounced(t testing.TB, vips []string, want int) {
	t.Helper()
	count := func() error {
		n := 0
		for _, vip := range vips {
			if e.routed(t.Context(), vip, 1) == nil {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("the router has routes to %d of %d VIPs, want %d", n, len(vips), want)
		}
		return nil
	}
	e.backendsAre(t, false)
	eventually(t, routeWait, count)
	e.boxes[0].box.Must(t, e.boxes[0].weir, "reload")
	if err := count(); err != nil {
		t.Errorf("and then: %v", err)
	}
}

// clearedKernel has an operator take away what weir has put into the kernel. It is put back without an audit,
// which is an hour away, and reported. From then on no request fails. A flush of rules cuts no connection. The
// kernel forgets those of IPVS when that is cleared. Without the device it sends their packets along another
// route, and ends what it masquerades.
func clearedKernel(t *testing.T, e *edge) {
	s := e.boxes[0]
	echoAll(t, e.Lab)
	s.run(t, strings.Replace(peering(1, "", "")+shared, auditedEdge, "[kernel]\nsync_period = \"1h\"\n", 1))
	e.awaitRoutes(t, bothVIPs, 1)
	before := s.dump(t)
	for _, tt := range []struct {
		command string
		cuts    bool
	}{
		{"ipvsadm -C", true},
		{"iptables -F && iptables -t nat -F && iptables -t mangle -F && ip6tables -F && ip6tables -t nat -F", false},
		{"ip link del kube-ipvs0", true},
		{"iptables -t nat -F", false}, // a part of the flush of all rules
	}[:sized(3, 4)] {
		watch, repairs := watchRoutes(t, e.Host("router")), s.driftCounts(t)
		c := startClients(t, e.client1, sharedTargets)
		begin := time.Now()
		s.box.Must(t, "sh", "-c", tt.command)
		eventually(t, 30*time.Second, func() error {
			if now := s.dump(t); now != before {
				return fmt.Errorf("%s: not as it was: %s", tt.command, cmp.Diff(before, now))
			}
			return nil
		})
		repaired := time.Now()
		c.ended(t, 50)
		mustAllBeAnswered(t, tt.command+", since the repair", c.fresh.Tries(), repaired, time.Time{})
		eventually(t, 30*time.Second, func() error { // the loop counts at the end of a pass
			if now := s.driftCounts(t); maps.Equal(now, repairs) {
				return fmt.Errorf("%s: weir_drift_repairs_total stays %v", tt.command, now)
			}
			return nil
		})
		if tt.cuts {
			c.report(t, tt.command)
		} else {
			c.noneCut(t, tt.command)
		}
		e.awaitRoutes(t, bothVIPs, 1)
		figure(t, tt.command+": the route left", fmt.Sprintf("%d times", watch.flaps(vip4, begin)))
	}
}
