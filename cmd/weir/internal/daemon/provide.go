package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
)

// What the daemon does about giving addresses.

// provider gives addresses: a k8ssync.Provider, or a test's.
type provider interface {
	Configure(cfg k8ssync.ProviderConfig)
	Follow(clusters map[string]*k8ssync.Cluster)
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Notes() []lb.Note
	Status() k8ssync.ProviderStatus
	Stranded(cfg ipam.Config) []ipam.Note
	TakeLatencies() []time.Duration
}

// identity tells this process from all others that may give addresses. One that
// starts again is another one: what the old one was about to write is void.
func identity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "weir"
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails
	return host + "_" + hex.EncodeToString(salt[:])
}

// providerConfig is [addresses] with the pools, for this process.
func (b *box) providerConfig(cfg *config.Config) k8ssync.ProviderConfig {
	out := cfg.Addresses
	out.Identity = b.identity
	return out
}

// pool begins to give addresses when a configuration has some to give. It goes on
// when a later one has none.
func (b *box) pool(cfg *config.Config) {
	if b.pooled || len(cfg.Addresses.IPAM.Pools) == 0 {
		return
	}
	b.pooled, b.provided.stale = true, true
	close(b.toGive)
}

// provide gives addresses from when there are some until ctx ends, again and again if
// need be: giving them must not harm the box that serves them.
func provide(ctx context.Context, toGive <-chan struct{}, p provider, log *slog.Logger) error {
	select {
	case <-ctx.Done():
	case <-toGive:
	}
	for ctx.Err() == nil {
		if err := provideOnce(ctx, p); err != nil && ctx.Err() == nil {
			log.Error("giving addresses has failed; those that are given stay, and it begins anew", "error", err, "in", panicPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(panicPause):
		}
	}
	return nil
}

func provideOnce(ctx context.Context, p provider) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return p.Run(ctx)
}

// lend tells the provider which clusters there are, if they are others than before.
func (b *box) lend() {
	now := map[string]*k8ssync.Cluster{}
	for name, f := range b.clusters.all {
		if c, ok := f.now().(*k8ssync.Cluster); ok {
			now[name] = c
		}
	}
	if !maps.Equal(now, b.lent) {
		b.lent = now
		b.provider.Follow(now)
	}
}

// provided is what the provider said when the loop last asked. To ask costs some work
// for each Service that wants an address, and while many are given one there is
// something new twenty times a second.
type provided struct {
	asked     time.Time // zero: never
	stale     bool      // there is something new
	notes     []lb.Note
	addresses *status.Addresses
}

// askAgain is how often the loop asks at most.
const askAgain = 3 * time.Second

// next is when there is something to ask; the zero time: not by itself.
func (p *provided) next() time.Time {
	if !p.stale {
		return time.Time{}
	}
	return p.asked.Add(askAgain)
}

// ask gives what the provider says, or said not long ago.
func (b *box) ask(now time.Time) *provided {
	p := &b.provided
	if !p.asked.IsZero() && (!p.stale || now.Before(p.next())) {
		return p
	}
	*p = provided{asked: now, notes: b.provider.Notes()}
	if b.pooled {
		p.addresses = addressesDoc(b.provider.Status())
	}
	return p
}

// given takes down how long it took to give addresses.
func (b *box) given() {
	b.provided.stale = true
	for _, d := range b.provider.TakeLatencies() {
		b.metrics.assigning.Observe(d.Seconds())
	}
}

// pools are the pools and their use.
func (b *box) pools() status.Pools {
	return poolsDoc(b.published.Load().pools, b.providerStatus())
}

// providerStatus is the zero value where there have never been pools.
func (b *box) providerStatus() k8ssync.ProviderStatus {
	if !b.published.Load().pooled {
		return k8ssync.ProviderStatus{}
	}
	return b.provider.Status()
}

// addresses are the pools at a glance; nil where there have never been any.
func (b *box) addresses() *status.Addresses {
	if !b.published.Load().pooled {
		return nil
	}
	return addressesDoc(b.provider.Status())
}

// poolsDoc joins the pools of a configuration with what is known of them.
func poolsDoc(cfg k8ssync.ProviderConfig, s k8ssync.ProviderStatus) status.Pools {
	doc := status.Pools{
		Pools: []status.Pool{}, Addresses: []status.PoolAddress{}, Pending: []status.Pending{},
		Writer: writerDoc(s),
	}
	for _, u := range s.Usage.Pools {
		doc.Pools = append(doc.Pools, poolDoc(cfg, u))
	}
	stranded := map[netip.Addr]string{}
	for _, d := range s.Decisions {
		if why := d.Pending; why.Reason != "" {
			doc.Pending = append(doc.Pending, status.Pending{Service: d.Service.String(), Reason: string(why.Reason), Text: why.Text})
		}
		for _, n := range d.Notes {
			if n.Reason == ipam.PoolStranded {
				stranded[n.Addr] = n.Text
			}
		}
	}
	claimed := map[netip.Addr]bool{}
	for _, c := range s.Claims {
		claimed[c.Addr] = true
		doc.Addresses = append(doc.Addresses, claimDoc(cfg, c, stranded[c.Addr]))
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
		Name: u.Name, Ranges: []string{}, Size: status.Amount(u.Size.Float64()), Used: u.Used, Held: u.Held, Reserved: u.Reserved,
		Taken: u.Taken, Avoided: u.Avoided, Free: status.Amount(u.Free.Float64()), Stranded: u.Stranded, Pending: pendingDoc(u.Pending),
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
	for why, n := range pending {
		out[string(why)] = n
	}
	return out
}

// claimDoc is one address that is claimed.
func claimDoc(cfg k8ssync.ProviderConfig, c ipam.Claim, stranded string) status.PoolAddress {
	out := status.PoolAddress{
		Address: c.Addr.String(), Pool: poolOf(cfg.IPAM, c.Addr), Services: []string{}, State: status.AddressHeld, Stranded: stranded,
	}
	for _, h := range c.Holders {
		out.Services = append(out.Services, h.Service.String())
		switch until := h.Released.Add(cfg.IPAM.ReleaseAfter); {
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

// poolOf names the pool that has an address, "" if none has.
func poolOf(cfg ipam.Config, a netip.Addr) string {
	for _, p := range cfg.Pools {
		if slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Contains(a) }) {
			return p.Name
		}
	}
	return ""
}

func writerDoc(s k8ssync.ProviderStatus) status.Writer {
	out := status.Writer{Home: s.Home, Holder: s.Writer, Me: s.Writing, Since: s.Since, Error: s.Error, Unread: s.Clusters}
	if out.Home == "" {
		out.Error = "there is no [[kubernetes]] whose Services could have them"
	}
	return out
}

// addressesDoc is the same at a glance.
func addressesDoc(s k8ssync.ProviderStatus) *status.Addresses {
	doc := &status.Addresses{
		Pools: len(s.Usage.Pools), Pending: pendingDoc(s.Usage.Pending),
		Writer: writerDoc(s),
	}
	for _, u := range s.Usage.Pools {
		doc.Used += u.Used
		doc.Held += u.Held
		doc.Stranded += u.Stranded
		doc.Free += status.Amount(u.Free.Float64())
	}
	return doc
}

// explainGiven tells how an address came to its Services.
func (b *box) explainGiven(doc *status.Explanation, addr netip.Addr) {
	v := b.published.Load()
	if !v.pooled {
		return
	}
	cfg := v.pools
	given := status.Given{Pool: poolOf(cfg.IPAM, addr)}
	for _, a := range b.pools().Addresses {
		if a.Address == addr.String() {
			given.Pool, given.State, given.Services, given.Until, given.Stranded = a.Pool, a.State, a.Services, a.Until, a.Stranded
			if a.State != status.AddressReserved {
				given.Claim = strings.Join([]string{"lease", cfg.Namespace + "/" + ipam.Name(addr), "of cluster", cfg.Home}, " ")
			}
		}
	}
	if given.Pool != "" || given.State != "" {
		doc.Address = &given
	}
}
