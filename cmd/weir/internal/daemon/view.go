package daemon

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// view is what the loop publishes after each pass, for everybody else to read.
// It is never changed once published.
type view struct {
	status status.Status
	// services tells whose a frontend is; draining, which backends drain.
	services map[lb.Frontend]lb.ServiceID
	draining map[lb.Drain]bool
	vips     int
	period   time.Duration
	counts   map[string]int // objects that are held, by lb.Kind
}

func (b *box) status() status.Status { return b.published.Load().status }

// publish makes a new view. What is held and whose it is are walked through after
// an audit or a reload, which did so anyway; in between counts follow the ops, so
// that one change costs as much with 10,000 services as with ten.
func (b *box) publish() {
	old := b.published.Load()
	v := &view{draining: map[lb.Drain]bool{}, period: b.cfg.Kernel.SyncPeriod}
	if old == nil || b.changed {
		b.held = newTally(b.rec.Have())
		v.services, v.vips = owners(b.rec.Catalog(), b.rec.Facts().Strangers)
		b.changed = false
	} else {
		v.services, v.vips = old.services, old.vips
	}
	v.counts = b.held.without(b.cfg.Kernel.Base(), b.rec.Have())
	s := &v.status
	s.Version, s.PID, s.Started = b.opts.Version, os.Getpid(), b.started
	s.Config = status.Config{File: b.opts.ConfigFile, Loaded: b.loaded, Error: errorText(b.reloadErr)}
	s.Kernel = status.Kernel{
		Release: kernelRelease(), IPTables: string(b.kernel.Backend(b.cfg.Kernel.Families[0])), Services: b.rec.Catalog().Len(),
		VirtualServers: v.counts["virtual_server"], RealServers: v.counts["real_server"],
		VIPs: v.vips, SetMembers: v.counts["member"],
		LastSync: b.lastPass, LastAudit: b.audits.last, Pending: b.rec.Pending(), Held: b.waiting,
		Drift: b.drift, Error: errorText(b.audits.err),
	}
	s.Notes, s.Drains = []status.Note{}, []status.Drain{}
	for _, n := range b.rec.Notes() {
		s.Notes = append(s.Notes, status.Note{Service: n.Service.String(), Reason: string(n.Reason), Text: n.Text})
	}
	for _, d := range b.rec.Drains() {
		s.Drains = append(s.Drains, status.Drain{Frontend: d.Frontend.String(), Backend: d.Backend.String(), Deadline: d.Deadline})
		v.draining[lb.Drain{Frontend: d.Frontend, Backend: d.Backend}] = true
	}
	s.State, s.Why = b.judge(s)
	b.published.Store(v)
}

// Count counts objects by lb.Kind, leaving out what weir needs for itself.
func Count(have lb.Snapshot, base lb.Base) map[string]int {
	return newTally(have).without(base, have)
}

// tally counts what the kernel holds of weir's, by lb.Kind.
type tally map[string]int

func newTally(have lb.Snapshot) tally {
	t := tally{}
	for _, o := range have {
		t[lb.Kind(o)]++
	}
	return t
}

// follow takes in ops that were applied.
func (t tally) follow(ops []lb.Op) {
	for _, op := range ops {
		switch op.Verb {
		case lb.Add:
			t[lb.Kind(op.Object)]++
		case lb.Delete:
			t[lb.Kind(op.Object)]--
		}
	}
}

// lose takes in that others took objects away; ops will bring them back.
func (t tally) lose(objects []lb.Object) {
	for _, o := range objects {
		t[lb.Kind(o)]--
	}
}

// without leaves out what weir needs for itself.
func (t tally) without(base lb.Base, have lb.Snapshot) map[string]int {
	counts := maps.Clone(t)
	for _, o := range base.Objects() {
		if _, held := have[o.ID()]; held {
			counts[lb.Kind(o)]--
		}
	}
	return counts
}

// owners tells whose each frontend is, and how many VIPs there are. A stranger's
// virtual server is nobody's, whoever would like to have it.
func owners(catalog *lb.Catalog, strangers map[lb.Frontend]bool) (services map[lb.Frontend]lb.ServiceID, vips int) {
	services = map[lb.Frontend]lb.ServiceID{}
	seen := map[netip.Addr]bool{}
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		for _, f := range svc.Frontends() {
			seen[f.Addr] = true
			if !strangers[f] {
				services[f] = catalog.Claimants(f)[0]
			}
		}
	}
	return services, len(seen)
}

// judge says how the box is, and why it is not ok.
func (b *box) judge(s *status.Status) (status.State, []string) {
	switch {
	case b.audits.err != nil:
		return status.Failed, []string{"the kernel can't be read: " + b.audits.err.Error()}
	case !b.ready:
		return status.Starting, []string{"the kernel does not hold the first state yet"}
	}
	var why []string
	if b.reloadErr != nil {
		why = append(why, "the last reload was refused: "+firstLine(b.reloadErr.Error()))
	}
	if s.Kernel.Pending > 0 {
		why = append(why, fmt.Sprintf("%d operations failed and are tried again", s.Kernel.Pending))
	}
	bad := slices.DeleteFunc(slices.Clone(s.Notes), func(n status.Note) bool { return lb.Reason(n.Reason) == lb.HostAddress })
	if len(bad) > 0 {
		why = append(why, fmt.Sprintf("%d notes", len(bad)))
	}
	for _, x := range b.checks.Backends() {
		switch x.Verdict {
		case "up":
			s.Backend.Up++
		case "down":
			s.Backend.Down++
		default:
			s.Backend.Unknown++
		}
	}
	s.Backend.Draining = len(s.Drains)
	if s.Backend.Down > 0 {
		why = append(why, fmt.Sprintf("%d of %d backends are down", s.Backend.Down, s.Backend.Up+s.Backend.Down+s.Backend.Unknown))
	}
	if len(why) > 0 {
		return status.Degraded, why
	}
	return status.OK, nil
}

// isAlive tells whether the loop still turns: it audits every sync_period. A
// pass over a very large table may take its time; two periods and a minute are
// more than that.
func (v *view) isAlive(now time.Time) bool {
	last := v.status.Kernel.LastSync
	return last.IsZero() || now.Sub(last) < 2*v.period+time.Minute
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func firstLine(s string) string {
	for i, r := range s {
		if r == '\n' {
			return s[:i] + " ..."
		}
	}
	return s
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
