package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// villainHost is beside box1 and speaks BGP with it.
var villainHost = lab.Host{Name: "villain", Nets: lab.Nets{linkOf(1): villainAddrs()}}

// TestAnnouncedWhenServed has clients hammer VIPs of one box while all kinds of things
// happen to it. The router's word is the law: where it has a route, clients are served.
func TestAnnouncedWhenServed(t *testing.T) {
	t.Parallel()
	e := newEdge(t, 1, villainHost)
	e.boxes[0].rules = "iptables" // one of the stories is about its lock
	stories(t, e, []storyOn[*edge]{
		{"from before a VIP exists", announcedLast},
		{"while the box is changed and started anew", neverWithdrawn},
		{"a service that is removed, a box that stops for good", withdrawnFirst},
		{"no backend is well", withdrawnWithoutBackends},
		{"most backends are not well", floorHolds},
		{"an operator clears the kernel", clearedKernel},
		{"IPVS is unloaded", unloadedIPVS},
		{"another program keeps the lock of iptables", lockedRules},
		{"a router that reads nothing", deafRouter},
		{"a hostile speaker", hostileSpeaker},
	})
}

// cleanSlate ends weir on all boxes, takes what it left out of their kernels, and has
// the router forget what it keeps for a restart.
func (e *edge) cleanSlate(t testing.TB) {
	t.Helper()
	for _, s := range e.boxes {
		s.cleanSlate(t)
	}
	must(t, e.router.Restart(within(t, 30*time.Second)))
}

// onlyBox configures and starts the only box of the test.
func (e *edge) onlyBox(t testing.TB, services string) *site {
	t.Helper()
	s := e.boxes[0]
	s.run(t, peering(1, "", "")+services)
	e.connected(t, false, 1)
	return s
}

func (e *edge) reload(t testing.TB, services string) {
	t.Helper()
	e.boxes[0].reload(t, peering(1, "", "")+services)
}

// hammerWeb strikes at the web service of both families, in make soak at hammerBeat. Attempts are patient: what
// is lost on the path is slow, and a packet to an address without a host fails.
func (e *edge) hammerWeb(t testing.TB) *load {
	return e.streamWeb(t, hammerBeat*time.Duration(sized(2, 1)))
}

// streamWeb does so at a beat, a slower one in stories without a withdrawal.
func (e *edge) streamWeb(t testing.TB, beat time.Duration) *load {
	return startLoad(t, e.client1, traffic.Options{Beat: beat, Patience: 4 * time.Second}, at(vip4, 80), at(vip6, 80))
}

// noRouteFor waits until so many attempts that began after an instant got the router's answer
// that there is no route.
func noRouteFor(t testing.TB, h *load, n int, since time.Time) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		got := h.Tries().Where(func(one traffic.Try) bool { return one.Outcome() == unreachable && one.Began.After(since) })
		if len(got) < n {
			return fmt.Errorf("%d of %d attempts were told that there is no way: %s", len(got), n, h.Tries().Report())
		}
		return nil
	})
}

// announcedLast hammers VIPs from before they exist: of a service that is added to a
// running box, and of a box that starts.
func announcedLast(t *testing.T, e *edge) {
	watch := watchRoutes(t, e.Host("router"))
	for _, how := range []string{"added to a running box", "of a box that starts"} {
		if how == "added to a running box" {
			e.onlyBox(t, serves("other", []string{"192.0.2.99"}, "80:8080", allWebs, ""))
			e.awaitRoutes(t, []string{"192.0.2.99"}, 1)
		} else {
			e.cleanSlate(t)
			e.awaitRoutes(t, bothVIPs)
		}
		h := e.hammerWeb(t)
		noRouteFor(t, h, 20, time.Time{}) // some without an answer
		begin := time.Now()
		if how == "added to a running box" {
			e.reload(t, service("web", ""))
		} else {
			e.onlyBox(t, service("web", ""))
		}
		e.awaitRoutes(t, bothVIPs, 1)
		h.more(t, 100)
		tries := h.Stop()
		for _, vip := range bothVIPs {
			up := watch.first(t, vip, true, begin)
			mustAllBeAnswered(t, fmt.Sprintf("%s, %s, since the router had the route", vip, how), tries.To(at(vip, 80)), up, time.Time{})
			t.Logf("%s, %s, before that: %s", vip, how, tries.To(at(vip, 80)).Between(time.Time{}, up).Report())
			for _, b := range tries.To(at(vip, 80)) {
				if b.Err != nil && b.Outcome() != unreachable {
					t.Errorf("%s, %s: before there was a route: %v", vip, how, b.Err)
					break
				}
			}
			figure(t, fmt.Sprintf("%s: route of %s in the router's kernel after", how, vip), up.Sub(begin))
		}
	}
}

// neverWithdrawn changes the configuration and restarts weir: no request fails, and
// the route never leaves the router's kernel.
func neverWithdrawn(t *testing.T, e *edge) {
	s := e.onlyBox(t, service("web", ""))
	e.awaitRoutes(t, bothVIPs, 1)
	watch := watchRoutes(t, e.Host("router"))
	h := e.hammerWeb(t)
	h.more(t, 25)
	begin := time.Now()
	steps := []struct {
		what string
		do   func()
	}{
		{"a backend removed", func() { e.reload(t, serves("web", bothVIPs, "80:8080", []int{1, 2}, "")) }},
		{"another one in its place", func() { e.reload(t, serves("web", bothVIPs, "80:8080", []int{1, 3}, "")) }},
		{"all of them, with weights", func() {
			e.reload(t, declared("web", bothVIPs, []string{"80:8080"}, nil, "scheduler = \"wrr\"", weighted([3]int{5, 1, 3})))
		}},
		{"other weights", func() {
			e.reload(t, declared("web", bothVIPs, []string{"80:8080"}, nil, "scheduler = \"wrr\"", weighted([3]int{1, 0, 9})))
		}},
		{"as it was", func() { e.reload(t, service("web", "")) }},
		{"weir ends and starts", func() { s.stop(t, syscall.SIGTERM); h.more(t, 25); s.start(t) }},
		{"weir is killed and starts", func() { s.stop(t, syscall.SIGKILL); h.more(t, 25); s.start(t) }},
		{"audits", func() { s.auditOnce(t) }},
	}
	for _, step := range steps {
		at := time.Now()
		step.do()
		e.connected(t, false, 1)
		h.more(t, 25)
		mustAllBeAnswered(t, step.what, h.Tries(), at, time.Time{})
		for _, vip := range bothVIPs {
			if n := watch.flaps(vip, at); n > 0 {
				t.Errorf("%s: the route to %s left the router's kernel %d times", step.what, vip, n)
			}
		}
	}
	mustAllBeAnswered(t, "all of that", h.Stop(), begin, time.Time{})
	for _, vip := range bothVIPs {
		if n := len(watch.of(vip, begin)); n > 0 {
			t.Logf("%s: the router's kernel wrote its route %d times meanwhile", vip, n)
		}
	}
}

// withdrawnFirst takes a service away, then has a box stop that cleans up: the route
// goes before the kernel ceases to serve. So clients are served, or get the answer of the
// router that there is no route; no client is refused, and none waits without an answer.
func withdrawnFirst(t *testing.T, e *edge) {
	watch := watchRoutes(t, e.Host("router"))
	for _, how := range []string{"the service is removed", "weir stops with on_stop = cleanup"} {
		s := e.boxes[0]
		cleanup := "[daemon]\non_stop = \"cleanup\"\n"
		if s.daemon == nil {
			s.run(t, cleanup+rarely(peering(1, "", ""))+service("web", "drain_timeout = \"0s\"\n"))
		} else {
			s.reload(t, cleanup+rarely(peering(1, "", ""))+service("web", "drain_timeout = \"0s\"\n"))
		}
		e.awaitRoutes(t, bothVIPs, 1)
		h := e.hammerWeb(t)
		h.more(t, 50)
		begin := time.Now()
		if how == "the service is removed" {
			s.reload(t, cleanup+rarely(peering(1, "", ""))+serves("other", []string{"192.0.2.99"}, "80:8080", allWebs, ""))
		} else {
			s.stop(t, syscall.SIGTERM)
			if out := s.daemon.Output(); !strings.Contains(out, "cleaned up") {
				t.Errorf("the log does not tell of the cleanup:\n%s", out)
			}
		}
		stopped := time.Now()
		e.awaitRoutes(t, bothVIPs)
		noRouteFor(t, h, 20, time.Now())
		tries := h.Stop()
		for _, vip := range bothVIPs {
			// Until the test learns of it, the router already answers that there is no route.
			gone := watch.first(t, vip, false, begin)
			told := gone.Add(-routeNotice)
			figure(t, fmt.Sprintf("%s: %s is gone from the router's kernel after", how, vip), gone.Sub(begin))
			rest, torn := apart(tries.To(at(vip, 80)), watch, begin, vip)
			for _, b := range rest {
				if b.Err != nil && (b.Outcome() != unreachable || b.Began.Before(told)) {
					t.Errorf("%s: a request to %s that began %s before its route left: %v", how, vip, gone.Sub(b.Began).Round(time.Millisecond), b.Err)
					break
				}
			}
			t.Logf("%s: %s: %s; under way when the route left: %s; done after %s", how, vip, rest.Report(), torn.Report(), stopped.Sub(begin).Round(time.Millisecond))
		}
	}
}
