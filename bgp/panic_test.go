package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/server"

	"weir/bgp/advertise"
)

// A panic of the code that drives GoBGP ends neither the process nor a route. One of a poll does not even end the session. After
// one of a change, which GoBGP may have half of, routers with graceful restart keep the routes.
func TestRoutesOutliveAPanic(t *testing.T) {
	r, addr := newGracefulRouter(t)
	s := newSpeaker(quietLog())
	e := newEngine(quietLog(), s.sessions)
	var inPoll, inChange atomic.Bool
	addresses := e.next.interfaces
	e.next.interfaces = func() [][]netip.Addr {
		if inPoll.CompareAndSwap(true, false) {
			panic("failpoint")
		}
		if inChange.CompareAndSwap(true, false) {
			e.table.has = nil // the next change panics when GoBGP has it
		}
		return addresses()
	}
	go s.run(e)
	b := &box{Speaker: s, t: t, addr: addr, cfg: Config{ASN: boxASN, RouterID: addr, Peers: []Peer{r.peer("r", addr)}}}
	t.Cleanup(func() { _ = b.Close() })
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
	b.configure(func(c *Config) { c.GracefulRestart = 120 * time.Second })
	line := "%s/32 med 0 origin 0 path [65001] via " + addr.String()
	r.has(fmt.Sprintf(line, "192.0.2.1"))
	eventually(t, func() string {
		if s := b.status("r"); !s.Restart.Kept {
			return fmt.Sprintf("%+v", s.Restart)
		}
		return ""
	})

	missed := make(chan string, 1)
	watching, stop := context.WithCancel(t.Context())
	go func() {
		defer close(missed)
		for watching.Err() == nil {
			if routes := strings.Join(r.routes(), "\n"); !strings.Contains(routes, "192.0.2.1/32") {
				missed <- routes
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	panics := func(with string) {
		eventually(t, func() string {
			if p := b.Status().Problem; p != "panic: "+with {
				return fmt.Sprintf("the problem is %q", p)
			}
			return ""
		})
		eventually(t, func() string { return b.Status().Problem })
		b.established("r")
	}
	since := b.status("r").Since
	inPoll.Store(true)
	panics("failpoint")
	if now := b.status("r").Since; now != since {
		t.Errorf("after a panic of a poll the session is of %v, and was of %v", now, since)
	}
	inChange.Store(true)
	eventually(t, func() string {
		if inChange.Load() {
			return "nothing polls"
		}
		return ""
	})
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.2/32"): to("r")})
	panics("assignment to entry in nil map")
	if now := b.status("r").Since; now == since {
		t.Error("after a panic of a change the session is the same")
	}
	r.has(fmt.Sprintf(line, "192.0.2.1"), fmt.Sprintf(line, "192.0.2.2"))
	stop()
	if routes, lost := <-missed; lost {
		t.Errorf("the router lost the route for a moment, it had:\n%s", routes)
	}
}

// GoBGP is started again if it may have half of a change when the code that drives it panics: a nil map panics after the call.
func TestAPanicOfAChangeRestartsGoBGP(t *testing.T) {
	parallel(t)
	route := func(s string) map[netip.Prefix][]advertise.Path {
		return map[netip.Prefix][]advertise.Path{prefix(s): to("r")}
	}
	for name, test := range map[string]struct {
		routes map[netip.Prefix][]advertise.Path // at the beginning
		damage func(e *engine)
		job    func(c Config) job
		stays  bool
	}{
		"apply": {
			routes: route("192.0.2.1/32"), // of the same class
			damage: func(e *engine) { e.table.has = nil },
			job:    func(Config) job { return job{changes: route("192.0.2.2/32")} },
		},
		"configure": {
			damage: func(e *engine) { e.known.missing = nil },
			job: func(c Config) job {
				c.Peers = append(c.Peers, Peer{Name: "other", Address: loopback(), ASN: routerASN})
				return job{config: &c}
			},
		},
		"recreateLost": {
			damage: func(e *engine) {
				e.known.missing = nil
				for _, s := range e.sessions.sessions {
					s.recreate = true
				}
			},
			job: func(Config) job { return job{look: true} },
		},
		"dropUnusedClasses": {
			routes: route("192.0.2.1/32"),
			damage: func(e *engine) { e.table.version, e.table.policies = e.table.version+1, nil },
			job:    func(Config) job { return job{look: true} },
		},
		"poll": {
			damage: func(e *engine) { e.next.interfaces = func() [][]netip.Addr { panic("failpoint") } },
			job:    func(Config) job { return job{look: true} },
			stays:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			e := newEngine(quietLog(), newSpeaker(quietLog()).sessions)
			addr := loopback()
			c := Config{ASN: boxASN, RouterID: addr, Peers: []Peer{{Name: "r", Address: loopback(), ASN: routerASN, Passive: true}}}
			must(t, e.do(job{config: &c, changes: test.routes}))
			defer func() { must(t, e.stop(false)) }()
			test.damage(e)
			var p *panicError
			if err := e.do(test.job(c)); !errors.As(err, &p) {
				t.Fatalf("the error is %v, want a panic", err)
			}
			if e.restart == test.stays {
				t.Errorf("GoBGP is started again: %t", e.restart)
			}
		})
	}
}

// Routes are withdrawn at once while polls pause, and Status shows the panic.
func TestRoutesChangeWhilePollsPause(t *testing.T) {
	parallel(t)
	var fails atomic.Bool
	s := newSpeaker(quietLog())
	e := newEngine(quietLog(), s.sessions)
	e.next.interfaces = func() [][]netip.Addr {
		if fails.Load() {
			e.panics.polls = pause{9, time.Now()} // the last of many panics
			panic("failpoint")
		}
		return nil
	}
	go s.run(e)
	t.Cleanup(func() { _ = s.Close() })
	must(t, s.Configure(t.Context(), Config{ASN: boxASN, RouterID: loopback(), Peers: []Peer{{Name: "r", Address: loopback(), ASN: routerASN}}}))
	route := prefix("192.0.2.1/32")
	must(t, s.Set(map[netip.Prefix][]advertise.Path{route: to("r")}))
	must(t, s.Flush(t.Context()))
	fails.Store(true)
	eventually(t, func() string {
		if s.Status().Problem == "" {
			return "nothing has panicked"
		}
		return ""
	})
	must(t, s.Set(map[netip.Prefix][]advertise.Path{route: nil}))
	ctx, cancel := context.WithTimeout(t.Context(), maxPanicPause/2)
	defer cancel()
	must(t, s.Flush(ctx))
	if st := s.Status(); len(st.Routes) > 0 || st.Problem != "panic: failpoint" {
		t.Errorf("%+v", st)
	}
}

// A panic of the code around a job loses no order.
func TestAPanicBesideAJobLosesNoOrder(t *testing.T) {
	parallel(t)
	s := newSpeaker(quietLog())
	e := newEngine(quietLog(), s.sessions)
	e.limiter = nil                        // the report of an error panics
	s.orders.config = &Config{ASN: boxASN} // without the router ID GoBGP does not start
	s.orders.dirty[prefix("192.0.2.1/32")] = struct{}{}
	s.round(e, true)
	if len(s.orders.dirty) != 1 || s.orders.config == nil || !strings.Contains(s.Status().Problem, "panic") || !s.working.IsZero() {
		t.Errorf("after the panic: %+v, %+v", s.orders, s.Status())
	}
	s.round(e, true) // pauses
	if s.orders.config == nil {
		t.Error("a round has run in the pause")
	}
}

func TestAPanicWhileGoBGPStopsIsAnError(t *testing.T) {
	t.Parallel()
	e := newEngine(quietLog(), newSpeaker(quietLog()).sessions)
	e.gobgp = &server.BgpServer{} // without a log
	var p *panicError
	if err := e.stop(true); !errors.As(err, &p) {
		t.Errorf("the error is %v, want a panic", err)
	}
}

func TestPausesAfterPanicsGrow(t *testing.T) {
	t.Parallel()
	var p pause
	now := time.Now()
	var got []time.Duration
	for range 8 {
		got = append(got, p.begin(now))
		now = p.until
	}
	now = now.Add(2 * maxPanicPause)
	got = append(got, p.begin(now))
	want := "[1s 2s 4s 8s 16s 32s 1m0s 1m0s 1s]"
	if fmt.Sprint(got) != want {
		t.Errorf("pauses %v, want %s", got, want)
	}
}
