package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/lb"
)

// fakeCluster is a cluster of a test.
type fakeCluster struct {
	cfg     k8ssync.Config
	run     func(ctx context.Context) error
	changed chan struct{}

	mu       sync.Mutex
	queue    lb.Update
	reported [][]lb.Note
	judged   [][]string // of Commit
	refused  k8ssync.Refused
	provided k8ssync.Provided
	status   k8ssync.Status
}

func (c *fakeCluster) Run(ctx context.Context) error { return c.run(ctx) }

func (c *fakeCluster) Changed() <-chan struct{} { return c.changed }

func (c *fakeCluster) Take() (lb.Update, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.queue
	c.queue = lb.Update{}
	return u, u.Synced || len(u.Put)+len(u.Delete) > 0
}

func (c *fakeCluster) Status() k8ssync.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *fakeCluster) Refuse(r k8ssync.Refused) { c.refused = r }

func (c *fakeCluster) Provide(p k8ssync.Provided) { c.provided = p }

func (c *fakeCluster) Commit(held []string) { c.judged = append(c.judged, held) }

func (c *fakeCluster) Report(notes []lb.Note) { c.reported = append(c.reported, notes) }

// send makes an update available.
func (c *fakeCluster) send(u lb.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = u
	c.changed <- struct{}{}
}

func statusOf(f *Follower) (k8ssync.Status, uint64) {
	s := f.Snapshot()
	return s.Status, s.Panics
}

// fixture is the clusters of a test, and every fakeCluster that was ever followed.
type fixture struct {
	*Clusters
	mu   sync.Mutex
	made []*fakeCluster
	run  func(ctx context.Context, n int) error // of the n-th fakeCluster that begins
}

func shop(name string) lb.ServiceID {
	return lb.ServiceID{Source: "prod", Namespace: "shop", Name: name}
}

func newFixture(t *testing.T, run func(ctx context.Context, n int) error) *fixture {
	l := &fixture{Clusters: New(slog.New(slog.DiscardHandler)), run: run}
	l.Follow = func(cfg k8ssync.Config, _ *slog.Logger) Cluster {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := len(l.made)
		c := &fakeCluster{cfg: cfg, changed: make(chan struct{}, 1), status: k8ssync.Status{Connected: true, Synced: true}}
		c.run = func(ctx context.Context) error { return l.run(ctx, n) }
		l.made = append(l.made, c)
		return c
	}
	t.Cleanup(l.Stop)
	return l
}

func runs(ctx context.Context, _ int) error {
	<-ctx.Done()
	return nil
}

func blocks(names ...string) (out []k8ssync.Config) {
	for _, n := range names {
		out = append(out, k8ssync.Config{Name: n})
	}
	return out
}

func (l *fixture) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.made)
}

func (l *fixture) followedNames() (out []string) {
	for _, c := range l.made {
		out = append(out, c.cfg.Name+" "+c.cfg.Zone)
	}
	return out
}

// A cluster learns of the namespaces that the guard withholds.
func TestEachClusterLearnsItsGuardedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		l.Set(t.Context(), blocks("prod", "stage"))
		l.Commit([]lb.GuardedSource{{Source: "stage", Namespaces: []string{"bank", "shop"}}})
		for i, want := range [][]string{nil, {"bank", "shop"}} {
			if got := l.made[i].judged; len(got) != 1 || !slices.Equal(got[0], want) {
				t.Errorf("%s learns %v", l.made[i].cfg.Name, got)
			}
		}
	})
}

func TestAReloadRestartsOnlyChangedClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		l.Set(t.Context(), blocks("prod", "stage"))
		next := blocks("stage", "lab", "prod")
		next[2].Zone = "a"
		l.Set(t.Context(), next)
		synctest.Wait()
		if d := cmp.Diff([]string{"prod ", "stage ", "lab ", "prod a"}, l.followedNames()); d != "" {
			t.Errorf("followed (-want +got):\n%s", d)
		}
		l.Set(t.Context(), blocks("lab"))
		if d := cmp.Diff([]string{"lab"}, l.Names()); d != "" {
			t.Errorf("left (-want +got):\n%s", d)
		}
	})
}

func TestRefusedAndProvidedAddressesChangeWithoutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		l.Set(t.Context(), blocks("prod"))
		next := blocks("prod")
		next[0].Refused.Peers = map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "a backend of static/web"}
		next[0].Provided.Class = "weir/lb"
		l.Set(t.Context(), next)
		synctest.Wait()
		if l.count() != 1 {
			t.Errorf("%d clusters were begun", l.count())
		}
		if d := cmp.Diff(next[0].Refused, l.made[0].refused, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("refused (-want +got):\n%s", d)
		}
		if got := l.made[0].provided.Class; got != "weir/lb" {
			t.Errorf("provided of class %q", got)
		}
	})
}

func TestARestartWaitsForTheEndOfTheOldRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most int
		var mu sync.Mutex
		l := newFixture(t, func(ctx context.Context, _ int) error {
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
			l.Set(t.Context(), cfg)
			synctest.Wait()
		}
		l.Set(t.Context(), nil) // a block that is removed, and added
		l.Set(t.Context(), blocks("prod"))
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if running != 1 || most != 1 {
			t.Errorf("%d run at the end, %d at a time", running, most)
		}
	})
}

// Until a restarted cluster has synced, its Node is not known, and node ports depend on it.
func TestTheOwnNodeSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		cfg := blocks("prod")
		for i, step := range []struct {
			node, zone string
			known      int // addresses before the cluster has synced
		}{{"n1", "", 0}, {"n1", "a", 1}, {"n2", "a", 0}} {
			cfg[0].NodeName, cfg[0].Zone = step.node, step.zone
			l.Set(t.Context(), slices.Clone(cfg))
			c := l.made[i]
			c.status = k8ssync.Status{}
			if got := l.Node().Addrs; len(got) != step.known {
				t.Errorf("step %d: addresses %v before the sync", i, got)
			}
			c.status = k8ssync.Status{Synced: true, NodeAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
			if got := l.Node().Addrs; len(got) != 1 {
				t.Errorf("step %d: addresses %v after it", i, got)
			}
		}
	})
}

func TestAPanicOfOneClusterHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, func(ctx context.Context, n int) error {
			switch n {
			case 0:
				panic("nonsense")
			case 2:
				return errors.New("ended")
			}
			return runs(ctx, n)
		})
		l.Set(t.Context(), blocks("bad"))
		l.Set(t.Context(), blocks("bad", "good"))
		synctest.Wait()
		bad, good := l.all["bad"], l.all["good"]
		if s, panics := statusOf(bad); s.Connected || s.Error != "panic: nonsense" || panics != 1 {
			t.Errorf("after a panic: %+v, %d panics", s, panics)
		}
		time.Sleep(minPause)
		synctest.Wait()
		if s, panics := statusOf(bad); s.Connected || s.Error != "ended" || panics != 1 {
			t.Errorf("after an end: %+v, %d panics", s, panics)
		}
		time.Sleep(minPause) // the second time it rests for longer
		synctest.Wait()
		if n := l.count(); n != 3 {
			t.Errorf("followed %d times", n)
		}
		time.Sleep(minPause)
		synctest.Wait()
		if s, _ := statusOf(bad); l.count() != 4 || !s.Connected || s.Error != "" {
			t.Errorf("followed %d times, %+v", l.count(), s)
		}
		if s, panics := statusOf(good); !s.Connected || panics != 0 {
			t.Errorf("the other one: %+v", s)
		}
	})
}

func TestUpdatesBelongToTheirCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		l.Set(t.Context(), blocks("prod", "stage"))
		synctest.Wait()
		l.made[1].send(lb.Update{Source: "static", Synced: true}) // it can't speak for others
		<-l.Signal
		want := []Update{{Update: lb.Update{Source: "stage", Synced: true}}}
		if d := cmp.Diff(want, l.Take()); d != "" {
			t.Errorf("taken (-want +got):\n%s", d)
		}
		if got := l.Take(); got != nil {
			t.Errorf("taken twice: %v", got)
		}
	})
}

func TestNotesAreReportedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		l.Set(t.Context(), blocks("prod", "stage"))
		a := lb.Note{Service: shop("a"), Reason: lb.Conflict, Text: "x"}
		other := lb.Note{Service: lb.ServiceID{Source: "static", Name: "web"}, Reason: lb.NoBackends, Text: "y"}
		for _, notes := range [][]lb.Note{{other}, {a, other}, {a}, {a}, nil, nil} {
			l.Report(notes)
		}
		if d := cmp.Diff([][]lb.Note{{a}, nil}, l.made[0].reported); d != "" {
			t.Errorf("prod got (-want +got):\n%s", d)
		}
		if got := l.made[1].reported; got != nil {
			t.Errorf("stage got %v", got)
		}
	})
}

// HTTP handlers read a cluster while a reload replaces its configuration: run it with -race.
func TestAReloadDoesNotRaceWithReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFixture(t, runs)
		l.Set(t.Context(), blocks("prod"))
		follower := l.Followers()[0]
		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for ctx.Err() == nil {
					if doc := follower.Snapshot().Doc(1); doc.Name != "prod" {
						t.Errorf("the cluster is %q", doc.Name)
					}
				}
			})
		}
		for i := range 1000 {
			next := blocks("prod")
			next[0].Provided.Class = fmt.Sprint("class", i)
			l.Set(t.Context(), next)
		}
		stop()
		readers.Wait()
		if l.count() != 1 || l.made[0].provided.Class != "class999" {
			t.Errorf("%d clusters were begun, the class is %s", l.count(), l.made[0].provided.Class)
		}
	})
}

func TestOrdinaryStatesOfAClusterAreInformational(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		id     lb.ServiceID
		reason lb.Reason
		want   bool
	}{
		{shop("web"), lb.NoLocal, true},
		{shop("web"), lb.NoBackends, true},
		{lb.ServiceID{Source: "static", Name: "web"}, lb.NoBackends, false},
		{lb.ServiceID{Source: "static", Name: "web"}, lb.HostAddress, true},
		{shop("web"), lb.Conflict, false},
		{lb.ServiceID{}, lb.Failed, false},
	} {
		note := lb.Note{Service: tt.id, Reason: tt.reason}
		s := status.Status{Notes: statusNotes([]lb.Note{note})}
		s.Judge(s.Started)
		if ok := s.State == status.OK; Informational(note) != tt.want || ok != tt.want || len(s.Notes) != 1 {
			t.Errorf("%s: informational %v, status %s", note, Informational(note), s.State)
		}
	}
}
