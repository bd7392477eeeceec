package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/k8ssync"
	"weir/lb"
)

// town is a cluster of a test. It works as told.
type town struct {
	cfg     k8ssync.Config
	run     func(ctx context.Context) error
	changed chan struct{}

	mu       sync.Mutex
	queue    lb.Update
	reported [][]lb.Note
	judged   []bool // what Judged said, in turn
	refused  k8ssync.Refused
	provided k8ssync.Provided
	status   k8ssync.Status
}

func (c *town) Run(ctx context.Context) error { return c.run(ctx) }

func (c *town) Changed() <-chan struct{} { return c.changed }

func (c *town) Take() (lb.Update, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.queue
	c.queue = lb.Update{}
	return u, u.Synced || len(u.Put)+len(u.Delete) > 0
}

func (c *town) Status() k8ssync.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *town) Refuse(r k8ssync.Refused) { c.refused = r }

func (c *town) Provide(p k8ssync.Provided) { c.provided = p }

func (c *town) Judged(held bool) { c.judged = append(c.judged, held) }

func (c *town) Report(notes []lb.Note) { c.reported = append(c.reported, notes) }

// say makes the town say something.
func (c *town) say(u lb.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = u
	c.changed <- struct{}{}
}

// land is the clusters of a test, and every town that was ever followed.
type land struct {
	*clusters
	mu    sync.Mutex
	towns []*town
	run   func(ctx context.Context, n int) error // of the n-th town that begins
}

func newLand(t *testing.T, run func(ctx context.Context, n int) error) *land {
	l := &land{clusters: newClusters(slog.New(slog.DiscardHandler)), run: run}
	l.follow = func(cfg k8ssync.Config, _ *slog.Logger) kubernetes {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := len(l.towns)
		c := &town{cfg: cfg, changed: make(chan struct{}, 1), status: k8ssync.Status{Connected: true, Synced: true}}
		c.run = func(ctx context.Context) error { return l.run(ctx, n) }
		l.towns = append(l.towns, c)
		return c
	}
	t.Cleanup(l.stop)
	return l
}

func calm(ctx context.Context, _ int) error {
	<-ctx.Done()
	return nil
}

func blocks(names ...string) (out []k8ssync.Config) {
	for _, n := range names {
		out = append(out, k8ssync.Config{Name: n})
	}
	return out
}

func (l *land) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.towns)
}

func (l *land) followedNames() (out []string) {
	for _, c := range l.towns {
		out = append(out, c.cfg.Name+" "+c.cfg.Zone)
	}
	return out
}

func TestReloadTouchesOnlyTheClustersThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, calm)
		l.set(t.Context(), blocks("prod", "stage"))
		next := blocks("stage", "lab", "prod")
		next[2].Zone = "a"
		l.set(t.Context(), next)
		synctest.Wait()
		if d := cmp.Diff([]string{"prod ", "stage ", "lab ", "prod a"}, l.followedNames()); d != "" {
			t.Errorf("followed (-want +got):\n%s", d)
		}
		l.set(t.Context(), blocks("lab"))
		if d := cmp.Diff([]string{"lab"}, l.names()); d != "" {
			t.Errorf("left (-want +got):\n%s", d)
		}
	})
}

func TestWhatIsRefusedAndProvidedChangesWithoutBeginningAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, calm)
		l.set(t.Context(), blocks("prod"))
		next := blocks("prod")
		next[0].Refused.Peers = map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "a backend of static/web"}
		next[0].Provided.Class = "weir/lb"
		l.set(t.Context(), next)
		synctest.Wait()
		if l.count() != 1 {
			t.Errorf("%d clusters were begun", l.count())
		}
		if d := cmp.Diff(next[0].Refused, l.towns[0].refused, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("refused (-want +got):\n%s", d)
		}
		if got := l.towns[0].provided.Class; got != "weir/lb" {
			t.Errorf("provided of class %q", got)
		}
	})
}

func TestAClusterBeginsAnewOnlyAfterTheOldOneHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most int
		var mu sync.Mutex
		l := newLand(t, func(ctx context.Context, _ int) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-ctx.Done()
			time.Sleep(time.Second) // it writes its file
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		for _, zone := range []string{"a", "b", "c"} {
			cfg := blocks("prod")
			cfg[0].Zone = zone
			l.set(t.Context(), cfg)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if running != 1 || most != 1 {
			t.Errorf("%d run at the end, %d at a time", running, most)
		}
	})
}

func TestAPanicOfOneClusterHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, func(ctx context.Context, n int) error {
			switch n {
			case 0:
				panic("nonsense")
			case 2:
				return errors.New("ended")
			}
			return calm(ctx, n)
		})
		l.set(t.Context(), blocks("bad"))
		l.set(t.Context(), blocks("bad", "good"))
		synctest.Wait()
		bad, good := l.all["bad"], l.all["good"]
		if s, panics := bad.status(); s.Connected || s.Error != "panic: nonsense" || panics != 1 {
			t.Errorf("after a panic: %+v, %d panics", s, panics)
		}
		time.Sleep(panicPause)
		synctest.Wait()
		if s, panics := bad.status(); s.Connected || s.Error != "ended" || panics != 1 {
			t.Errorf("after an end: %+v, %d panics", s, panics)
		}
		time.Sleep(panicPause) // the second time it rests for longer
		synctest.Wait()
		if n := l.count(); n != 3 {
			t.Errorf("followed %d times", n)
		}
		time.Sleep(panicPause)
		synctest.Wait()
		if s, _ := bad.status(); l.count() != 4 || !s.Connected || s.Error != "" {
			t.Errorf("followed %d times, %+v", l.count(), s)
		}
		if s, panics := good.status(); !s.Connected || panics != 0 {
			t.Errorf("the other one: %+v", s)
		}
	})
}

func TestWhatClustersSayIsTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, calm)
		l.set(t.Context(), blocks("prod", "stage"))
		synctest.Wait()
		l.towns[1].say(lb.Update{Source: "static", Synced: true}) // it can't speak for others
		<-l.signal
		want := []lb.Update{{Source: "stage", Synced: true}}
		if d := cmp.Diff(want, l.take()); d != "" {
			t.Errorf("taken (-want +got):\n%s", d)
		}
		if got := l.take(); got != nil {
			t.Errorf("taken twice: %v", got)
		}
	})
}

func TestNotesAreReportedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand(t, calm)
		l.set(t.Context(), blocks("prod", "stage"))
		a := lb.Note{Service: shop("a"), Reason: lb.Conflict, Text: "x"}
		other := lb.Note{Service: static("web"), Reason: lb.NoBackends, Text: "y"}
		for _, notes := range [][]lb.Note{{other}, {a, other}, {a}, {a}, nil, nil} {
			l.report(notes)
		}
		if d := cmp.Diff([][]lb.Note{{a}, nil}, l.towns[0].reported); d != "" {
			t.Errorf("prod was told (-want +got):\n%s", d)
		}
		if got := l.towns[1].reported; got != nil {
			t.Errorf("stage was told %v", got)
		}
	})
}
