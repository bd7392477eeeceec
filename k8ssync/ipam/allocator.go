package ipam

import (
	"net/netip"
	"time"

	"weir/lb"
)

// Allocator knows pools, Requests and Claims, and decides. What it is told, in whatever
// order, changes what it knows at once; what is to be done follows from Next. It is not
// safe for concurrent use. Make one with New.
type Allocator struct{}

// New makes an Allocator that knows nothing but a Config that was checked.
func New(c Config) *Allocator { panic("ipam: New") }

// SetConfig replaces the Config. No address moves: what does not fit is stranded.
func (a *Allocator) SetConfig(c Config) { panic("ipam: SetConfig") }

// Put tells a Service as it is now.
func (a *Allocator) Put(r Request) { panic("ipam: Put") }

// Delete tells that its API server has it no more. An unreachable API server is no
// reason to call it.
func (a *Allocator) Delete(id lb.ServiceID) { panic("ipam: Delete") }

// Synced tells whether the Allocator now knows all Services of a cluster. Until then,
// and after it was told false, the cluster's claims stay as they are and its Services
// get nothing new. A cluster that was never told of is not synced.
func (a *Allocator) Synced(cluster string, yes bool) { panic("ipam: Synced") }

// Learn tells a claim as the store has it, from a watch or as the answer to a write. One
// that is older than what is known is ignored.
func (a *Allocator) Learn(c Claim) { panic("ipam: Learn") }

// Gone tells that the store has no claim of an address, as of a version: that of the
// watch's event, or of the deletion. It is ignored if a later one is known.
func (a *Allocator) Gone(addr netip.Addr, version uint64) { panic("ipam: Gone") }

// Relist tells all claims there are, as of a list's version. Those that are known at no
// later version and are not listed are gone.
func (a *Allocator) Relist(version uint64, claims []Claim) { panic("ipam: Relist") }

// Done tells that a Write of a Decision has come to an end, well or not, and that its
// outcome was learned as far as it is known: who does not know reads the object first.
// Every Write needs it: until then the address is not decided on.
func (a *Allocator) Done(addr netip.Addr) { panic("ipam: Done") }

// Again asks for a Decision once more, such as after an error.
func (a *Allocator) Again(id lb.ServiceID) { panic("ipam: Again") }

// Next decides the next Service for which something may have changed: those with
// addresses first, then the oldest. False is that there is none. What a Decision says
// to do is not repeated, unless something changes or Again is called.
func (a *Allocator) Next(now time.Time) (Decision, bool) { panic("ipam: Next") }

// Wake gives the time at which Next will have something to do, if nothing else comes
// before: when an address has been held long enough. Zero is never.
func (a *Allocator) Wake() time.Time { panic("ipam: Wake") }

// Decide says what to do for one Service now, in the queue or not.
func (a *Allocator) Decide(id lb.ServiceID, now time.Time) Decision { panic("ipam: Decide") }

// Claims gives all claims that are known, sorted by address.
func (a *Allocator) Claims() []Claim { panic("ipam: Claims") }

// Stranded tells which addresses would be stranded by another Config.
func (a *Allocator) Stranded(c Config) []Note { panic("ipam: Stranded") }

// Usage tells how full pools are, in the order in which they are used.
func (a *Allocator) Usage() Usage { panic("ipam: Usage") }
