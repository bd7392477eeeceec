package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/query"
	"weir/cmd/weir/internal/supervise"
	"weir/k8ssync"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// TestLoopLosesNoInput changes inputs of the loop at the same time, while readers ask for documents: clusters, the
// configuration and the kernel, in each round another selection of them, so that none hides behind another. After each round
// the kernel, the routes and the documents must be those of the last inputs. No audit repairs a lost change: the next one is
// a day away.
func TestLoopLosesNoInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrent(t)
		for round := range uint64(16) {
			var writers sync.WaitGroup
			if round&1 == 0 {
				for n, s := range c.land.towns {
					writers.Go(func() { c.sendServices(s, rand.New(rand.NewPCG(round, uint64(n)))) })
				}
			}
			if round&2 == 0 {
				writers.Go(func() { c.reloadAll(t, rand.New(rand.NewPCG(round, 10))) })
			}
			if round&4 == 0 {
				writers.Go(func() { c.damage(rand.New(rand.NewPCG(round, 11))) })
			}
			reading, stop := context.WithCancel(t.Context())
			for range 2 {
				go c.read(reading)
			}
			writers.Wait()
			stop()
			time.Sleep(time.Minute) // delays of routes; synctest skips it
			synctest.Wait()
			c.check(t, round)
		}
		c.end()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
}

// A pass may follow an audit at once, and another one, too, unless the audit has repaired something.
func TestAnAuditWithRepairsCountsAsAPass(t *testing.T) {
	for _, repairs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newConcurrent(t)
			time.Sleep(time.Minute) // the start waits no longer for clusters
			synctest.Wait()
			var want time.Time
			if err := c.calls.Do(t.Context(), func() { want = c.box.passes.progress.floor }); err != nil {
				t.Fatal(err)
			}
			if repairs {
				c.kernel.Remove(lb.Rules{Family: lb.IPv4})
			}
			time.Sleep(25 * time.Hour)
			synctest.Wait()
			audited, floor := c.box.passes.progress.audits.Last, c.box.passes.progress.floor
			if repairs {
				want = audited
			}
			if time.Since(audited) > 2*time.Hour || !floor.Equal(want) {
				t.Errorf("repairs %v: audited %v ago, and a change may be written since %v, want %v", repairs, time.Since(audited), floor, want)
			}
			c.end()
			if err := <-c.ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// What the watch reports while an audit ends does not wait for another audit.
func TestAReportAtTheEndOfAnAuditIsRepairedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrent(t)
		rules := lb.Rules{Family: lb.IPv4}
		var repaired time.Time
		c.kernel.After = func(lb.Op) {
			if repaired.IsZero() { // by the audit
				repaired = time.Now()
				c.kernel.Remove(rules)
				c.events.Add(lb.Event{Lost: []lb.Object{rules}, What: "a test"})
			}
		}
		c.kernel.Remove(rules)
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if repaired.IsZero() || c.kernel.Objects()[rules] == nil {
			t.Errorf("the rules are missing; an audit had repaired them at %v", repaired)
		}
		if last := c.box.passes.progress.audits.Last; !last.Equal(repaired) {
			t.Errorf("another audit ended %v later", last.Sub(repaired))
		}
		c.end()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
	})
}

// concurrent is a box with its real loop. Only the kernel, the routers and the clusters are a test's.
type concurrent struct {
	*member
	kernel *lb.Fake
	land   *land
	page   http.Handler
	end    context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	last map[string][]lb.Service // the last Services of each source
}

const quietBox = oneRouter + "[kernel]\nsync_period = \"24h\"\n[defaults]\ndrain_timeout = \"0s\"\n"

func newConcurrent(t *testing.T) *concurrent {
	t.Helper()
	c := idleConcurrent(t)
	c.run(t, t.Context())
	synctest.Wait()
	return c
}

// idleConcurrent is a box that has not been started yet.
func idleConcurrent(t *testing.T) *concurrent {
	t.Helper()
	m := newMember(t, quietBox)
	b := m.box
	c := &concurrent{member: m, kernel: &lb.Fake{}, last: map[string][]lb.Service{}, ended: make(chan error, 1), land: newLand(t)}
	b.target.cfg = c.config(t, nil)
	b.passes.progress.ready, b.opts.Level = false, new(slog.LevelVar)
	b.sources.clusters, b.sources.pools = c.land.Clusters, poolsOf(&giver{})
	b.target.checks, b.target.kernel = health.New(health.Options{}), configurable(t, b.target.cfg)
	b.sources.probes, _ = localPorts(t)
	b.passes.auditor = supervise.NewAuditor(b.log, c.kernel)
	b.passes.counter = supervise.NewDrainCounter(b.log, c.kernel, func(time.Duration) {})
	b.target.rec = lb.NewReconciler(c.kernel, b.target.options(b.target.cfg, kernelmode.Node{}), kernelmode.Sources(b.target.cfg)...)
	c.page = b.commands.handler()
	b.passes.publish()
	return c
}

// run starts it. The end of ending is that of the process.
func (c *concurrent) run(t *testing.T, ending context.Context) {
	ctx, end := context.WithCancel(t.Context())
	c.end = end
	go func() { _ = c.passes.auditor.Run(ctx) }()
	go func() { _ = c.passes.counter.Run(ctx) }()
	go func() { defer end(); c.awaitEnd(ending, ctx) }()
	go func() { c.ended <- c.loop(ctx, ending) }()
}

// configurable returns a real kernel of no family: it takes configurations, and changes nothing.
func configurable(t *testing.T, cfg *config.Config) *linux.Kernel {
	t.Helper()
	c := kernelmode.KernelConfig(cfg, kernelmode.Mode{}, kernelmode.Node{}, nil)
	c.Families, c.WithoutIPVS = nil, true
	k, err := linux.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// config is a configuration with two clusters and static Services.
func (c *concurrent) config(t *testing.T, static []lb.Service) *config.Config {
	t.Helper()
	cfg := parse(t, quietBox)
	cfg.Clusters = []config.Cluster{{Config: k8ssync.Config{Name: "prod"}}, {Config: k8ssync.Config{Name: "test"}}}
	cfg.Services = static
	return cfg
}

// randomServices are Services of a source at VIPs of its own.
func randomServices(source string, net byte, r *rand.Rand) (out []lb.Service) {
	for i := range 6 {
		if r.IntN(3) == 0 {
			continue
		}
		svc := served(i)
		svc.ID = lb.ServiceID{Source: source, Namespace: "shop", Name: fmt.Sprint("s", i)}
		svc.VIPs[0].Addr = netip.AddrFrom4([4]byte{192, 0, net, byte(i)})
		svc.Ports[0].Backends[0].Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + r.IntN(9))}), 80)
		out = append(out, svc)
	}
	return out
}

const changesARound = 30

// sendServices sends states of a cluster. Each replaces the one before, as the real queue merges them.
func (c *concurrent) sendServices(s *town, r *rand.Rand) {
	for range changesARound {
		services := randomServices(s.cfg.Name, s.cfg.Name[0], r)
		c.mu.Lock()
		c.last[s.cfg.Name] = services
		c.mu.Unlock()
		s.send(lb.Update{Source: s.cfg.Name, Put: services, Synced: true})
	}
}

// reloadAll brings configurations into force, with other static Services.
func (c *concurrent) reloadAll(t *testing.T, r *rand.Rand) {
	for range changesARound {
		services := randomServices(config.Source, 2, r)
		for i := range services {
			services[i].ID.Namespace = ""
		}
		cfg := c.config(t, services)
		c.mu.Lock()
		c.last[config.Source] = services
		c.mu.Unlock()
		var err error
		if failed := c.calls.Do(t.Context(), func() { err = c.apply(t.Context(), cfg) }); err != nil || failed != nil {
			t.Errorf("reload: %v, %v", err, failed)
		}
	}
}

// damage removes addresses of the device, as other programs do, and reports them as the watch does.
func (c *concurrent) damage(r *rand.Rand) {
	for range changesARound {
		for _, o := range c.kernel.Objects() {
			if _, address := o.(lb.Address); address && r.IntN(4) == 0 {
				c.kernel.Remove(o.ID())
				c.events.Add(lb.Event{Lost: []lb.Object{o.ID()}, What: "a test"})
			}
		}
	}
}

// read reads all that other goroutines may read.
func (c *concurrent) read(ctx context.Context) {
	for ctx.Err() == nil {
		_ = c.answers.condition()
		_ = c.answers.owners(ctx)
		_ = c.answers.sample()
		for _, path := range []string{"/status", "/health", "/members", "/bgp/neighbors", "/bgp/routes", "/drain"} {
			c.page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		}
	}
}

// check compares the box with one that has never had other inputs than the last.
func (c *concurrent) check(t *testing.T, round uint64) {
	t.Helper()
	fresh := &lb.Fake{}
	rec := lb.NewReconciler(fresh, c.target.options(c.target.cfg, kernelmode.Node{}), kernelmode.Sources(c.target.cfg)...)
	var vips []string
	for source, services := range c.last {
		rec.Update(lb.Update{Source: source, Put: services, Synced: true})
		for _, s := range services {
			vips = append(vips, s.VIPs[0].Addr.String()+"/32")
		}
	}
	if _, err := rec.Sync(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(lines(fresh), lines(c.kernel)); d != "" {
		t.Fatalf("round %d: the kernel (-last inputs +programmed):\n%s", round, d)
	}
	slices.Sort(vips)
	if d := cmp.Diff(vips, c.speaker.announcedRoutes()); d != "" {
		t.Errorf("round %d: the routes (-last inputs +announced):\n%s", round, d)
	}
	v := c.published.view.Load()
	tally := query.NewTally(rec.Have())
	want := tally.Without(kernelmode.Base(c.target.cfg, c.target.mode), rec.Have())
	if d := cmp.Diff(want, v.counts); d != "" {
		t.Errorf("round %d: the counts (-last inputs +published):\n%s", round, d)
	}
	if got := c.answers.owners(t.Context()); !reflect.DeepEqual(got, query.NewOwners(rec, c.target.cfg.Checks)) {
		t.Errorf("round %d: owners of an earlier state", round)
	}
}

// lines returns the objects of a kernel.
func lines(k *lb.Fake) (out []string) {
	for _, o := range k.Objects() {
		out = append(out, fmt.Sprintf("%+v", o))
	}
	slices.Sort(out)
	return out
}

// announcedRoutes returns the prefixes that routers have now.
func (h *fakeSpeaker) announcedRoutes() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.now {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}
