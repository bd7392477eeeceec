package daemon

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// drainer is what is drained, by whom, and how far that has come. The loop owns it; the
// zero value drains nothing and keeps it nowhere.
type drainer struct {
	drained drained // by an operator
	dir     string  // in which drained is kept
	err     error   // why it can't be read or written there
	// stopping is since when the whole box is drained because weir stops. That is kept
	// nowhere: the next start serves again.
	stopping time.Time
	stages   bgp.Drains
	kept     map[netip.Addr]struct{} // that stay at Shutting, for want of somebody else
	due      time.Time               // when a drain comes to its next stage
	version  uint64                  // changes when stages may have
	begun    bool                    // stages have been looked at

	// lastOne tells whether nobody would be left for a VIP that goes from here, or, if it
	// is gone already, whether nobody is; owner names who is to have it, "" if nobody, and
	// tells whether he says that he does. Both are nil where there is no fleet.
	lastOne func(a netip.Addr, gone bool) bool
	owner   func(netip.Addr) (name string, has bool)
	// handsOver tells whether this box still has, or nobody has, what the replies of
	// backends come back through: routers ask for others when those can serve.
	handsOver func() bool
}

// newDrainer finds what was drained before.
func newDrainer(dir string, log *slog.Logger) drainer {
	d := drainer{dir: dir}
	if d.drained, d.err = loadDrained(dir); d.err != nil {
		log.Error("the drain state is lost", "error", d.err)
	}
	if d.drained.any() {
		log.Warn("drained, as before the start", "all", !d.drained.all.IsZero(), "vips", len(d.drained.vips))
	}
	return d
}

// set replaces what an operator drains. What can't be written to the disk is in force
// nevertheless: the operator wants it now, and the status says that it will not
// survive.
func (d *drainer) set(to drained) {
	d.drained, d.err = to, to.save(d.dir)
}

// move keeps what is drained in another folder from now on.
func (d *drainer) move(dir string) {
	if dir == d.dir {
		return
	}
	if d.dir = dir; d.drained.any() {
		d.err = d.drained.save(dir)
	}
}

// wanted is what is drained by anybody.
func (d *drainer) wanted() drained {
	out := d.drained
	if out.all.IsZero() {
		out.all = d.stopping
	}
	return out
}

// advance does what is due by now. Routes are withdrawn delay after the begin of a
// drain; vips are those of the box.
func (d *drainer) advance(now time.Time, delay time.Duration, vips []netip.Addr) {
	stages, due := d.wanted().stages(now, delay)
	if all := d.wanted().all; stages.All == bgp.Shutting && d.handsOver != nil {
		if end := all.Add(handoverPatience); now.Before(end) && d.handsOver() {
			stages.All, due = bgp.NotDrained, soonest(due, end)
		}
	}
	d.due = due
	stages, d.kept = d.spare(stages, vips)
	d.begun = true
	if stages.All != d.stages.All || !maps.Equal(stages.VIPs, d.stages.VIPs) {
		d.stages = stages
		d.version++
	}
}

// spare has those of vips stay at Shutting that no other member can serve, unless an
// operator has said that they are to go nevertheless: the last box that serves a VIP
// leaves it for want of a backend alone. One that is gone from here, or was before the
// start, does not return because the box that has it is drained too: that one keeps it.
func (d *drainer) spare(stages bgp.Drains, vips []netip.Addr) (bgp.Drains, map[netip.Addr]struct{}) {
	if d.lastOne == nil {
		return stages, nil
	}
	var kept map[netip.Addr]struct{}
	for _, a := range vips {
		gone := !d.begun || d.stage(a) == bgp.Drained
		if stageOf(stages, a) == bgp.Drained && !d.drained.isForced(a) && d.lastOne(a, gone) {
			if kept == nil {
				kept = map[netip.Addr]struct{}{}
			}
			kept[a] = struct{}{}
		}
	}
	if kept == nil {
		return stages, nil
	}
	out := bgp.Drains{All: min(stages.All, bgp.Shutting), VIPs: map[netip.Addr]bgp.Stage{}}
	for a, s := range stages.VIPs {
		out.VIPs[a] = s
	}
	for _, a := range vips {
		if s := stageOf(stages, a); s != bgp.NotDrained {
			out.VIPs[a] = s
		}
	}
	for a := range kept {
		out.VIPs[a] = bgp.Shutting
	}
	return out, kept
}

func stageOf(d bgp.Drains, a netip.Addr) bgp.Stage { return max(d.All, d.VIPs[a]) }

// stage is how far a VIP is drained: NotDrained, Shutting (it is led elsewhere, or
// would be if anybody else could serve it) or Drained.
func (d *drainer) stage(a netip.Addr) bgp.Stage { return stageOf(d.stages, a) }

// all is how far the whole box is; Drained not before every VIP is.
func (d *drainer) all() bgp.Stage { return d.stages.All }

// doc is what is drained, without the connections and without those VIPs that are
// drained only because the whole box is.
func (d *drainer) doc(delay time.Duration) *status.Drained {
	doc := &status.Drained{
		VIPs: []status.DrainedVIP{}, Error: errorText(d.err), Stopping: !d.stopping.IsZero(), Kept: len(d.kept),
	}
	if all := d.wanted().all; !all.IsZero() {
		s := drainState(all, d.stages.All, delay)
		doc.All = &s
	}
	for _, a := range d.drained.sorted() {
		doc.VIPs = append(doc.VIPs, d.vip(a, d.drained.vips[a], delay))
	}
	return doc
}

// vip is how far one is that is drained since some time.
func (d *drainer) vip(a netip.Addr, since time.Time, delay time.Duration) status.DrainedVIP {
	out := status.DrainedVIP{Address: a.String(), DrainState: drainState(since, d.stage(a), delay)}
	_, out.Kept = d.kept[a]
	if d.owner == nil {
		return out
	}
	if name, has := d.owner(a); has {
		out.Owner = name
	} else {
		out.Moving = name != ""
	}
	return out
}

func drainState(since time.Time, stage bgp.Stage, delay time.Duration) status.DrainState {
	out := status.DrainState{Stage: status.Shutting, Since: since, Withdraws: since.Add(delay)}
	if stage == bgp.Drained {
		out.Stage = status.Withdrawn
	}
	return out
}

// leadsElsewhere tells whether a configuration has anything by which clients can be
// led to another box: routers, neighbors, or a fleet.
func leadsElsewhere(cfg *config.Config) bool {
	return cfg.BGP != nil || cfg.L2 != nil || cfg.Fleet != nil
}

// drainDelay is how long a drain asks for others to be preferred before it withdraws.
// Without routers nobody has to be asked: a fleet moves what is drained at once. A stop
// has no more time than it has, and withdraws in any case.
func (b *box) drainDelay() time.Duration {
	if b.cfg.BGP == nil {
		return 0
	}
	if b.drainer.stopping.IsZero() {
		return b.cfg.BGP.DrainDelay
	}
	return min(b.cfg.BGP.DrainDelay, b.cfg.Daemon.StopTimeout/2)
}

// vips are those of the box that clients outside can be led to, sorted: a router can be
// told of any address, and what is inside a cluster is for no neighbor.
func (b *box) vips() []netip.Addr {
	catalog, seen := b.rec.Catalog(), map[netip.Addr]struct{}{}
	for _, id := range catalog.IDs() {
		svc, _ := catalog.Get(id)
		for _, v := range svc.VIPs {
			if v.Kind == lb.LoadBalancer || v.Kind == lb.ExternalIP || v.Kind == lb.ClusterIP && b.cfg.BGP != nil {
				seen[v.Addr] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare)
}

// drainOn has drains come to the stage that is due. Nothing is drained on most boxes
// most of the time, and then their VIPs are not looked at.
func (b *box) drainOn(now time.Time) {
	var vips []netip.Addr
	if b.drainer.lastOne != nil && (b.drainer.drained.any() || !b.drainer.stopping.IsZero()) {
		vips = b.vips()
	}
	b.drainer.advance(now, b.drainDelay(), vips)
}
