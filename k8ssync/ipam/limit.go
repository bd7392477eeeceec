package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
)

// The claims of the store are limited: an account that may write them must not exhaust the
// memory of all boxes. Claims that matter have a limit of their own, so that no number of
// others displaces one: those of an address in a pool, or in the status of a Service.
//
// Claims beyond a limit are ignored. Others are no loss. While one that matters may be
// ignored, an address without a known claim may have an owner: no Service gets such an
// address, and each keeps its present one. Releases continue, and make room.

// room is a number of claims, and about their memory in bytes.
type room struct{ claims, bytes int }

func (r room) plus(s room) room { return room{r.claims + s.claims, r.bytes + s.bytes} }

func (r room) minus(s room) room { return room{r.claims - s.claims, r.bytes - s.bytes} }

// part returns a part of a room, one claim at least.
func (r room) part(of int) room { return room{r.claims/of + 1, r.bytes / of} }

// fits reports whether a room is within a limit.
func (r room) fits(limit room) bool { return r.claims <= limit.claims && r.bytes <= limit.bytes }

// halves are the room of claims that matter, and of others.
type halves struct{ matter, other room }

func (h *halves) of(matters bool) *room {
	if matters {
		return &h.matter
	}
	return &h.other
}

// most limits the claims: 50,000 Services with two addresses each have as many that matter.
var most = halves{room{100_000, 128 << 20}, room{10_000, 16 << 20}}

// weight returns the room of a claim, with its part of the indexes.
func (c *Claim) weight() room {
	const perClaim, perHolder, perPort = 256, 640, 8
	n := perClaim
	for _, h := range c.Holders {
		n += perHolder + perPort*len(h.Ports) +
			len(h.Service.Source) + len(h.Service.Namespace) + len(h.Service.Name) + len(h.UID) + len(h.Pool) + len(h.Share) + len(h.Selector)
	}
	return room{1, n}
}

// bounds has the room that the known claims take.
type bounds struct {
	most, used halves
	// others are the known claims that count as others.
	others map[netip.Addr]struct{}
	// lost reports whether a claim that matters was ignored since the last list of all
	// claims, left whether another one was. With moved the pools have changed since, so
	// that those of left may matter.
	lost, left, moved bool
	ended             bool // a claim, since that list
}

func newBounds(cfg *Config) bounds {
	b := bounds{most: most, others: map[netip.Addr]struct{}{}}
	b.most.matter.claims = cmp.Or(cfg.MaxClaims, most.matter.claims)
	b.most.other.claims = cmp.Or(cfg.MaxOtherClaims, most.other.claims)
	return b
}

// Intake limits a list of claims on its way. The zero value begins one.
type Intake struct {
	used       halves
	lost, left bool
}

// Admit reports whether a claim fits beside those that were admitted before. Pass the Intake
// to Relist with them.
func (b *bounds) Admit(in *Intake, c *Claim, matters bool) bool {
	used := in.used.of(matters)
	next := used.plus(c.weight())
	if !next.fits(*b.most.of(matters)) {
		in.lost, in.left = in.lost || matters, in.left || !matters
		return false
	}
	*used = next
	return true
}

// begin begins the claims of a list.
func (b *bounds) begin(in Intake) { b.lost, b.left, b.moved, b.ended = in.lost, in.left, false, false }

func (b *bounds) ignore(matters bool) { b.lost, b.left = b.lost || matters, b.left || !matters }

// HasClaim reports whether a claim of an address is known.
func (b *book) HasClaim(x netip.Addr) bool { return b.claims[x] != nil }

// roomFor reports whether a claim fits in place of an earlier one of its address; nil is none.
func (b *bounds) roomFor(old, c *Claim, matters bool) bool {
	used := *b.used.of(matters)
	if old != nil && b.matter(old.Addr) == matters {
		used = used.minus(old.weight())
	}
	return used.plus(c.weight()).fits(*b.most.of(matters))
}

// matter reports whether a known claim counts as one that matters.
func (b *bounds) matter(x netip.Addr) bool {
	_, other := b.others[x]
	return !other
}

// weigh counts the replacement of a claim by another; nil is none.
func (b *bounds) weigh(x netip.Addr, old, c *Claim, matters bool) {
	if old != nil {
		used := b.used.of(b.matter(x))
		*used = used.minus(old.weight())
		delete(b.others, x)
	}
	if c == nil {
		b.ended = true
		return
	}
	used := b.used.of(matters)
	*used = used.plus(c.weight())
	if !matters {
		b.others[x] = struct{}{}
	}
}

// reweigh counts the claim of an address that may matter now, or no longer. It is ignored if there is no room for
// it among the others.
func reweigh(a *Allocator, x netip.Addr) {
	known, matters := a.claims[x], a.Matters(x)
	if known == nil {
		return
	}
	if !matters && a.matter(x) && !a.roomFor(known, known, false) {
		a.ignore(false)
		a.replace(x, known, nil)
		return
	}
	a.weigh(x, known, known, matters)
}

// incomplete reports whether an address without a known claim may have one.
func (b *bounds) incomplete() bool { return b.lost || b.left && b.moved }

// hasRoomFor reports whether new claims may be written, beside those in flight.
func (b *bounds) hasRoomFor(claims room, w *inFlight) bool {
	return !b.incomplete() && b.used.matter.plus(w.growth).plus(claims).fits(b.most.matter)
}

// full reports whether no new claim may be written, beside those in flight and others of the same decision.
func (b *bounds) full(w *inFlight, others []Write) bool {
	const large = 4 << 10 // most are smaller
	n := 1
	for _, o := range others {
		if o.Claim.Version == 0 {
			n++
		}
	}
	return !b.hasRoomFor(room{n, n * large}, w)
}

// roomAgain reports whether the Services that full has stopped may go on. A claim that takes a little less
// than expected does not queue them all: either there is much room, or no write may change it.
func (b *bounds) roomAgain(w *inFlight) bool {
	return len(w.flights) == 0 && !b.full(w, nil) || b.hasRoomFor(b.most.matter.part(10), w)
}

// growth returns the room that a Write takes beyond that of the known claim.
func growth(known *Claim, w Write) room {
	if w.Delete {
		return room{}
	}
	grows := w.Claim.weight()
	if known != nil {
		grows = grows.minus(known.weight())
	}
	return room{grows.claims, max(0, grows.bytes)}
}

// refused returns why no Service gets an address without a known claim.
func (b *bounds) refused() string {
	if !b.incomplete() { // without their present number: each change of it would change the status of all that wait
		return fmt.Sprintf("weir reads at most %d claims of %d MiB, and there are as many", b.most.matter.claims, b.most.matter.bytes>>20)
	}
	return fmt.Sprintf("more than %d claims, or %d MiB of them, are in addresses.lease_namespace: an address without a known claim may have an owner",
		b.most.matter.claims, b.most.matter.bytes>>20)
}

const deleteLeases = ": delete the Leases that weir has not written"

// ClaimProblem returns the limit that the claims of the store exceed; empty is none.
func (b *bounds) ClaimProblem() string {
	switch {
	case b.incomplete():
		return "no new address is assigned: " + b.Obstacle()
	case b.left:
		return fmt.Sprintf("more than %d claims, or %d MiB of them, are of addresses outside all pools, and the rest is ignored%s",
			b.most.other.claims, b.most.other.bytes>>20, deleteLeases)
	}
	return ""
}

// Obstacle returns the limit that keeps Services from new addresses; empty is none.
func (b *bounds) Obstacle() string {
	if !b.incomplete() {
		return ""
	}
	return b.refused() + deleteLeases
}

// HasRoom reports whether a new list of all claims may bring some that were ignored: a
// tenth more would fit, of others half. A single claim may take a third of the limit of others.
// With little, those that matter need only the room of a claim that has ended since.
func (b *bounds) HasRoom(little bool) bool {
	if little && b.lost && b.ended {
		return true
	}
	spare := func(matters bool, part int) bool {
		limit := *b.most.of(matters)
		return b.used.of(matters).plus(limit.part(part)).fits(limit)
	}
	return b.lost && spare(true, 10) || b.left && (b.moved || spare(false, 2))
}
