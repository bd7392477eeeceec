package lb

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"
)

// script applies random operations to a Reconciler.
type script struct {
	*Reconciler
	t       *testing.T
	g       *gen
	k       *Fake
	opts    Options
	now     time.Time
	sources []string
	last    []Service // of the last Update
	audit   *Audit
}

// TestLawIndexesMatchTheirRecomputation compares all indexes after each operation.
func TestLawIndexesMatchTheirRecomputation(t *testing.T) {
	seeds(t, 75, func(t *testing.T, g *gen) {
		s := &script{t: t, g: g, k: g.kernel(), opts: g.options(), now: testNow, sources: []string{"static", "prod"}}
		s.opts.Guards = map[string]GuardOptions{"prod": {Share: 0.3, Least: 1 + g.IntN(3), Window: time.Minute, Timeout: 2 * time.Minute}}
		s.Reconciler = NewReconciler(s.k, s.opts, s.sources...)
		for range 60 {
			s.step()
			s.consistent(t)
		}
		s.k.Fail = nil
		for _, source := range s.sources {
			s.Update(Update{Source: source, Synced: true})
		}
		mustAudit(t, s.Reconciler, s.now)
		for range 5 { // holds and drains end
			s.now = s.now.Add(3 * time.Minute)
			mustSync(t, s.Reconciler, s.now)
		}
		s.empty()
	})
}

// step applies one operation.
func (s *script) step() {
	g := s.g
	n := g.IntN(100)
	switch {
	case n < 25:
		s.update()
	case n < 55:
		s.now = s.now.Add(time.Duration(g.IntN(40)) * time.Second)
		s.must(s.Sync(context.Background(), s.now))
	case n < 60:
		s.SetHealth(g.health(s.last), true)
	case n < 63:
		s.SetHealthPorts(map[uint16]bool{30000: g.chance(50), 30001: g.chance(50)})
	case n < 70:
		countDrains(s.Reconciler, s.now)
	case n < 75:
		if _, err := s.Routes(context.Background()); err != nil {
			s.t.Fatal(err)
		}
	case n < 80:
		s.others()
	case n < 88:
		s.someAudit()
	case n < 90:
		s.k.Fail = nil
		if g.chance(50) {
			s.k.Fail = func(Op) error {
				if g.chance(20) {
					return context.DeadlineExceeded
				}
				return nil
			}
		}
	case n < 93:
		s.opts.Pools, s.opts.Exclude = g.options().Pools, g.options().Exclude
		if g.chance(30) {
			s.opts.Guards = nil
		}
		s.Configure(s.opts)
	case n < 95:
		s.k.HostAddrs = g.kernel().HostAddrs
	case n < 97:
		s.Release("prod")
	case n < 98:
		s.SetSources(s.sources[:1+g.IntN(2)]...)
	default:
		g.busy(s.k)
	}
}

// update changes, adds and removes Services of a source.
func (s *script) update() {
	g := s.g
	u := Update{Source: s.sources[g.IntN(2)], Put: g.services(), Synced: g.chance(40)}
	if u.Source != "static" { // a cluster has no given marks, so its guard merges none
		u.Put = slices.DeleteFunc(u.Put, func(s Service) bool { return s.FWMark != 0 })
	}
	for i := range u.Put {
		u.Put[i].ID.Source = u.Source
		u.Put[i].ID.Namespace = []string{"a", "b"}[g.IntN(2)]
	}
	if !u.Synced {
		for _, id := range s.catalog.IDs() {
			known := slices.ContainsFunc(u.Put, func(x Service) bool { return x.ID == id })
			if id.Source == u.Source && !known && g.chance(20) {
				u.Delete = append(u.Delete, id)
			}
		}
	}
	s.last = slices.Clone(u.Put)
	if u.Synced && g.chance(10) {
		s.UpdateUnguarded(u)
		return
	}
	s.Update(u)
}

// others changes the kernel as another program does, which is reported or not.
func (s *script) others() {
	var lost []Object
	for _, id := range slices.SortedFunc(maps.Keys(s.k.Objects()), Compare) {
		if s.g.chance(5) {
			s.k.Remove(id)
			lost = append(lost, id)
		}
	}
	if s.g.chance(30) {
		s.k.Put(VirtualServer{Frontend: Frontend{Addr: s.g.vip(), Port: 80, Proto: TCP}, Scheduler: Scheduler{Name: "wlc"}})
	}
	if s.g.chance(60) {
		s.Lost(lost)
	}
}

// someAudit begins an audit, or ends the one that is in progress.
func (s *script) someAudit() {
	if s.audit == nil {
		s.audit = s.BeginAudit()
		s.audit.Read(context.Background(), s.k)
		return
	}
	for s.Reread(s.audit) {
		s.audit.Read(context.Background(), s.k)
	}
	s.must(s.EndAudit(context.Background(), s.now, s.audit))
	s.audit = nil
}

func (s *script) must(_ Report, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// empty checks that no index keeps anything of Services that are gone.
func (s *script) empty() {
	s.t.Helper()
	if _, err := s.Routes(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	c, ds, ms, rs := s.catalog, &s.drains, &s.marks, &s.routes
	for name, n := range map[string]int{
		"Catalog.services": len(c.services), "Catalog.claims": len(c.claims), "Facts.Taken": len(s.facts.Taken),
		"drains.servers": len(ds.servers), "drains.times": len(ds.times), "drains.inner": len(ds.inner), "drains.drained": len(ds.drained),
		"marks.of": len(ms.of), "marks.given": len(ms.given), "marks.byMark": len(ms.byMark), "marks.maybeUnused": len(ms.maybeUnused),
		"routes.of": len(rs.of), "routes.claimed": len(rs.claimed), "routes.reported": len(rs.reported), "routes.dirty": len(rs.dirty),
		"failures.of": len(s.failed.of), "plannedNotes.of": len(s.notes.of), "plannedNotes.fresh": len(s.notes.fresh), "orphans.deferred": len(s.orphans.deferred),
	} {
		if n > 0 {
			s.t.Errorf("%s has %d entries, and there is no Service", name, n)
		}
	}
}
