package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// What both boxes serve and how: the web, and over TCP and UDP an echo.
var (
	shared     = service("web", "") + echoes(allWebs, "") + serves("datagrams", bothVIPs, "7000/udp", allWebs, "")
	shortDrain = "drain_delay = \"2s\""
)

// TestAnnouncedByTwoBoxes has two boxes serve the same, and the router send to both.
func TestAnnouncedByTwoBoxes(t *testing.T) {
	t.Parallel()
	e := newEdge(t, 2)
	echoAll(t, e.Lab)
	e.run(t, shortDrain, "", shared, bothVIPs...) // without BFD, for which a box that starves for a second is dead
	for i, s := range e.boxes {
		t.Logf("box%d: weir bgp neighbors\n%s", i+1, s.box.Must(t, s.weir, "bgp", "neighbors"))
	}
	t.Run("clients are spread over both", func(t *testing.T) { spreadOverBoxes(t, e) })
	t.Run("one is drained, the other takes over", func(t *testing.T) { drainOne(t, e) })
	t.Run("one dies", func(t *testing.T) { oneDies(t, e) })
}

// spreadOverBoxes visits from many addresses and ports, and counts which box each
// visit went through: by what the web servers saw, and by ipvsadm.
func spreadOverBoxes(t *testing.T, e *edge) {
	const each = 6
	for i, vip := range bothVIPs {
		v6 := i == 1
		before := e.connections(t, vip)
		saw, ofOne := map[string]int{}, map[string]int{}
		for client, m := range []*lab.Machine{e.client1, e.client2} {
			for _, addr := range clientAddrs(client+1, v6) {
				for range each {
					a, err := props.Ask(t.Context(), dialAs(m, addr), at(vip, 80))
					if err != nil {
						t.Fatalf("%s asks %s: %v", addr, vip, err)
					}
					saw[a.Saw]++
				}
			}
		}
		one := clientAddrs(1, v6)[0]
		for range 8 * each {
			a, err := props.Ask(t.Context(), dialAs(e.client1, one), at(vip, 80))
			if err != nil {
				t.Fatalf("%s asks %s: %v", one, vip, err)
			}
			saw[a.Saw]++
			ofOne[a.Saw]++
		}
		boxes := []string{[]string{"10.2.0.1", "fd02::1"}[i], []string{"10.2.0.2", "fd02::2"}[i]}
		eventually(t, 10*time.Second, func() error { // the kernel sums up every two seconds
			after := e.connections(t, vip)
			for n, addr := range boxes {
				if counted := after[n] - before[n]; counted != saw[addr] {
					return fmt.Errorf("%s: box%d had %d connections by ipvsadm, and web servers saw %d of it", vip, n+1, counted, saw[addr])
				}
			}
			return nil
		})
		for n, addr := range boxes {
			if saw[addr] < 24 || ofOne[addr] == 0 {
				t.Errorf("%s: %d of 144 connections went through box%d, and of %d of one client %d", vip, saw[addr], n+1, 8*each, ofOne[addr])
			}
		}
		t.Logf("%s: 16 client addresses made 96 connections, one of them 48 more, by ipvsadm and by web servers: %v (of the one: %v)", vip, saw, ofOne)
	}
}

// connections are how many each box's kernel has passed on for a VIP's port 80.
func (e *edge) connections(t testing.TB, vip string) (out []int) {
	t.Helper()
	for _, s := range e.boxes {
		n := -1
		for line := range strings.Lines(s.box.Must(t, "ipvsadm", "-Ln", "--stats", "--exact")) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "TCP" && f[1] == at(vip, 80) {
				if _, err := fmt.Sscan(f[2], &n); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n < 0 {
			t.Fatalf("%s has no virtual server for %s", s.box.Name(), vip)
		}
		out = append(out, n)
	}
	return out
}

// drainOne has box1 drain, and serve again.
//
// Where the router changes its mind about a connection, that is lost: the other box
// knows nothing of it, and no speaker of BGP can help that. What began before and
// ended after the router's change is therefore counted apart.
func drainOne(t *testing.T, e *edge) {
	e.connected(t, false, e.all()...)
	watch := watchRoutes(t, e.Host("router"))
	h := startHammer(t, e.client1, 3*time.Second, at(vip4, 80), at(vip6, 80))
	h.more(t, 100)
	begin := time.Now()
	one := e.boxes[0]
	one.box.Must(t, one.weir, "drain", "--all")
	e.awaitRoutes(t, bothVIPs, 2)
	asked := time.Since(begin)
	// A connection that was torn by the router's change is left on the box until IPVS
	// forgets it: exit status 4.
	if out := one.call(t, "drain", "--all", "--wait", "4s"); out.Code != 0 && out.Code != 4 {
		t.Errorf("weir drain --all --wait: %+v", out)
	}
	h.more(t, 100)
	t.Logf("box1, drained:\n%s", one.box.Must(t, one.weir, "bgp", "routes"))
	one.stop(t, syscall.SIGTERM)
	h.more(t, 50)
	one.start(t)
	h.more(t, 50)
	if err := e.routed(t.Context(), vip4, 2); err != nil {
		t.Errorf("after a restart a drained box is no more: %v", err)
	}
	back := time.Now()
	one.box.Must(t, one.weir, "undrain", "--all")
	e.awaitRoutes(t, bothVIPs, 1, 2)
	returned := time.Since(back)
	h.more(t, 100)
	figure(t, "drained box: router uses the other alone after (weir drain --all)", asked)
	figure(t, "undrained box: router uses it again after", returned)
	rest, torn := apart(h.Stop(), watch, begin, bothVIPs...)
	mustAllBeAnswered(t, "a drain, a stop, a start and an undrain of one of two boxes", rest, begin, time.Time{})
	figure(t, "requests that were under way when the router changed its mind, for a drain and an undrain", torn.Report())
}

// routerBlink is how long a router may take over a change of a route: BIRD takes an
// IPv6 route with several next hops away before it lays the new one.
const routerBlink = 30 * time.Millisecond

// apart sets apart the attempts that were under way at a change of the router's
// routes.
func apart(tries traffic.Tries, watch *routeWatch, since time.Time, vips ...string) (rest, torn traffic.Tries) {
	var changes []routeEvent
	for _, vip := range vips {
		changes = append(changes, watch.of(vip, since)...)
	}
next:
	for _, b := range tries {
		for _, c := range changes {
			if b.Began.Before(c.at.Add(routerBlink)) && b.Ended.After(c.at.Add(-routerBlink)) {
				torn = append(torn, b)
				continue next
			}
		}
		rest = append(rest, b)
	}
	return rest, torn
}

// oneDies takes box1 away in three ways, and measures what clients miss.
func oneDies(t *testing.T, e *edge) {
	router := e.Host("router")
	for i, s := range e.boxes {
		s.reload(t, peering(i+1, shortDrain, withBFD)+shared)
	}
	pulled := e.outage(t, true, func() {
		must(t, router.Unplug(linkOf(1)))
	})
	pulled.tell(t, "cable pulled, the router's port is down", "at once") // perhaps no client has lost a request
	must(t, router.Plug(linkOf(1)))
	for _, cut := range []struct{ peer, how, name, predicted, says string }{
		{withBFD, "bfd on;", "BFD 300 ms x 3", "0.6 to 0.9 s", "BFD"},
		{`hold_time = "4s"`, "bfd off;", "hold time 4 s", "3 to 4 s", "Hold timer"},
	} {
		o := e.powerCut(t, cut.peer, cut.how)
		o.tell(t, "power cut, "+cut.name, cut.predicted)
		o.missed(t)
		if !strings.Contains(o.said, cut.says) {
			t.Errorf("power cut, %s: the router says that the session ended by %q, want %q", cut.name, o.said, cut.says)
		}
	}
}

// powerCut takes box1's power and gives it back afterwards.
func (e *edge) powerCut(t *testing.T, peer, how string) outage {
	one := e.boxes[0]
	must(t, e.router.Reconfigure(t.Context(), birdOf(len(e.boxes), how)))
	for i, s := range e.boxes {
		s.reload(t, peering(i+1, shortDrain, peer)+shared)
	}
	if peer != withBFD {
		e.holds(t, 4)
	}
	one.box.Must(t, "sync")
	o := e.outage(t, peer == withBFD, one.box.PowerCut)
	_, _ = one.daemon.Wait(within(t, 30*time.Second)) // its end was not seen
	must(t, one.box.Boot(t.Context()))
	one.start(t)
	e.awaitRoutes(t, bothVIPs, e.all()...)
	return o
}

// holds waits until both ends of the boxes' sessions have agreed on a hold time: one of before would end later.
func (e *edge) holds(t *testing.T, seconds float64) {
	t.Helper()
	for _, s := range e.boxes {
		eventually(t, routeWait, func() error {
			var doc struct {
				Neighbors []struct {
					State string
					Hold  float64 `json:"hold_seconds"`
				}
			}
			s.weirJSON(t, &doc, "bgp", "neighbors")
			if n := doc.Neighbors; len(n) != 1 || n[0].State != "Established" || n[0].Hold != seconds {
				return fmt.Errorf("weir says on %s: %+v", s.box.Name(), n)
			}
			return nil
		})
	}
}

// outage is how long clients were without service.
type outage struct {
	connects  time.Duration // until every new connection was answered again
	datagrams time.Duration // for who goes on with the same port
	route     time.Duration // until the router's kernel had no route to the box
	said      string        // by the router, of the end of its session
	failed    int           // new connections
	of        int
}

// patienceInOutage is how long a client waits in an outage before it tries again
// with a connection of its own: shorter than the measured outage, longer than an
// answer takes on a busy machine.
const patienceInOutage = 250 * time.Millisecond

// outage takes box1 away while clients make new connections, and others send datagrams
// from the same ports repeatedly. If sessions have BFD, it is up on all of them by then.
func (e *edge) outage(t *testing.T, bfd bool, away func()) (o outage) {
	t.Helper()
	e.connected(t, false, e.all()...)
	e.awaitRoutes(t, bothVIPs, e.all()...)
	h := startHammer(t, e.client1, patienceInOutage, at(vip4, 80), at(vip6, 80))
	var flows []*flow
	for i := range 8 { // of their ports some go through either box
		flows = append(flows, startFlow(t, e.client2, 21000+i, at(bothVIPs[i%2], 7000)))
	}
	h.more(t, 100)
	e.connected(t, bfd, e.all()...)
	begin := time.Now()
	away()
	o.route = e.awaitRoutes(t, bothVIPs, 2)
	n, err := e.router.Neighbour(t.Context(), boxAddr(1))
	must(t, err)
	o.said = n.Error
	h.more(t, 200)
	tries := h.Stop()
	o.connects, o.failed = interruption(tries, begin)
	o.of = len(tries)
	for _, f := range flows {
		f.answered(t, 3)
		_, gap := f.Stop()
		o.datagrams = max(o.datagrams, gap)
	}
	return o
}

// interruption is the time from an instant until service was whole again: until the
// last failed attempt was over before a hundred were answered in a row.
func interruption(tries traffic.Tries, since time.Time) (d time.Duration, failed int) {
	answered := 0
	for _, b := range tries {
		switch {
		case b.Ended.Before(since):
		case b.Err == nil:
			if answered++; answered >= 100 {
				return d, failed
			}
		default:
			answered, failed = 0, failed+1
			d = b.Ended.Sub(since)
		}
	}
	return d, failed
}

func (o outage) tell(t testing.TB, what, predicted string) {
	t.Helper()
	figure(t, what+": clients without service (predicted: "+predicted+")", fmt.Sprintf(
		"new connections %s (%d of %d failed), UDP flows %s; routes gone after %s", o.connects.Round(time.Millisecond),
		o.failed, o.of, o.datagrams.Round(time.Millisecond), o.route.Round(time.Millisecond)))
}

// missed fails if no client noticed the death of the box.
func (o outage) missed(t testing.TB) {
	t.Helper()
	if o.failed == 0 {
		t.Error("nobody missed the box that died: the test shows nothing")
	}
}
