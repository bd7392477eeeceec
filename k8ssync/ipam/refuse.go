package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// prefix begins the annotations by which Services ask.
const prefix = "weir/"

// asked gives the address asked for in a family.
func (r *Request) asked(f lb.Family) (netip.Addr, bool) {
	for _, x := range r.Addrs {
		if lb.FamilyOf(x) == f {
			return x, true
		}
	}
	return netip.Addr{}, false
}

// before tells whether a Service is older.
func (r *Request) before(o *Request) bool {
	return cmp.Or(r.Created.Compare(o.Created), r.ID.Compare(o.ID)) < 0
}

// contradiction tells what a Service can't mean.
func (r *Request) contradiction() Pending {
	if r.Bad != "" {
		return Pending{Reason: BadRequest, Text: r.Bad}
	}
	families := sortFamilies(r.Required, r.Preferred)
	if len(families) == 0 {
		return Pending{Reason: BadRequest, Text: fmt.Sprintf("%v has no IP family: give it spec.ipFamilies", r.ID)}
	}
	for i, x := range r.Addrs {
		if i > 0 && x.Is4() == r.Addrs[i-1].Is4() {
			return Pending{Reason: BadRequest, Text: fmt.Sprintf("%v asks for %v and %v: ask for one address of a family", r.ID, r.Addrs[i-1], x)}
		}
		if f := lb.FamilyOf(x); !slices.Contains(families, f) {
			return Pending{Reason: BadRequest, Text: fmt.Sprintf("%v asks for %v, but is not %v: add it to spec.ipFamilies, or do not ask for it", r.ID, x, f)}
		}
	}
	return Pending{}
}

// refusal says why an address can't be had, and what could.
func (a *Allocator) refusal(r *Request, x netip.Addr, why Reason, rule string) Pending {
	return Pending{why, a.poolName(x), fmt.Sprintf("%v is %s; %s", x, rule, a.nearest(r, lb.FamilyOf(x)))}
}

func (a *Allocator) notInPool(r *Request, x netip.Addr) Pending {
	return Pending{AddressNotInPool, r.Pool, fmt.Sprintf("%v is in no pool; %s", x, a.nearest(r, lb.FamilyOf(x)))}
}

func (a *Allocator) wrongPool(r *Request, x netip.Addr, p *Pool) Pending {
	text := fmt.Sprintf("%v is in pool %q, not in %q, which %v asks for: ask for one of both", x, p.Name, r.Pool, r.ID)
	return Pending{AddressNotInPool, r.Pool, text}
}

// nothing says why no address was found.
func (a *Allocator) nothing(r *Request, f lb.Family) Pending {
	if out := a.candidates(r, f); len(out) > 0 {
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

// noPool says why no pool will do.
func (a *Allocator) noPool(r *Request, f lb.Family) Pending {
	near := a.nearest(r, f)
	if r.Pool != "" {
		p := a.named(r.Pool)
		if p == nil {
			return Pending{NoPool, "", fmt.Sprintf("there is no pool %q; %s", r.Pool, near)}
		}
		return Pending{NotAllowed, r.Pool, p.refuses(r) + "; " + near}
	}
	var why []string
	for _, p := range a.pools {
		if refused := p.refuses(r); refused != "" {
			why = append(why, refused)
		} else {
			why = append(why, fmt.Sprintf("pool %q is only for those who ask for it (auto_assign)", p.Name))
		}
	}
	if len(why) == 0 {
		return Pending{NoPool, "", "there are no pools: add a [[pool]]"}
	}
	return Pending{NoPool, "", list(why) + "; " + near}
}

func (a *Allocator) familyMissing(r *Request, f lb.Family, pools []*pool) Pending {
	pool := ""
	if len(pools) == 1 {
		pool = pools[0].Name
	}
	return Pending{FamilyMissing, pool, fmt.Sprintf("%s no %v addresses; %s", poolList(pools, "has", "have"), f, a.nearest(r, f))}
}

func (a *Allocator) exhausted(r *Request, f lb.Family, pools []*pool) Pending {
	return Pending{PoolExhausted, pools[0].Name, fmt.Sprintf("%s no free %v address; %s", poolList(pools, "has", "have"), f, a.nearest(r, f))}
}

// nearest names the first pool that a Service could get an address of, if it asked.
func (a *Allocator) nearest(r *Request, f lb.Family) string {
	for _, p := range a.pools {
		if p.refuses(r) != "" {
			continue
		}
		for _, s := range p.spans {
			if lb.FamilyOf(s.First) != f {
				continue
			}
			if x := a.lowest(s); x.IsValid() {
				return fmt.Sprintf("the nearest that it can have is %v of pool %q", x, p.Name)
			}
		}
	}
	return fmt.Sprintf("no pool that admits it has a free %v address", f)
}

// holders says who has an address.
func holders(x netip.Addr, others []Holder, after time.Duration) string {
	var names []string
	var until time.Time
	for _, h := range others {
		names = append(names, h.Service.String())
		if free := h.Released.Add(after); free.After(until) {
			until = free
		}
	}
	if (&Claim{Addr: x, Holders: others}).held() {
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

func sortFamilies(lists ...[]lb.Family) []lb.Family {
	out := slices.Concat(lists...)
	slices.Sort(out)
	return slices.Compact(out)
}

func sortIDs[V any](m map[lb.ServiceID]V) []lb.ServiceID {
	out := make([]lb.ServiceID, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.SortFunc(out, lb.ServiceID.Compare)
	return out
}
