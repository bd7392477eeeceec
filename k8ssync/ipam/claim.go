package ipam

import (
	"net/netip"
	"time"

	"weir/lb"
)

// Claim is who has an address, as the claim store has it: one object an address. A
// Claim without holders is somebody's whom weir does not know (one made by hand, or of
// a later version): the address is taken.
type Claim struct {
	Addr netip.Addr
	// Version is the object's resourceVersion, which grows with each change (KEP-5504).
	// 0 is that of an object that is not there.
	Version uint64
	// Holders are sorted by Service, one each. Two or more share the address.
	Holders []Holder
}

// Holder is one Service of a Claim.
type Holder struct {
	Service lb.ServiceID
	UID     string
	// Released is when it let go; zero while it has not. Until ReleaseAfter has
	// passed it may come back, and what it holds is nobody else's.
	Released time.Time
	// Pool is the one it asked for by name when it last got what it asked for.
	Pool string
	// Share is the key; the rest is empty without one. Ports are those that are its
	// at the address, sorted.
	Share    string
	Ports    []lb.PortKey
	Local    bool
	Selector string
}

// Write is one change of the claim store.
type Write struct {
	// Claim is to be. The object must be at Claim.Version now: 0 creates it.
	Claim Claim
	// Delete removes the object instead, if it is at that version.
	Delete bool
}

// Name gives the object's name: "weir-192.0.2.7", or IPv6 in full with dashes:
// "weir-2001-0db8-0000-0000-0000-0000-0000-0007".
func Name(a netip.Addr) string { panic("ipam: Name") }

// ParseName reads what Name gives, and nothing else.
func ParseName(name string) (netip.Addr, error) { panic("ipam: ParseName") }

// HolderIdentity gives the holders as spec.holderIdentity has them:
// "prod/shop/api,prod/shop/web". It is for people; nothing reads it.
func (c Claim) HolderIdentity() string { panic("ipam: HolderIdentity") }

// MarshalText gives the holders as the annotation has them: JSON.
func (c Claim) MarshalText() ([]byte, error) { panic("ipam: MarshalText") }

// UnmarshalText reads what MarshalText gives, into Holders alone. On an error learn
// the Claim without holders: the address is taken.
func (c *Claim) UnmarshalText(text []byte) error { panic("ipam: UnmarshalText") }
