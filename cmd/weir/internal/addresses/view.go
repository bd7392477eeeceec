package addresses

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// Allocator assigns addresses: a k8ssync.Provider, or that of a test.
type Allocator interface {
	Configure(cfg k8ssync.ProviderConfig)
	Follow(clusters map[string]*k8ssync.Cluster)
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Summary() (k8ssync.ProviderStatus, []lb.Note)
	Status() k8ssync.ProviderStatus
	Counters() k8ssync.ProviderCounters
	OutsidePool(cfg ipam.Config) []ipam.Note
	TakeLatencies() []time.Duration
}

// View are the pools of a configuration, with an allocator that answers at any time. The zero value has none.
type View struct {
	allocator Allocator
	cfg       k8ssync.ProviderConfig
	active    bool
	last      Summary
}

// Status returns the state of the allocator; the zero value without pools.
func (v View) Status() k8ssync.ProviderStatus {
	if !v.active {
		return k8ssync.ProviderStatus{}
	}
	return v.allocator.Status()
}

// Doc returns the pools and their use.
func (v View) Doc() status.Pools { return poolsDoc(v.cfg, v.Status()) }

// Summary returns the use of all pools together, as the last pass found it; nil without pools. It costs nothing.
func (v View) Summary() *status.Addresses { return v.last.Addresses }

// Numbers returns the state of the last pass with the counters of now; nil without pools. Its cost does not depend on the
// number of Services.
func (v View) Numbers() *k8ssync.ProviderStatus {
	if v.last.numbers == nil {
		return nil
	}
	now := *v.last.numbers
	now.Counters = v.allocator.Counters()
	return &now
}

// Explain returns how an address came to its Services; nil if it is of no pool.
func (v View) Explain(addr netip.Addr) *explain.Assigned {
	if !v.active {
		return nil
	}
	given := explain.Assigned{Pool: poolOf(v.cfg.IPAM, addr)}
	for _, a := range v.Doc().Addresses {
		if a.Address == addr.String() {
			given.Pool, given.State, given.Services, given.Until, given.OutsidePool = a.Pool, a.State, a.Services, a.Until, a.OutsidePool
			if a.State != status.AddressReserved {
				given.Claim = strings.Join([]string{"lease", v.cfg.Namespace + "/" + ipam.Name(addr), "of cluster", v.cfg.LeaseCluster}, " ")
			}
		}
	}
	if given.Pool == "" && given.State == "" {
		return nil
	}
	return &given
}

// poolsDoc joins the pools of a configuration with their use.
func poolsDoc(cfg k8ssync.ProviderConfig, s k8ssync.ProviderStatus) status.Pools {
	doc := status.Pools{
		Pools: []status.Pool{}, Addresses: []status.PoolAddress{}, Pending: []status.Pending{},
		Writer: writerDoc(s), IgnoredNodes: ignoredDoc(s),
	}
	for _, u := range s.Usage.Pools {
		doc.Pools = append(doc.Pools, poolDoc(cfg, u))
	}
	outside := map[netip.Addr]string{}
	for _, d := range s.Decisions {
		if p := d.Pending; p.Reason != "" {
			doc.Pending = append(doc.Pending, status.Pending{Service: d.Service.String(), Reason: string(p.Reason), Text: p.Text()})
		}
		for _, n := range d.Notes {
			if n.Reason == ipam.OutsidePool {
				outside[n.Addr] = n.Text
			}
		}
	}
	claimed := map[netip.Addr]bool{}
	for _, c := range s.Claims {
		claimed[c.Addr] = true
		doc.Addresses = append(doc.Addresses, claimDoc(cfg, c, outside[c.Addr]))
	}
	for _, r := range cfg.IPAM.Reservations {
		for _, a := range r.Addrs {
			if !claimed[a] {
				doc.Addresses = append(doc.Addresses, status.PoolAddress{
					Address: a.String(), Pool: poolOf(cfg.IPAM, a), Services: []string{r.Service.String()}, State: status.AddressReserved,
				})
			}
		}
	}
	slices.SortStableFunc(doc.Addresses, func(x, y status.PoolAddress) int {
		return netip.MustParseAddr(x.Address).Compare(netip.MustParseAddr(y.Address))
	})
	return doc
}

func poolDoc(cfg k8ssync.ProviderConfig, u ipam.PoolUsage) status.Pool {
	out := status.Pool{
		Name: u.Name, Ranges: []string{}, Size: status.Amount(u.Size.Float64()), Used: u.Used, Retained: u.Retained, Reserved: u.Reserved,
		Foreign: u.Taken, Avoided: u.Avoided, Free: status.Amount(u.Free.Float64()), OutsidePool: u.OutsidePool, Pending: pendingDoc(u.Pending),
	}
	for _, p := range cfg.IPAM.Pools {
		if p.Name != u.Name {
			continue
		}
		out.Priority, out.AutoAssign = p.Priority, p.AutoAssign
		for _, r := range p.Ranges {
			out.Ranges = append(out.Ranges, r.String())
		}
	}
	return out
}

func pendingDoc(pending map[ipam.Reason]int) map[string]int {
	out := map[string]int{}
	for reason, n := range pending {
		out[string(reason)] = n
	}
	return out
}

// claimDoc returns an address that is claimed.
func claimDoc(cfg k8ssync.ProviderConfig, c ipam.Claim, outside string) status.PoolAddress {
	out := status.PoolAddress{
		Address: c.Addr.String(), Pool: poolOf(cfg.IPAM, c.Addr), Services: []string{}, State: status.AddressRetained, OutsidePool: outside,
	}
	for _, h := range c.Holders {
		out.Services = append(out.Services, h.Service.String())
		switch until := h.Released.Add(cfg.IPAM.Retention); {
		case h.Released.IsZero():
			out.State = status.AddressUsed
		case until.After(out.Until):
			out.Until = until
		}
	}
	if out.State == status.AddressUsed {
		out.Until = time.Time{}
	}
	return out
}

// poolOf returns the pool that has an address, "" if none has.
func poolOf(cfg ipam.Config, a netip.Addr) string {
	for _, p := range cfg.Pools {
		if slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) }) {
			return p.Name
		}
	}
	return ""
}

func writerDoc(s k8ssync.ProviderStatus) status.Writer {
	out := status.Writer{Cluster: s.LeaseCluster, Holder: s.Writer, Self: s.Writing, Since: s.Since, Error: s.Error, Unreadable: s.Clusters}
	if out.Cluster == "" {
		out.Error = "there is no [[kubernetes]] with Services that could have them"
	}
	return out
}

// ignoredDoc returns the clusters with ignored addresses of Nodes, by name.
func ignoredDoc(s k8ssync.ProviderStatus) (out []status.IgnoredNodes) {
	for _, name := range slices.Sorted(maps.Keys(s.IgnoredNodes)) {
		x := s.IgnoredNodes[name]
		if x.Count == 0 {
			continue
		}
		doc := status.IgnoredNodes{Cluster: name, Count: x.Count, Addresses: []string{}}
		for _, a := range x.First {
			doc.Addresses = append(doc.Addresses, a.String())
		}
		out = append(out, doc)
	}
	return out
}

// summaryDoc returns the use of all pools together.
func summaryDoc(s k8ssync.ProviderStatus) *status.Addresses {
	doc := &status.Addresses{
		Pools: len(s.Usage.Pools), Pending: pendingDoc(s.Usage.Pending),
		OutsidePool: s.Usage.OutsidePool, Writer: writerDoc(s), IgnoredNodes: ignoredDoc(s),
	}
	for _, u := range s.Usage.Pools {
		doc.Used += u.Used
		doc.Retained += u.Retained
		doc.Free += status.Amount(u.Free.Float64())
	}
	return doc
}
