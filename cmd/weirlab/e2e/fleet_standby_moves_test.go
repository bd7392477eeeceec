package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// preferred watches which box each router prefers for some VIPs, until must is called: it was these
// neighbours, in turn.
func (p *pair) preferred(t *testing.T, vips ...string) (must func(*testing.T, ...string)) {
	var mu sync.Mutex
	saw := map[string][]string{} // by router and VIP, each change
	w := watchPaths(t, p.routers, func(r *router, paths []lab.Path, err error) {
		best := map[string]string{}
		for _, path := range paths {
			if path.Best {
				best[path.Prefix.String()] = path.From.String()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, vip := range vips {
			now := best[hosts(vip)[0]]
			if err != nil {
				now = err.Error()
			}
			key := r.name + " " + vip
			if was := saw[key]; len(was) == 0 || was[len(was)-1] != now {
				saw[key] = append(was, now)
			}
		}
	})
	return func(t *testing.T, want ...string) {
		t.Helper()
		w.complete(t)
		for _, key := range slices.Sorted(maps.Keys(saw)) {
			if got := saw[key]; !slices.Equal(got, want) {
				t.Errorf("%s: preferred were %v, in turn, want %v", key, got, want)
			}
		}
	}
}

// moves is what routers do when a VIP has another owner after a command of an operator, when the owner's
// daemon is killed, and when it dies.
func (p *pair) moves(t *testing.T) {
	p.peer(t, false, byMED.standby, "")
	owners := p.agreed(t, byMED, nil)
	var ofOne []string
	for vip, box := range owners {
		if box == 0 {
			ofOne = append(ofOne, vip)
		}
	}
	one, two := p.boxes[0], p.addr(1, false)

	t.Run("drained", func(t *testing.T) {
		preferred := p.preferred(t, ofOne...)
		begin := time.Now()
		one.box.Must(t, one.weir, "drain", "--all")
		for _, r := range p.routers {
			becomes(t, func() error { return r.prefers(t.Context(), two, ofOne) })
		}
		figure(t, "weir drain --all: three routers prefer the other box after", time.Since(begin))
		p.allPrefer(t, 1)
		figure(t, "  and have no route of this one, drain_delay = 2s, after", time.Since(begin))
		begin = time.Now()
		one.box.Must(t, one.weir, "undrain", "--all")
		p.agreed(t, byMED, owners)
		figure(t, "weir undrain --all: the routers prefer it again, preempt_delay = 1s, after", time.Since(begin))
		preferred(t, p.addr(0, false), two, p.addr(0, false))
	})

	t.Run("its daemon is killed, and begins again", func(t *testing.T) {
		preferred := p.preferred(t, ofOne...)
		one.stop(t, syscall.SIGKILL)
		for _, r := range p.routers {
			becomes(t, func() error { return r.hasSessions(t.Context(), 1) })
		}
		begin := time.Now()
		one.start(t)
		for _, r := range p.routers {
			becomes(t, func() error { return r.hasSessions(t.Context(), 2) })
		}
		p.agreed(t, byMED, owners)
		figure(t, "the owner's daemon is killed: started again, all routers have fresh routes after", time.Since(begin))
		preferred(t, p.addr(0, false))
	})

	t.Run("it loses its power, without BFD", func(t *testing.T) {
		one.box.Must(t, "sync")
		one.box.PowerCut()
		begin := time.Now()
		// GoBGP goes on to prefer what it keeps for graceful restart: see package bgp.
		for _, r := range p.routers[:2] {
			becomes(t, func() error { return r.prefers(t.Context(), two, pairVIPs) })
			// sessionPatience is shorter than the restart time of two minutes.
			figure(t, "power cut, hold_time = 6s, no BFD: "+r.name+" prefers the other box after", time.Since(begin))
		}
		for _, vip := range pairVIPs {
			p.leads(t, vip, 1)
		}
		mustGet(t, p.client1, at(vip4, 80), 2)
		mustGet(t, p.client2, at(vip6, 80), 2)
	})
}

// prefers is nil when the router prefers a neighbour for all these VIPs.
func (r *router) prefers(ctx context.Context, neighbour string, vips []string) error {
	paths, err := r.Paths(ctx)
	if err != nil {
		return err
	}
	best := map[string]string{}
	var all strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&all, "\n%+v", path)
		if path.Best {
			best[path.Prefix.String()] = path.From.String()
		}
	}
	for _, vip := range vips {
		if best[hosts(vip)[0]] != neighbour {
			return fmt.Errorf("%s prefers %q for %s, want %s: %s", r.name, best[hosts(vip)[0]], vip, neighbour, all.String())
		}
	}
	return nil
}
