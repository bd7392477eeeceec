package daemon

import (
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/lb"
)

// What the loop does with what clusters say.

// clusterPatience is how long READY waits for clusters to say what they have. An
// API server that is away for longer does not keep the box from its other work;
// what the kernel holds of its Services stays.
const clusterPatience = 4 * time.Second

// mayBegin tells whether READY need not wait for clusters any more.
func (b *box) mayBegin(now time.Time) bool {
	waiting := b.rec.Catalog().Waiting()
	if len(waiting) == 0 {
		return true
	}
	if now.Sub(b.started) < clusterPatience {
		return false
	}
	b.log.Warn("ready without clusters that have not answered; what the kernel holds of their Services stays", "clusters", waiting)
	return true
}

// patience is when waiting for clusters ends; the zero time once it has.
func (b *box) patience() time.Time {
	if b.ready || b.audits.err != nil {
		return time.Time{}
	}
	return b.started.Add(clusterPatience)
}

// trigger is a change of a cluster.
type trigger struct {
	service lb.ServiceID
	at      time.Time
}

// maxTriggers bounds the changes whose latency is taken while the kernel can't be
// written.
const maxTriggers = 10_000

// hear takes in what clusters have to say, and tells whether that was anything.
func (b *box) hear() bool {
	b.lend()
	updates := b.clusters.take()
	for _, u := range updates {
		b.causes.heardOf(u)
		if u.Synced && b.clusters.takeReloaded(u.Source) {
			b.fleet.hears(u)
			b.rec.Believe(u)
		} else {
			b.update(u)
		}
		for id, at := range u.Triggered {
			// What began before weir did says nothing of it.
			if at.After(b.started) && len(b.triggers) < maxTriggers {
				b.triggers = append(b.triggers, trigger{id, at})
			}
		}
	}
	b.moved = b.moved || len(updates) > 0
	return b.settleNode() || len(updates) > 0
}

// update has the Reconciler and the fleet know what a source says.
func (b *box) update(u lb.Update) {
	b.fleet.hears(u)
	b.rec.Update(u)
}

// programmed takes down how long ago the changes began that the kernel holds now.
// Those that it would not take count when it does; those that a guard holds say
// nothing of how fast weir is.
func (b *box) programmed(now time.Time) {
	if len(b.triggers) == 0 {
		return
	}
	unfinished := b.rec.Unfinished()
	b.triggers = slices.DeleteFunc(b.triggers, func(t trigger) bool {
		switch unfinished[t.service] {
		case lb.Failed:
			return false
		case lb.Held:
		default:
			b.metrics.latency.WithLabelValues(t.service.Source).Observe(max(0, now.Sub(t.at).Seconds()))
		}
		return true
	})
}

// clusterStatus is what there is to say of a cluster now.
func clusterStatus(f *followed, served int) status.Cluster {
	s, panics := f.status()
	out := status.Cluster{
		Name: f.cfg.Name, State: status.Connected, Since: s.Since, Error: s.Error, Heard: s.Heard, Stale: s.Stale,
		Services: served, Endpoints: s.Endpoints, Objects: s.Objects, Relists: s.Relists,
		Kinds: []string{}, Node: f.cfg.NodeName, FileError: s.SnapshotError,
		Events: s.Events, EventsError: s.EventsError, Panics: panics,
	}
	if out.Objects == nil {
		out.Objects = map[string]int{}
	}
	switch {
	case !s.Synced:
		out.State = status.Waiting
	case !s.Connected:
		out.State = status.Away
	}
	for _, k := range []lb.VIPKind{lb.ClusterIP, lb.NodePort, lb.ExternalIP, lb.LoadBalancer} {
		if f.cfg.Kinds[k] {
			out.Kinds = append(out.Kinds, k.String())
		}
	}
	return out
}

// followedOf are the clusters of a configuration, as they are followed.
func (b *box) followedOf(cfg *config.Config) []k8ssync.Config {
	out := make([]k8ssync.Config, len(cfg.Clusters))
	for i, c := range cfg.Clusters {
		out[i] = c.Config
		out[i].Version = b.opts.Version
		out[i].Refused = refused(cfg, i)
	}
	return out
}
