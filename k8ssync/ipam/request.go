package ipam

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// Request is the request of one Service, as its API server has it now. The Allocator needs
// those of all clusters and classes that have addresses, or request them.
type Request struct {
	ID lb.ServiceID
	// UID distinguishes a Service from a later one of the same name.
	UID string
	// Version is the Service's resourceVersion, as in Decision.Version: a status is
	// written only onto that version, so that a suspended writer undoes no later change.
	Version string
	Created time.Time

	// Foreign is a Service that weir does not manage: it is of another class, or not (or
	// no longer) of type LoadBalancer. The addresses in its Status are taken.
	Foreign bool
	// Hosts are the Nodes of a cluster instead of a Service; Foreign is set, too. Each kubelet
	// writes their addresses, so they are taken only in pools that admit the cluster, and from
	// its own Services.
	Hosts bool

	// Required are the families it must have: all of them, or nothing new. Preferred
	// are optional; it must have one of them if none is Required.
	// SingleStack requires ipFamilies[0], RequireDualStack both, PreferDualStack
	// prefers those of spec.ipFamilies.
	Required, Preferred []lb.Family

	// Addrs are the requested addresses, one of a family at most.
	Addrs []netip.Addr
	// Pool is the requested one; empty is any.
	Pool string
	// Bad is the error of a request that can't be read: the Service keeps its addresses,
	// and gets no new ones.
	Bad string

	// Share is the key by which it shares an address; empty is no sharing.
	Share string
	Ports []lb.PortKey
	// Local is externalTrafficPolicy Local. Selector is the Service's, as one text:
	// use SelectorText.
	Local    bool
	Selector string

	Labels map[string]string

	// AnnotationPrefix is the prefix of annotations in the Service's cluster, for texts.
	AnnotationPrefix string

	// Status are the addresses in status.loadBalancer.ingress now, of any writer.
	Status []netip.Addr
}

// SelectorText returns a selector as one comparable text; a long one is hashed. That of an
// empty selector is "".
func SelectorText(selector map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		parts = append(parts, k+"="+selector[k])
	}
	text := strings.Join(parts, ",")
	if len(text) > maxSelector {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
	}
	return text
}

// maxSelector limits the size of claims.
const maxSelector = 256

// Reason is why a Service does not have its request, or the subject of a Note about its
// addresses. The set is closed.
type Reason string

// The reasons. All but the last three are of Pending.
const (
	// NoPool: no pool admits the Service, or the requested one does not exist.
	NoPool Reason = "no-pool"
	// PoolExhausted: every pool that admits it is full, for now.
	PoolExhausted Reason = "pool-exhausted"
	// NamespaceLimit: its namespace has all the addresses of the pool that it may have.
	NamespaceLimit Reason = "namespace-limit"
	// ClaimLimit: there are more claims than are read, so that a free address is not known.
	ClaimLimit Reason = "claim-limit"
	// FamilyMissing: no pool that admits it has addresses of a family.
	FamilyMissing Reason = "family-missing"
	// AddressNotInPool: the requested address is of no pool, or not of the requested one.
	AddressNotInPool Reason = "address-not-in-pool"
	// AddressInUse: another Service has the requested or reserved address.
	AddressInUse Reason = "address-in-use"
	// AddressRetained: the address is retained for another Service.
	AddressRetained Reason = "address-retained"
	// AddressReserved: the requested address is reserved for another Service.
	AddressReserved Reason = "address-reserved"
	// NotAllowed: the requested pool, or that of the requested address, does not admit it.
	NotAllowed Reason = "not-allowed"
	// ShareRefused: it may not share the address, or not with these ports.
	ShareRefused Reason = "share-refused"
	// BadRequest: its request contradicts itself.
	BadRequest Reason = "bad-request"
	// NoWriter: no box writes now. Only the caller of this package uses it.
	NoWriter Reason = "no-writer"

	// OutsidePool: it keeps an address that it would not get today.
	OutsidePool Reason = "outside-pool"
	// Conflict: it had an address of another Service in its status.
	Conflict Reason = "conflict"
	// FamilyLeft: no address of a preferred family is available.
	FamilyLeft Reason = "family-left"
)

// Reasons returns all of them, in the order above.
func Reasons() []Reason {
	return []Reason{
		NoPool, PoolExhausted, NamespaceLimit, ClaimLimit, FamilyMissing, AddressNotInPool, AddressInUse, AddressRetained, AddressReserved,
		NotAllowed, ShareRefused, BadRequest, NoWriter, OutsidePool, Conflict, FamilyLeft,
	}
}

// CamelCase returns the reason in the style of conditions and Events: "PoolExhausted".
func (r Reason) CamelCase() string {
	var out strings.Builder
	for word := range strings.SplitSeq(string(r), "-") {
		if word != "" {
			out.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return out.String()
}

// Pending is why a Service does not have its request. The zero value is that it has. It may
// have addresses nevertheless: an unavailable request removes nothing.
type Pending struct {
	Reason Reason
	// Pool is the pool concerned; empty is none.
	Pool string
	// Rule is the rule that failed, Near the nearest available address; empty is none. Near
	// changes with other Services: a Decision that differs only there is the same.
	Rule, Near string
}

// Text returns the rule and the nearest available address.
func (p Pending) Text() string {
	if p.Near == "" {
		return p.Rule
	}
	return p.Rule + "; " + p.Near
}

func (p Pending) same(o Pending) bool {
	return p.Reason == o.Reason && p.Pool == o.Pool && p.Rule == o.Rule
}

// Note is a remark about an address that a Service has, or had.
type Note struct {
	Service lb.ServiceID
	Addr    netip.Addr // may be zero
	Reason  Reason
	Text    string
}

// Decision is the work for one Service. If there are Writes, make them, each by compare and
// swap, and record the result of each: Learn or Gone, then Done. The next Decision follows
// from that, and has the status. After an error without a result, request it with Again.
type Decision struct {
	Service lb.ServiceID
	// UID and Version are those of the Request; both empty when there is none.
	UID, Version string

	// Writes are the changes of claims, all independent of each other.
	Writes []Write

	// Apply is that weir writes the status: exactly Addrs, as far as weir owns it.
	// Otherwise the status is left as it is.
	Apply bool
	// Addrs are the addresses that the Service has: sorted, IPv4 first, each with a
	// confirmed claim, or already in its status without an objection.
	Addrs []netip.Addr
	// Pending is why it lacks a part of its request, but for Writes in flight.
	Pending Pending
	Notes   []Note

	// Waiting is that there is no decision before the end of writes in flight, or before
	// the Service's cluster is synced. It follows then by itself.
	Waiting bool

	short bool // the limit of the claims prevents one
}

// same reports whether two Decisions without Writes are the same.
func (d Decision) same(o Decision) bool {
	return d.UID == o.UID && d.Version == o.Version && d.Apply == o.Apply && d.Pending.same(o.Pending) &&
		slices.Equal(d.Addrs, o.Addrs) && slices.Equal(d.Notes, o.Notes)
}

// asked returns the requested address of a family.
func (r *Request) asked(f lb.Family) (netip.Addr, bool) {
	for _, x := range r.Addrs {
		if lb.FamilyOf(x) == f {
			return x, true
		}
	}
	return netip.Addr{}, false
}

// place returns the place of an address in the status as text.
func (r *Request) place() string {
	if r.Hosts {
		return "the address of a Node of cluster " + r.ID.Source
	}
	return "in the status of " + r.ID.String()
}

// before reports whether a Service is older.
func (r *Request) before(o *Request) bool {
	return cmp.Or(r.Created.Compare(o.Created), r.ID.Compare(o.ID)) < 0
}

// contradiction returns why a request contradicts itself.
func (r *Request) contradiction() Pending {
	if r.Bad != "" {
		return Pending{Reason: BadRequest, Rule: r.Bad}
	}
	families := sortFamilies(r.Required, r.Preferred)
	if len(families) == 0 {
		return Pending{Reason: BadRequest, Rule: fmt.Sprintf("%v has no IP family: give it spec.ipFamilies", r.ID)}
	}
	for i, x := range r.Addrs {
		if i > 0 && x.Is4() == r.Addrs[i-1].Is4() {
			return Pending{Reason: BadRequest, Rule: fmt.Sprintf("%v requests %v and %v: request one address of a family", r.ID, r.Addrs[i-1], x)}
		}
		if f := lb.FamilyOf(x); !slices.Contains(families, f) {
			return Pending{Reason: BadRequest, Rule: fmt.Sprintf("%v requests %v, but is not %v: add that to spec.ipFamilies, or remove the request", r.ID, x, f)}
		}
	}
	return Pending{}
}
