package ipam

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// Request is what one Service asks for, as its API server has it now. Services of all
// clusters and classes that have addresses, or want them, are put into the Allocator.
type Request struct {
	ID lb.ServiceID
	// UID tells a Service from one of the same name that came after it.
	UID string
	// Version is the Service's resourceVersion. Decision.Version gives it back: a
	// status is written only onto that version, or a writer that has slept could
	// write what another has long taken back.
	Version string
	Created time.Time

	// Foreign is a Service that is not weir's to assign: it is of another class, or
	// not (or no longer) of type LoadBalancer. What it has in Status is taken.
	Foreign bool

	// Required are the families it must have: all of them, or nothing new. Preferred
	// are those it takes if it can; it must have one of them if none is Required.
	// SingleStack requires ipFamilies[0], RequireDualStack both, PreferDualStack
	// prefers those of spec.ipFamilies.
	Required, Preferred []lb.Family

	// Addrs are the addresses asked for, one of a family at most.
	Addrs []netip.Addr
	// Pool is the one asked for; empty is any.
	Pool string
	// Bad is what is wrong with what it asks for, as far as that could not even be
	// read: it keeps what it has, and gets nothing new.
	Bad string

	// Share is the key by which it shares an address; empty is not at all.
	Share string
	Ports []lb.PortKey
	// Local is externalTrafficPolicy Local. Selector is the Service's, as one text:
	// use SelectorText.
	Local    bool
	Selector string

	Labels map[string]string

	// Status are the addresses in status.loadBalancer.ingress now, whoever wrote
	// them.
	Status []netip.Addr
}

// SelectorText gives a selector as one comparable text; a long one is hashed. That of
// an empty selector is "".
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

// maxSelector keeps claims small, whatever a Service selects by.
const maxSelector = 256

// Reason says why a Service does not have what it asks for, or what else there is to
// know of its addresses. The set is closed.
type Reason string

// The reasons. All but the last three are of Pending.
const (
	// NoPool: no pool admits the Service, or the one it asks for is not there.
	NoPool Reason = "no-pool"
	// PoolExhausted: every pool that admits it is full, for now.
	PoolExhausted Reason = "pool-exhausted"
	// FamilyMissing: no pool that admits it has addresses of a family.
	FamilyMissing Reason = "family-missing"
	// AddressNotInPool: the address asked for is of no pool, or not of that asked for.
	AddressNotInPool Reason = "address-not-in-pool"
	// AddressTaken: another Service has the address asked for, or reserved.
	AddressTaken Reason = "address-taken"
	// AddressHeld: another Service had it, and may still come back for it.
	AddressHeld Reason = "address-held"
	// AddressReserved: the address asked for is reserved for another Service.
	AddressReserved Reason = "address-reserved"
	// NotAllowed: the pool asked for, or of the address asked for, does not admit it.
	NotAllowed Reason = "not-allowed"
	// ShareRefused: it may not share the address, or not with these ports.
	ShareRefused Reason = "share-refused"
	// BadRequest: what it asks for contradicts itself.
	BadRequest Reason = "bad-request"
	// NoWriter: nobody writes now. The writer says so, this package never does.
	NoWriter Reason = "no-writer"

	// PoolStranded: it has an address that it would not get today, and keeps it.
	PoolStranded Reason = "pool-stranded"
	// Conflict: it had an address in its status that is somebody else's.
	Conflict Reason = "conflict"
	// FamilyLeft: a family that it prefers can't be had.
	FamilyLeft Reason = "family-left"
)

// Reasons are all of them, in the order above.
func Reasons() []Reason {
	return []Reason{
		NoPool, PoolExhausted, FamilyMissing, AddressNotInPool, AddressTaken, AddressHeld, AddressReserved,
		NotAllowed, ShareRefused, BadRequest, NoWriter, PoolStranded, Conflict, FamilyLeft,
	}
}

// CamelCase gives the reason as conditions and Events have it: "PoolExhausted".
func (r Reason) CamelCase() string {
	var out strings.Builder
	for word := range strings.SplitSeq(string(r), "-") {
		if word != "" {
			out.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return out.String()
}

// Pending is why a Service does not have what it asks for. The zero value is that it
// has. It may have addresses all the same: nothing is taken away because a new wish
// can't be met.
type Pending struct {
	Reason Reason
	// Pool is the one it is about; empty if none is.
	Pool string
	// Text names the rule that failed, and the nearest pool that could be used.
	Text string
}

// Note is something to know of an address that a Service has, or had.
type Note struct {
	Service lb.ServiceID
	Addr    netip.Addr // may be zero
	Reason  Reason
	Text    string
}

// Decision is what to do for one Service. Where there are Writes, do them, each by compare
// and swap, and tell the Allocator what came of each: Learn or Gone, then Done. The next
// Decision follows from that, and tells what the status is to be. After an error that
// taught nothing, ask for it with Again.
type Decision struct {
	Service lb.ServiceID
	// UID and Version are those of the Request; both empty when there is none.
	UID, Version string

	// Writes are the changes of claims, all independent of each other.
	Writes []Write

	// Apply tells that the status is weir's to write: it is to be Addrs, exactly, as
	// far as weir owns it. Otherwise it is not touched.
	Apply bool
	// Addrs are the addresses that the Service has: sorted, IPv4 first, each with a
	// claim that the store confirmed, or in its status already with nobody against it.
	Addrs []netip.Addr
	// Pending says what it asks for and does not have, but for Writes under way.
	Pending Pending
	Notes   []Note

	// Waiting tells that nothing can be said until writes that are under way, or the
	// Service's cluster, have been heard of. It is decided again then, unasked.
	Waiting bool
}
