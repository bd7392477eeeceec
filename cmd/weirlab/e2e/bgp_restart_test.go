package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// watch asks routers for their paths over and over, until end.
type watch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	asked  []*atomic.Int32 // by router
}

// watchBeat is the least time between two questions. A router lacks a route that it has lost for seconds: until the
// next session.
const watchBeat = 200 * time.Millisecond

// watchPaths begins to ask, and returns when each router has answered for the first time. look is
// given the answers of each, in a goroutine of its own.
func watchPaths(t testing.TB, routers []*router, look func(r *router, paths []lab.Path, err error)) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{cancel: cancel}
	for _, r := range routers {
		asked := &atomic.Int32{}
		w.asked = append(w.asked, asked)
		w.wg.Go(func() {
			for last := false; !last; {
				last = ctx.Err() != nil // of a pause: what has happened until then is seen
				began := time.Now()
				paths, err := r.Paths(context.WithoutCancel(ctx))
				look(r, paths, err)
				asked.Add(1)
				_ = traffic.Pause(ctx, max(watchBeat, traffic.Rest(time.Since(began)))) // the loop sees the end of ctx
			}
		})
	}
	t.Cleanup(func() { w.end() })
	for i, asked := range w.asked {
		eventually(t, 30*time.Second, func() error {
			if asked.Load() == 0 {
				return fmt.Errorf("%s says nothing of its paths", routers[i].name)
			}
			return nil
		})
	}
	return w
}

func (w *watch) end() {
	w.cancel()
	w.wg.Wait()
}

// complete ends a watch when each router was asked often enough to show something. An answer takes FRR more than a second
// on a busy machine.
func (w *watch) complete(t testing.TB) {
	t.Helper()
	for i, n := range w.asked {
		eventually(t, 30*time.Second, func() error {
			if got := n.Load(); got < 5 {
				return fmt.Errorf("router %d was asked %d times only", i+1, got)
			}
			return nil
		})
	}
	w.end()
}

// routesStay watches routers, until stay is called: no answer may be without one of these prefixes.
func routesStay(t testing.TB, routers []*router, want ...string) (stay func(testing.TB)) {
	var mu sync.Mutex
	var missing []string
	w := watchPaths(t, routers, func(r *router, paths []lab.Path, err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, prefix := range want {
			if err != nil || !slices.ContainsFunc(paths, func(p lab.Path) bool { return p.Prefix.String() == prefix }) {
				missing = append(missing, fmt.Sprintf("%s had no route to %s at %s: %v", r.name, prefix, time.Now().Format("15:04:05.000"), err))
			}
		}
	})
	return func(t testing.TB) {
		t.Helper()
		if w.complete(t); len(missing) > 0 {
			t.Errorf("routes were not there %d times, the first: %s", len(missing), missing[0])
		}
	}
}

// restarts: however weir ends and begins again, the routers keep its routes, and no request fails.
func (s *bgpSite) restarts(t *testing.T) {
	toml := speaker() + s.externals() + service("web", "")
	s.peerWith(t, toml)
	have(t, s.routers, hosts(vip4, vip6)...)
	s.forwarding(t)
	for _, how := range []struct {
		name string
		sig  syscall.Signal
	}{{"kill -9", syscall.SIGKILL}, {"stop and start", syscall.SIGTERM}} {
		t.Run(how.name, func(t *testing.T) {
			s.established(t, s.routers...)
			streams := s.streams(t)
			stay := routesStay(t, s.routers, hosts(vip4, vip6)...)
			for _, st := range streams {
				st.more(t, 5)
			}
			begin := time.Now()
			s.stop(t, how.sig)
			for _, r := range s.routers {
				becomes(t, func() error {
					n, err := r.boxSession(t.Context())
					if err == nil && n.Established() {
						err = fmt.Errorf("%s does not see that weir has ended", r.name)
					}
					return err
				})
			}
			figure(t, how.name+": all routers have noticed after", time.Since(begin))
			for _, st := range streams {
				st.more(t, 20) // weir is stopped, the kernel forwards
			}
			begin = time.Now()
			s.start(t)
			figure(t, "  weir is ready after", time.Since(begin))
			s.established(t, s.routers...)
			figure(t, "  all sessions are back after", time.Since(begin))
			for _, r := range s.routers {
				becomes(t, func() error { return r.fresh(t.Context(), hosts(vip4, vip6)) })
			}
			for _, st := range streams {
				st.more(t, 20)
			}
			stay(t)
			mustHaveLostNothing(t, streams...)
		})
	}
	// A route that is not announced any more goes when weir has come back, not before.
	s.stop(t, syscall.SIGKILL)
	s.configure(t, speaker()+s.externals()+"[[service]]\nname = \"web\"\nvips = [\""+vip4+"\"]\nports = [\"80:8080\"]\nbackends = [\"10.2.0.11\"]\n")
	have(t, s.routers, hosts(vip4, vip6)...)
	s.start(t)
	have(t, s.routers, hosts(vip4)...)
}

// fresh is nil when none of these routes is a leftover of the session before, as far as the router shows.
func (r *router) fresh(ctx context.Context, want []string) error {
	paths, err := r.Paths(ctx)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if p.Stale {
			return fmt.Errorf("%s: the path to %v is stale", r.name, p.Prefix)
		}
	}
	if len(paths) != len(want) {
		return fmt.Errorf("%s has %d paths, want %d", r.name, len(paths), len(want))
	}
	return nil
}

// comesBack: a router that ends and begins again has its routes within seconds; the other routers do not notice. It is
// FRR in make test, and each of them in make soak.
func (s *bgpSite) comesBack(t *testing.T) {
	s.peerWith(t, speaker(`reannounce_delay = "1s"`)+s.externals()+service("web", ""))
	have(t, s.routers, hosts(vip4, vip6)...)
	s.forwarding(t)
	for i, r := range s.routers {
		if r.name != "frr" && !soaking() {
			continue // weir has the same part for all three
		}
		var others []*router
		for j, o := range s.routers {
			if i != j {
				others = append(others, o)
			}
		}
		through := s.client1 // client1 is behind BIRD, client2 behind FRR
		if r.name == "bird" {
			through = s.client2
		}
		stream := slowStream(t, through)
		stay := routesStay(t, others, hosts(vip4, vip6)...)
		flaps := s.neighbor(t, r.name).Flaps
		must(t, r.Kill(within(t, time.Minute)))
		becomes(t, func() error {
			if n := s.neighbor(t, r.name); n.State == "Established" || n.Down == "" {
				return fmt.Errorf("weir says of %s, which was killed: %+v", r.name, n)
			}
			return nil
		})
		t.Logf("weir says of %s: %s", r.name, s.neighbor(t, r.name).Down)
		must(t, r.Start(within(t, time.Minute)))
		begin := time.Now()
		have(t, []*router{r}, hosts(vip4, vip6)...)
		figure(t, r.name+" was killed: it has all routes again after", time.Since(begin))
		if n := s.neighbor(t, r.name); n.Flaps != flaps+1 {
			t.Errorf("weir counts %d flaps of %s, want %d", n.Flaps, r.name, flaps+1)
		}
		stream.more(t, 5)
		mustHaveLostNothing(t, stream)
		stay(t)
	}
	s.forwarding(t)
	mustGet(t, s.client1, at(vip4, 80), 3)
	mustGet(t, s.client2, at(vip6, 80), 3)
}
