package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/internal/traffic"
)

// TestChurn changes everything at once, for a minute or for WEIR_CHURN: Services, endpoints, Nodes, the
// boxes of a fleet, the router, configurations and the API server, and a tenant is hostile. A Service
// that never changes has requests all the time. The invariants are checked all the time, too:
//
//   - Each answer is by an endpoint of the Service that has the address.
//   - No address is in the status of two Services.
//   - The foreign objects in the kernels stay.
//   - Requests are lost and connections cut only while a box is dead or the router restarts, or at the
//     moment when a route moves.
//   - Memory, goroutines and open files of the daemons do not grow (trend.grows).
//
// WEIR_SEED repeats the actions of a run in their order. All actions are logged with their time.
func TestChurn(t *testing.T) {
	t.Parallel()
	length := time.Minute
	if text := os.Getenv("WEIR_CHURN"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("WEIR_CHURN: %v", err)
		}
	}
	c := newChurn(t, seedOf(t), length)
	c.run()
	if t.Failed() {
		return
	}
	c.mustBeAsBefore()
	c.table()
}

// run has all actors act, under the load and the checks.
func (c *churn) run() {
	c.began = time.Now()
	long := c.length >= 10*time.Minute
	pause, beat, warmUp := time.Second, 2*time.Second, 5*time.Second
	if long {
		pause, beat, warmUp = 4*time.Second, 10*time.Second, 3*time.Minute
	}
	loaded, unload := context.WithCancel(c.t.Context())
	var actors, loads, checks sync.WaitGroup
	c.loads(loaded, &loads)
	checked, uncheck := context.WithCancel(c.t.Context())
	checks.Go(func() { c.judge(checked) })
	checks.Go(func() { c.watchBoxes(checked, beat, warmUp) })

	going, stop := context.WithTimeout(c.t.Context(), c.length)
	defer stop()
	for _, a := range []*actor{
		c.boxActor(5 * pause), c.routerActor(25 * pause), c.apiActor(6 * pause), c.reloadActor(3 * pause), c.nodeActor(pause),
		c.shopActor("shops", pause, 0, shops/2), c.shopActor("more shops", pause, shops/2, shops), c.hostileActor(2 * pause),
	} {
		actors.Go(func() { c.act(going, a) })
	}
	actors.Wait()
	unload()
	loads.Wait()
	uncheck()
	checks.Wait()
}

// mustBeAsBefore removes what the actors made, and waits until the kernels have the objects of the
// victim only.
func (c *churn) mustBeAsBefore() {
	ctx := within(c.t, 3*time.Minute)
	for _, namespace := range []string{"shop", "tenant"} {
		must(c.t, c.put(ctx, "DELETE", servicesIn(namespace), nil))
		must(c.t, c.put(ctx, "DELETE", slicesIn(namespace), nil))
	}
	for i, b := range c.boxes {
		if out, err := c.reloaded(ctx, b, c.config(i, false)); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
		must(c.t, until(ctx, b.box.Name()+" is as before", func() error {
			if diff := cmp.Diff(b.initial, c.heldBy(ctx, b)); diff != "" {
				return fmt.Errorf("-before +after:\n%s", diff)
			}
			return nil
		}))
	}
}

// table prints the results, and fails the test if a daemon has grown.
func (c *churn) table() {
	t, y := c.t, &c.tally
	row := func(what, format string, args ...any) { figure(t, "churn: "+what, fmt.Sprintf(format, args...)) }
	row("length, seed", "%s, %d", time.Since(c.began).Round(time.Second), c.seed)
	for _, kind := range slices.Sorted(maps.Keys(y.actions)) {
		var sum time.Duration
		for _, d := range y.actions[kind] {
			sum += d
		}
		row(kind, "%d times, %s each", len(y.actions[kind]), traffic.Round(sum/time.Duration(len(y.actions[kind]))))
	}
	for _, load := range slices.Sorted(maps.Keys(y.answered)) {
		row(load+" answered", "%d", y.answered[load])
	}
	row("answers checked for Service and endpoint, wrong ones", "%d, 0", y.checked)
	row("comparisons of the foreign objects, changed ones", "%d, 0", y.foreign)
	row("requests lost and connections cut without a reason", "%d, %d", y.lost[unexcused], y.cut[unexcused])
	for _, reason := range []string{boxDead, routerRestart, routeMoved} {
		n, long := c.windows.total(reason)
		row("at "+reason, "%d lost, %d cut in %d windows of %s together", y.lost[reason], y.cut[reason], n, traffic.Round(long))
	}
	for _, b := range c.boxes {
		for _, name := range footprint {
			unit, scale := "", 1.0
			if name == footprint[0] {
				unit, scale = " MiB", 1<<20
			}
			now := trendOf(b.lives[name])
			row(b.box.Name()+" "+name, "%.0f to %.0f%s, slope %+.1f%s/h in %d samples of %d lives, fit %.2f",
				now.min/scale, now.max/scale, unit, now.perHour/scale, unit, now.samples, len(b.lives[name]), now.fit)
			if now.grows(footprintAllowance[name]) {
				t.Errorf("%s: %s grows: %+v", b.box.Name(), name, now)
			}
		}
	}
}
