package e2e

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// The actors of the churn: each makes one change after another, and waits for the effect of each.

// actionTime limits one action, with the boot of a box.
const actionTime = 4 * time.Minute

// actor makes changes in a random order, with a pause between two of them.
type actor struct {
	name   string
	pause  time.Duration
	random *rand.Rand
	do     map[string]func(context.Context) error
}

// newActor returns an actor with random numbers of its own.
func (c *churn) newActor(name string, pause time.Duration) *actor {
	h := fnv.New64()
	_, _ = h.Write([]byte(name)) // never fails
	return &actor{name: name, pause: pause, random: rand.New(rand.NewPCG(c.seed, h.Sum64())), do: map[string]func(context.Context) error{}}
}

// act has an actor work until going ends, and until it has done everything at least once. If the run is
// ended early, it leaves its action.
func (c *churn) act(going context.Context, a *actor) {
	d := &deck{random: a.random}
	for kind := range a.do {
		d.kinds = append(d.kinds, kind)
	}
	slices.Sort(d.kinds)
	for n := 0; (n < len(d.kinds) || going.Err() == nil) && !c.hasFailed() && c.early.Err() == nil; n++ {
		kind := d.draw()
		c.note("%s: %s begins", a.name, kind)
		began := time.Now()
		ctx, cancel := context.WithTimeout(c.early, actionTime)
		err := a.do[kind](ctx)
		cancel()
		if c.early.Err() != nil {
			return
		}
		if err != nil {
			c.fault("%s: %s: %v", a.name, kind, err)
			return
		}
		took := time.Since(began)
		c.note("%s: %s done in %s", a.name, kind, traffic.Round(took))
		c.tally.mu.Lock()
		c.tally.actions[kind] = append(c.tally.actions[kind], took)
		c.tally.mu.Unlock()
		_ = traffic.Pause(going, a.pause/2+time.Duration(a.random.Int64N(int64(a.pause)))) // its end is that of the loop
	}
}

// note logs with the time since the begin.
func (c *churn) note(format string, args ...any) {
	c.t.Helper()
	c.t.Logf("%s: %s", c.now(), fmt.Sprintf(format, args...))
}

// boxActor cuts the power of boxes and ends daemons, one at a time. In a long run all are box1's: the daemon of box2
// lives as long as the run, for slopeOf. In a short one each box has a half.
func (c *churn) boxActor(pause time.Duration) *actor {
	a := c.newActor("boxes", pause)
	chosen := func() *churnBox {
		if c.long() || time.Since(c.began) < c.length/2 {
			return c.boxes[0]
		}
		return c.boxes[1]
	}
	a.do["power cut"] = func(ctx context.Context) error { return c.powerCut(ctx, chosen()) }
	a.do["daemon kill -9"] = func(ctx context.Context) error {
		return c.restarted(ctx, chosen(), syscall.SIGKILL, time.Duration(a.random.Int64N(int64(2*time.Second))))
	}
	a.do["member stop and start"] = func(ctx context.Context) error {
		return c.restarted(ctx, chosen(), syscall.SIGTERM, time.Duration(a.random.Int64N(int64(4*time.Second))))
	}
	a.do["drain and undrain"] = func(ctx context.Context) error {
		return c.drained(ctx, a.random.IntN(2), time.Duration(a.random.Int64N(int64(3*time.Second))))
	}
	return a
}

func (c *churn) powerCut(ctx context.Context, b *churnBox) error {
	if err := c.bothServe(ctx); err != nil {
		return err
	}
	b.up.Lock()
	defer b.up.Unlock()
	c.note("%s loses its power", b.box.Name())
	synced := c.stale.open(b.box.Name(), time.Now())
	dead := c.windows.open(boxDead, time.Now())
	b.box.PowerCut()
	err := c.routed(ctx, "the router has no route to a dead box", func(now []int) bool { return len(now) == 0 || len(now) == 1 && c.boxes[now[0]] != b })
	dead()
	if err != nil {
		return err
	}
	if err := b.box.Boot(ctx); err != nil {
		return err
	}
	if err := c.switchedOn(ctx, b); err != nil {
		return err
	}
	synced()
	return c.bothServe(ctx)
}

// restarted ends a daemon, and starts it after a pause. Its kernel serves, and routers keep its routes.
func (c *churn) restarted(ctx context.Context, b *churnBox, sig syscall.Signal, pause time.Duration) error {
	if err := c.bothServe(ctx); err != nil {
		return err
	}
	b.up.Lock()
	defer b.up.Unlock()
	c.note("%s gets %v", b.box.Name(), sig)
	synced := c.stale.open(b.box.Name(), time.Now())
	if err := b.daemonOff(ctx, sig); err != nil {
		return err
	}
	if err := traffic.Pause(ctx, pause); err != nil {
		return err
	}
	if err := c.daemonOn(ctx, b); err != nil {
		return err
	}
	synced()
	return c.bothServe(ctx)
}

func (c *churn) drained(ctx context.Context, n int, pause time.Duration) error {
	if err := c.bothServe(ctx); err != nil {
		return err
	}
	b := c.boxes[n]
	if _, err := b.run(ctx, b.weir, "drain", "--all"); err != nil {
		return err
	}
	if err := c.routed(ctx, "the router uses the other box only", func(now []int) bool { return len(now) == 1 && now[0] != n }); err != nil {
		return err
	}
	if err := traffic.Pause(ctx, pause); err != nil {
		return err
	}
	if _, err := b.run(ctx, b.weir, "undrain", "--all"); err != nil {
		return err
	}
	return c.bothServe(ctx)
}

// routerActor restarts the only router: nothing is routed meanwhile.
func (c *churn) routerActor(pause time.Duration) *actor {
	a := c.newActor("router", pause)
	restart := func(stop func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			closed := c.windows.open(routerRestart, time.Now())
			defer closed()
			if err := errors.Join(stop(ctx), c.edge.router.Start(ctx)); err != nil {
				return err
			}
			return c.routed(ctx, "the router has a route", func(now []int) bool { return len(now) > 0 })
		}
	}
	a.do["router restart"] = restart(c.edge.router.Stop)
	a.do["router kill -9"] = restart(c.edge.router.Kill)
	return a
}

// apiActor restarts the API server, or stops its process for seconds.
func (c *churn) apiActor(pause time.Duration) *actor {
	a := c.newActor("API server", pause)
	a.do["API server restart"] = c.prod.Restart
	a.do["API server kill -9"] = func(ctx context.Context) error { return errors.Join(c.prod.Kill(ctx), c.prod.Start(ctx)) }
	a.do["API server hang"] = func(ctx context.Context) error {
		if err := c.prod.Freeze(); err != nil {
			return err
		}
		return errors.Join(traffic.Pause(ctx, time.Second+time.Duration(a.random.Int64N(int64(4*time.Second)))), c.prod.Thaw())
	}
	return a
}

// reloadActor reloads both boxes: the static service comes or goes, or the file is invalid.
func (c *churn) reloadActor(pause time.Duration) *actor {
	a := c.newActor("reloads", pause)
	static := false
	at := identity{service: "static", vip: staticVIP}.atVIP()
	a.do["valid reload"] = func(ctx context.Context) error {
		static = !static
		var hosts []string
		if static {
			c.truth.begin(at, time.Now())
			hosts = []string{webAddr(0), webAddr(1), webAddr(2)}
		}
		for i, b := range c.boxes {
			if out, err := c.reloaded(ctx, b, c.config(i, static)); err != nil {
				return fmt.Errorf("%s: %w: %s", b.box.Name(), err, out)
			}
		}
		if err := c.programmed(ctx, staticPort, staticVIP, hosts...); err != nil {
			return err
		}
		if !static {
			c.truth.end(at, time.Now())
		}
		return nil
	}
	invalid := []struct{ text, want string }{
		{"[nonsense]\n", "nonsense"}, {"[[service]\n", configFile}, {"[[service]]\nname = \"x\"\nvips = [\"10.2.0.1\"]\nports = [80]\nbackends = [\"10.2.0.11\"]\n", "10.2.0.1"},
	}
	a.do["invalid reload"] = func(ctx context.Context) error {
		n, bad := a.random.IntN(2), invalid[a.random.IntN(len(invalid))]
		out, err := c.reloaded(ctx, c.boxes[n], c.config(n, static)+bad.text)
		if err == nil || !strings.Contains(out, bad.want) {
			return fmt.Errorf("a reload with %q: %v: %q", bad.text, err, out) //nolint:errorlint // it may be nil
		}
		return nil
	}
	a.do["reload of the same"] = func(ctx context.Context) error {
		n := a.random.IntN(2)
		_, err := c.reloaded(ctx, c.boxes[n], c.config(n, static))
		return err
	}
	return a
}

// reloaded has a daemon load a configuration. A box that boots must find the one that is valid.
func (c *churn) reloaded(ctx context.Context, b *churnBox, toml string) (string, error) {
	b.up.RLock()
	defer b.up.RUnlock()
	before, err := b.box.ReadFile(ctx, configFile)
	if err != nil {
		return "", err
	}
	if err := b.box.WriteFile(ctx, configFile, toml, 0o644); err != nil {
		return "", err
	}
	out, err := b.box.Run(ctx, b.weir, "reload")
	if err != nil {
		err = errors.Join(err, b.box.WriteFile(ctx, configFile, before, 0o644))
	}
	_, flushed := b.box.Run(ctx, "sync")
	return out.Stdout + out.Stderr, errors.Join(err, flushed)
}

// nodeActor changes Nodes.
func (c *churn) nodeActor(pause time.Duration) *actor {
	a := c.newActor("nodes", pause)
	const nodes = "/api/v1/nodes"
	name := func() string { return fmt.Sprintf("node%d", a.random.IntN(5)) }
	a.do["Node added"] = func(ctx context.Context) error {
		n := a.random.IntN(5)
		return c.put(ctx, http.MethodPost, nodes, fields{
			"metadata": fields{"name": fmt.Sprintf("node%d", n)},
			"spec":     fields{"podCIDR": fmt.Sprintf("10.244.%d.0/24", n), "podCIDRs": []string{fmt.Sprintf("10.244.%d.0/24", n)}},
			"status":   fields{"addresses": []fields{{"type": "InternalIP", "address": fmt.Sprintf("10.9.0.%d", n+1)}}},
		})
	}
	a.do["Node changed"] = func(ctx context.Context) error {
		patch := fmt.Sprintf(`{"metadata": {"labels": {"topology.kubernetes.io/zone": "z%d"}}}`, a.random.IntN(3))
		status, text, err := c.ask(ctx, http.MethodPatch, nodes+"/"+name(), patch)
		if err == nil && status != http.StatusOK && status != http.StatusNotFound {
			err = fmt.Errorf("status %d: %s", status, text)
		}
		return err
	}
	a.do["Node deleted"] = func(ctx context.Context) error { return c.put(ctx, http.MethodDelete, nodes+"/"+name(), nil) }
	return a
}
