package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// churnLength names the environment variable with the length of the churn.
const churnLength = "WEIR_CHURN"

// TestChurn changes everything at once, for 40 seconds or for WEIR_CHURN: Services, endpoints, Nodes, the
// boxes of a fleet, the router, configurations and the API server, and a tenant is hostile. A Service
// that never changes has requests all the time. The invariants are checked all the time, too:
//
//   - Each answer is by an endpoint of the Service that has the address.
//   - No address is in the status of two Services.
//   - The foreign objects in the kernels stay.
//   - Requests are lost and connections cut only while a box is dead or the router restarts, or at the
//     moment when a route moves.
//   - Memory, goroutines and open files of the daemons do not grow (trend.grows). A run of slopeLength judges
//     the slope of a daemon that lives all the time, too (slope.leaks). In a shorter one noise hides it.
//
// WEIR_SEED repeats the actions of a run in their order. All actions are logged with their time. The table
// of results is printed last, also if a signal or the limit of the test ends the run early, and every five
// minutes, to churn.txt in the artifacts, too, or churn-short.txt without WEIR_CHURN.
func TestChurn(t *testing.T) {
	t.Parallel()
	length := 40 * time.Second
	if text := os.Getenv(churnLength); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", churnLength, err)
		}
	}
	c := newChurn(t, seedOf(t), length)
	defer c.endsEarly()()
	defer c.table()
	c.run()
	if err := context.Cause(c.early); err != nil {
		t.Errorf("the run was ended after %s of %s: %v", time.Since(c.began).Round(time.Second), length, err)
	}
	if !t.Failed() {
		c.mustBeAsBefore()
		c.mustNotHaveGrown()
	}
}

// endsEarly sets the context that ends at a signal, or shortly before the limit of the test.
func (c *churn) endsEarly() (stop func()) {
	early, end := context.WithCancelCause(c.t.Context())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	limit := make(<-chan time.Time) // none
	if deadline, ok := c.t.Deadline(); ok {
		limit = time.After(time.Until(deadline) - atTheLimit)
	}
	go func() {
		select {
		case s := <-signals:
			end(fmt.Errorf("signal: %v", s))
		case <-limit:
			end(errors.New("the limit of the test is near"))
		case <-early.Done():
		}
	}()
	c.early = early
	return func() {
		signal.Stop(signals)
		end(nil)
	}
}

// atTheLimit is how long before the limit of the test a run ends: its last requests are judged, and the
// table is printed.
const atTheLimit = time.Minute

// long reports whether the churn has the pauses of hours.
func (c *churn) long() bool { return c.length >= 10*time.Minute }

// run has all actors act, under the load and the checks.
func (c *churn) run() {
	c.began = time.Now()
	pause, beat, warmUp := time.Second, 2*time.Second, 5*time.Second
	if c.long() {
		pause, beat, warmUp = 4*time.Second, 10*time.Second, 3*time.Minute
	}
	loaded, unload := context.WithCancel(c.t.Context())
	var actors, loads, checks sync.WaitGroup
	c.loads(loaded, &loads)
	checked, uncheck := context.WithCancel(c.t.Context())
	checks.Go(func() { c.judge(checked) })
	checks.Go(func() { c.watchBoxes(checked, beat, warmUp) })
	checks.Go(func() { c.keepTable(checked) })

	going, stop := context.WithTimeout(c.early, c.length)
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
	c.save()
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
