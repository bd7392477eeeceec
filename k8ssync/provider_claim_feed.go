package k8ssync

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"weir/k8ssync/ipam"
)

// claimResource are the claims, and the lease of the writer: Leases of one namespace of
// the lease cluster.
var claimResource = resource{
	name: "leases", group: coordinationv1.GroupName, list: &coordinationv1.LeaseList{},
	client: func(c *client) rest.Interface { return c.claims },
	read: func(o runtime.Object) any {
		if l, ok := o.(*coordinationv1.Lease); ok {
			if l.Name == writerLease {
				return l
			}
			if c, ok := claimOf(l); ok {
				return &c
			}
		}
		return nil
	},
}

// followClaims watches the claims until ctx ends, in each session of the lease cluster.
func followClaims(ctx context.Context, p *providerState) {
	for {
		if sess, namespace, err := p.leaseCluster(); err == nil {
			p.claims.namespace = namespace
			reason := errors.New("the lease cluster is being reconnected")
			if p.followUntilRoom(ctx, sess) {
				reason = errRoom
			}
			p.claims.broken(reason)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.gathered:
		}
	}
}

// claimSink passes claims to the Allocator.
type claimSink struct{ p *providerState }

// put implements sink.
func (s claimSink) put(it *item) string {
	if lease, ok := it.object.(*coordinationv1.Lease); ok {
		s.observe(lease, version(lease.ResourceVersion))
		return ""
	}
	c := it.object.(*ipam.Claim) //nolint:forcetypeassert // claimResource reads nothing else
	full := ""
	s.p.locked(func() {
		s.p.alloc.Learn(*c)
		s.p.passed(c.Version)
		full = s.p.ignored(c)
	})
	s.p.update()
	return full
}

// passed records the version of an event of the watch. p.mu is held.
func (p *providerState) passed(version uint64) {
	p.highest = max(p.highest, version)
	p.alloc.Passed(version)
}

// observe passes the writer's lease, nil if it is gone, to the election.
func (s claimSink) observe(lease *coordinationv1.Lease, at uint64) {
	changed := false
	s.p.locked(func() { changed = s.p.election.observe(lease, at, time.Now()) })
	if changed {
		s.p.update()
	}
}

// drop implements sink.
func (s claimSink) drop(_ string, k key, version uint64) {
	if k.Name == writerLease {
		s.observe(nil, version)
		return
	}
	addr, err := ipam.ParseName(k.Name)
	if err != nil {
		return
	}
	s.p.locked(func() {
		s.p.alloc.Gone(addr, version)
		s.p.passed(version)
	})
	s.p.update()
}

// replace implements sink. A list older than an earlier one, or than an event, is that of a
// cluster restored from a backup: the known versions are void, and everything is read
// again.
func (s claimSink) replace(_ string, _ []key, list []*item, version uint64) string {
	all := make([]ipam.Claim, 0, len(list))
	var writer *coordinationv1.Lease
	for _, it := range list {
		if lease, ok := it.object.(*coordinationv1.Lease); ok {
			writer = lease
			continue
		}
		all = append(all, *it.object.(*ipam.Claim)) //nolint:forcetypeassert // as above
	}
	restored, cluster := false, ""
	s.p.locked(func() {
		restored, cluster = version < s.p.highest, s.p.cfg.LeaseCluster
		s.p.highest = version
		if !restored {
			s.p.alloc.Relist(version, all, s.p.intake)
		}
	})
	if restored {
		s.p.log.Warn("lease cluster restored from a backup, all addresses are read again", "cluster", cluster)
		s.p.again()
		return ""
	}
	s.observe(writer, version)
	return ""
}
