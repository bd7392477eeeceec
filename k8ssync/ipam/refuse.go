package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weir/lb"
)

// refusal returns why an address is not available, with the nearest that is.
func (a *inventory) refusal(r *Request, x netip.Addr, reason Reason, rule string) Pending {
	return Pending{Reason: reason, Pool: a.poolName(x), Rule: fmt.Sprintf("%v is %s", x, rule), Near: a.nearest(r, lb.FamilyOf(x))}
}

func (a *inventory) notInPool(r *Request, x netip.Addr) Pending {
	return Pending{Reason: AddressNotInPool, Pool: r.Pool, Rule: fmt.Sprintf("%v is in no pool", x), Near: a.nearest(r, lb.FamilyOf(x))}
}

func (a *inventory) wrongPool(r *Request, x netip.Addr, p *Pool) Pending {
	text := fmt.Sprintf("%v is in pool %q, not in %q, which %v requests: request an address of that pool, or the pool of that address", x, p.Name, r.Pool, r.ID)
	return Pending{Reason: AddressNotInPool, Pool: r.Pool, Rule: text}
}

// nothing returns why no address was found.
func (a *inventory) nothing(r *Request, f lb.Family) Pending {
	if out := a.candidates(r, f); len(out) > 0 {
		for _, p := range out {
			if reason := a.limited(p.Pool, r, f); reason != "" {
				return Pending{Reason: NamespaceLimit, Pool: p.Name, Rule: reason}
			}
		}
		return a.exhausted(r, f, out)
	}
	var admit []*pool
	for _, p := range a.pools {
		if a.admits(p, r) {
			admit = append(admit, p)
		}
	}
	if len(admit) > 0 {
		return a.familyMissing(r, f, admit)
	}
	return a.noPool(r, f)
}

// noPool returns why no pool is suitable.
func (a *inventory) noPool(r *Request, f lb.Family) Pending {
	near := a.nearest(r, f)
	if r.Pool != "" {
		p := a.named(r.Pool)
		if p == nil {
			return Pending{Reason: NoPool, Rule: fmt.Sprintf("there is no pool %q", r.Pool), Near: near}
		}
		return Pending{Reason: NotAllowed, Pool: r.Pool, Rule: p.refuses(r), Near: near}
	}
	var reasons []string
	for _, p := range a.pools {
		if refused := p.refuses(r); refused != "" {
			reasons = append(reasons, refused)
		} else {
			reasons = append(reasons, fmt.Sprintf("pool %q is only for Services that request it (auto_assign)", p.Name))
		}
	}
	if len(reasons) == 0 {
		return Pending{Reason: NoPool, Rule: "there are no pools: add a [[pool]]"}
	}
	return Pending{Reason: NoPool, Rule: list(reasons), Near: near}
}

func (a *inventory) familyMissing(r *Request, f lb.Family, pools []*pool) Pending {
	pool := ""
	if len(pools) == 1 {
		pool = pools[0].Name
	}
	return Pending{Reason: FamilyMissing, Pool: pool, Rule: fmt.Sprintf("%s no %v addresses", poolList(pools, "has", "have"), f), Near: a.nearest(r, f)}
}

func (a *inventory) exhausted(r *Request, f lb.Family, pools []*pool) Pending {
	return Pending{Reason: PoolExhausted, Pool: pools[0].Name, Rule: fmt.Sprintf("%s no free %v address", poolList(pools, "has", "have"), f), Near: a.nearest(r, f)}
}

// nearest returns the first address that a Service could get by a request, as text.
func (a *inventory) nearest(r *Request, f lb.Family) string {
	for _, p := range a.pools {
		if p.refuses(r) != "" {
			continue
		}
		for _, s := range p.spans {
			if lb.FamilyOf(s.First) != f {
				continue
			}
			if x := a.lowest(s); x.IsValid() {
				return fmt.Sprintf("the nearest available address is %v of pool %q", x, p.Name)
			}
		}
	}
	return fmt.Sprintf("no pool that admits it has a free %v address", f)
}

// holders returns the holders of an address as text.
func holders(x netip.Addr, others []Holder, after time.Duration) string {
	var names []string
	var until time.Time
	for _, h := range others {
		names = append(names, h.Service.String())
		if free := h.Released.Add(after); free.After(until) {
			until = free
		}
	}
	if (&Claim{Addr: x, Holders: others}).retained() {
		return fmt.Sprintf("kept for %s until %s", list(names), until.Format(time.RFC3339))
	}
	return "the address of " + list(names)
}

func poolList(pools []*pool, one, more string) string {
	if len(pools) == 1 {
		return fmt.Sprintf("pool %q %s", pools[0].Name, one)
	}
	var names []string
	for _, p := range pools {
		names = append(names, fmt.Sprintf("%q", p.Name))
	}
	return fmt.Sprintf("pools %s %s", strings.Join(names, ", "), more)
}
