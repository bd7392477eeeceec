package daemon

import (
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/lb"
	"weir/lb/linux"
)

// view is what the loop publishes after each pass, for everybody else to read.
// It is never changed once published.
type view struct {
	// status is as of the pass, but for what changes by itself: see box.status.
	status   status.Status
	ready    bool
	draining map[lb.Drain]bool
	clusters []*followed // by name
	served   map[string]int
	period   time.Duration
	counts   map[string]int // objects that are held, by lb.Kind
	speaking speaking
	pools    k8ssync.ProviderConfig
	pooled   bool // there are pools, or were
	numbers  fleetNumbers
}

// status is how the box is now: what the loop has published, and what the checks
// and the clusters say at this moment. Safe for concurrent use.
func (b *box) status() status.Status { return b.statusWith(b.addresses()) }

// statusWith is status with what has been asked about addresses already.
func (b *box) statusWith(addresses *status.Addresses) status.Status {
	v := b.published.Load()
	s := v.status
	if !v.ready && s.Kernel.Error == "" {
		s.State, s.Why = status.Starting, []string{"the kernel does not hold the first state yet"}
		return s
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
	s.Clusters = v.clusterStatuses()
	s.BGP = b.bgpStatus()
	s.Addresses = addresses
	s.Judge(time.Now())
	return s
}

// clusterStatuses asks the clusters what they say of themselves now.
func (v *view) clusterStatuses() []status.Cluster {
	out := make([]status.Cluster, len(v.clusters))
	for i, f := range v.clusters {
		out[i] = clusterStatus(f, v.served[f.cfg.Name])
	}
	return out
}

// isHealthy tells whether the box does its work: the kernel holds what it should,
// and the loop turns, which keeps it so.
func (b *box) isHealthy() bool {
	v := b.published.Load()
	return v.ready && v.status.Kernel.Error == "" && v.isAlive(time.Now())
}

// isLeaving tells whether the box's own Node is being deleted, or about to be by
// the cluster autoscaler: balancers before it are to send new clients elsewhere
// while it still serves those that it has (KEP-3836).
func (v *view) isLeaving() bool {
	for _, f := range v.clusters {
		if f.cfg.NodeName != "" {
			if s, _ := f.status(); s.NodeLeaving {
				return true
			}
		}
	}
	return false
}

// isDrained tells whether the whole box is, so that whoever else leads clients here
// leads them elsewhere too. The status says so.
func (v *view) isDrained() bool { return v.status.Drained != nil && v.status.Drained.All != nil }

// publish makes a new view. What is held is walked through after an audit or a
// reload, which did so anyway; in between counts follow the ops, so that one
// change costs as much with 10,000 services as with ten.
func (b *box) publish() {
	v := &view{ready: b.ready, draining: map[lb.Drain]bool{}, served: map[string]int{}, period: b.cfg.Kernel.SyncPeriod}
	if b.published.Load() == nil || b.changed {
		b.held = newTally(b.rec.Have())
		if b.mode.Use == linux.ModeIPTables {
			b.cant.look(b.rec.Have())
		}
		b.changed = false
	}
	v.counts = b.held.without(Base(b.cfg, b.mode), b.rec.Have())
	for _, name := range b.clusters.names() {
		v.clusters = append(v.clusters, b.clusters.all[name])
		v.served[name] = b.rec.Catalog().LenOf(name)
	}
	catalog := b.rec.Catalog()
	s := &v.status
	s.Version, s.PID, s.Started = b.opts.Version, os.Getpid(), b.started
	s.Config = status.Config{File: b.opts.ConfigFile, Loaded: b.loaded, Error: errorText(b.reloadErr)}
	b.trialStatus(&s.Config)
	s.Kernel = status.Kernel{
		Release: kernelRelease(), Mode: string(b.mode.Use), Fallback: b.mode.Fallback,
		IPTables: string(b.kernel.Backend(b.cfg.Kernel.Families[0])), Services: catalog.Len(),
		VirtualServers: v.counts["virtual_server"], RealServers: v.counts["real_server"],
		VIPs: catalog.VIPs(), SetMembers: v.counts["member"],
		LastSync: b.lastPass, LastAudit: b.audits.last, Pending: b.rec.Pending(), Held: b.waiting,
		Drift: b.drift, Error: errorText(b.audits.err),
	}
	s.Clusters, s.Drains, s.Held = []status.Cluster{}, []status.Drain{}, holdsOf(b.holds)
	v.speaking = b.announcer.speaking()
	v.pools, v.pooled = b.cfg.Addresses, b.pooled
	if leadsElsewhere(b.cfg) {
		s.Drained = b.drainer.doc(b.drainDelay())
	}
	if f := b.fleet; f != nil {
		s.Fleet, s.L2, v.numbers = f.glance(time.Now()), f.answer.doc, f.numbers()
	}
	s.Notes = b.note()
	for _, d := range b.rec.Drains() {
		s.Drains = append(s.Drains, status.Drain{Frontend: d.Frontend.String(), Backend: d.Backend.String(), Deadline: d.Deadline})
		v.draining[lb.Drain{Frontend: d.Frontend, Backend: d.Backend}] = true
	}
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

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
