package lb

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Update is a change of the Services of a source.
type Update struct {
	Source string
	// Put are new and changed Services. Apply replaces those that are equal to its own, so the
	// list must not be in use elsewhere.
	Put []Service
	// Delete are removed Services.
	Delete []ServiceID
	// Synced means that Put is the whole state of the source: its other Services are removed.
	Synced bool
	// Triggered is the time at which a Service of Put began to differ in its source, for the
	// latency of programming; a Service may be missing.
	Triggered map[ServiceID]time.Time
}

// Catalog has the Services of all sources and decides which of them has a contested Frontend:
// one that does not have it as an external IP only, then a static one, then one to which weir
// assigned the address, then the oldest, then the first by ServiceID. The zero Catalog is not usable; make one with NewCatalog.
type Catalog struct {
	services    map[ServiceID]Service
	claims      map[Frontend][]ServiceID
	synced      map[string]bool
	of          map[string]int
	vips        map[netip.Addr]int
	changedVIPs map[netip.Addr]struct{} // added to or removed from vips since the last plan
	backends    map[uint32]uint32       // the number with an address of this hash
	probes      map[ServiceID]HealthCheck
	hosts       map[netip.Addr]string // the box's own: a Foreign VIP there claims nothing
}

// NewCatalog makes a Catalog of some sources: until each of them has synced once, Synced
// returns false.
func NewCatalog(sources ...string) *Catalog {
	c := &Catalog{
		services:    map[ServiceID]Service{},
		claims:      map[Frontend][]ServiceID{},
		synced:      map[string]bool{},
		of:          map[string]int{},
		vips:        map[netip.Addr]int{},
		changedVIPs: map[netip.Addr]struct{}{},
		backends:    map[uint32]uint32{},
		probes:      map[ServiceID]HealthCheck{},
	}
	for _, s := range sources {
		c.synced[s] = false
	}
	return c
}

// Synced reports whether all sources have synced once.
func (c *Catalog) Synced() bool {
	for _, ok := range c.synced {
		if !ok {
			return false
		}
	}
	return true
}

// Get returns a Service.
func (c *Catalog) Get(id ServiceID) (Service, bool) {
	s, ok := c.services[id]
	return s, ok
}

// Len returns the number of Services.
func (c *Catalog) Len() int { return len(c.services) }

// LenOf returns the number of Services of one source.
func (c *Catalog) LenOf(source string) int { return c.of[source] }

// VIPs returns the number of addresses of Services, without those of NodePorts.
func (c *Catalog) VIPs() int { return len(c.vips) }

// HealthChecks returns the health checks of the Services that have one. The map
// belongs to the Catalog.
func (c *Catalog) HealthChecks() map[ServiceID]HealthCheck { return c.probes }

// Waiting returns the sources that have not synced yet, sorted.
func (c *Catalog) Waiting() []string {
	var out []string
	for s, synced := range c.synced {
		if !synced {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// IDs returns all Services, sorted.
func (c *Catalog) IDs() []ServiceID {
	out := make([]ServiceID, 0, len(c.services))
	for id := range c.services {
		out = append(out, id)
	}
	slices.SortFunc(out, ServiceID.Compare)
	return out
}

// Claimants returns the Services that claim f, the winner first.
func (c *Catalog) Claimants(f Frontend) []ServiceID { return c.claims[f] }

// Apply applies an update. It adds to changed every Service that must be planned again: those
// of the update, and those that win or lose a Frontend by it. It updates taken, the winners of
// contested Frontends.
//
// A Service of u.Put that is equal to the one in the Catalog is replaced by that one, so that
// only one copy stays in memory.
func (c *Catalog) Apply(u Update, taken map[Frontend]ServiceID, changed map[ServiceID]struct{}) {
	for _, id := range u.Delete {
		c.remove(id, taken, changed)
	}
	if u.Synced {
		kept := make(map[ServiceID]struct{}, len(u.Put))
		for _, s := range u.Put {
			kept[s.ID] = struct{}{}
		}
		for id := range c.services {
			if _, ok := kept[id]; id.Source == u.Source && !ok {
				c.remove(id, taken, changed)
			}
		}
		c.synced[u.Source] = true
	}
	for i := range u.Put {
		if has, ok := c.services[u.Put[i].ID]; ok && equal(has, u.Put[i]) {
			u.Put[i] = has
			continue
		}
		c.put(u.Put[i], taken, changed)
	}
}

func (c *Catalog) put(s Service, taken map[Frontend]ServiceID, changed map[ServiceID]struct{}) {
	c.remove(s.ID, taken, changed)
	c.services[s.ID] = s
	c.count(s, 1)
	changed[s.ID] = struct{}{}
	for _, f := range c.claimed(s) {
		if i, claims := c.find(f, s.ID); !claims {
			c.contest(f, winner(c.claims[f]), slices.Insert(c.claims[f], i, s.ID), taken, changed)
		}
	}
}

func (c *Catalog) remove(id ServiceID, taken map[Frontend]ServiceID, changed map[ServiceID]struct{}) {
	s, ok := c.services[id]
	if !ok {
		return
	}
	changed[id] = struct{}{}
	for _, f := range c.claimed(s) {
		if i, claims := c.find(f, id); claims {
			c.contest(f, winner(c.claims[f]), slices.Delete(c.claims[f], i, i+1), taken, changed)
		}
	}
	c.count(s, -1)
	delete(c.services, id)
}

// claimed returns the frontends that s claims. A Foreign VIP that is the box's own address is
// not served, so it claims none.
func (c *Catalog) claimed(s Service) []Frontend {
	if slices.ContainsFunc(s.VIPs, c.refused) {
		s.VIPs = slices.DeleteFunc(slices.Clone(s.VIPs), c.refused)
	}
	return s.Frontends()
}

func (c *Catalog) refused(v VIP) bool {
	_, own := c.hosts[v.Addr]
	return own && v.Foreign
}

// setHosts sets the box's own addresses, and updates the claims on them.
func (c *Catalog) setHosts(hosts map[netip.Addr]string, taken map[Frontend]ServiceID, changed map[ServiceID]struct{}) {
	var again []Service
	for id, s := range c.services {
		if slices.ContainsFunc(s.VIPs, func(v VIP) bool { _, own := hosts[v.Addr]; return v.Foreign && own != c.refused(v) }) {
			again = append(again, s)
			c.remove(id, taken, changed)
		}
	}
	c.hosts = hosts
	for _, s := range again {
		c.put(s, taken, changed)
	}
}

// count adds n times what is counted of a Service.
func (c *Catalog) count(s Service, n int) {
	if c.of[s.ID.Source] += n; c.of[s.ID.Source] == 0 {
		delete(c.of, s.ID.Source)
	}
	for _, v := range s.VIPs {
		if v.Kind == NodePort {
			continue
		}
		before := c.vips[v.Addr]
		if c.vips[v.Addr] += n; c.vips[v.Addr] == 0 {
			delete(c.vips, v.Addr)
		}
		if (before == 0) != (before+n == 0) {
			c.toggle(v.Addr)
		}
	}
	for a := range s.backendAddrs() {
		h := hashOf(a)
		if c.backends[h] += uint32(n); c.backends[h] == 0 { // -1 wraps around
			delete(c.backends, h)
		}
	}
	switch {
	case s.HealthCheck.Port == 0:
	case n > 0:
		c.probes[s.ID] = s.HealthCheck
	default:
		delete(c.probes, s.ID)
	}
}

// hashOf is the FNV-1a hash of an address.
func hashOf(a netip.Addr) uint32 {
	h := uint32(2166136261)
	for _, b := range a.As16() {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// toggle records that an address has become a VIP, or is none any more. The second change
// reverts the first.
func (c *Catalog) toggle(a netip.Addr) {
	if _, ok := c.changedVIPs[a]; ok {
		delete(c.changedVIPs, a)
		return
	}
	c.changedVIPs[a] = struct{}{}
}

// find finds a Service of the Catalog among the claims on f.
func (c *Catalog) find(f Frontend, id ServiceID) (int, bool) {
	return slices.BinarySearchFunc(c.claims[f], id, func(a, b ServiceID) int { return c.rank(f, a, b) })
}

// winner returns the first of sorted claims, if there is one.
func winner(ids []ServiceID) ServiceID {
	if len(ids) == 0 {
		return ServiceID{}
	}
	return ids[0]
}

// contest sets the claims on f, sorted, and updates its winner. The plans of all claimants depend on
// it: Notes name it.
func (c *Catalog) contest(f Frontend, before ServiceID, ids []ServiceID, taken map[Frontend]ServiceID, changed map[ServiceID]struct{}) {
	if winner(ids) != before {
		for _, id := range ids {
			changed[id] = struct{}{}
		}
		// A NodePort yields to a claim on just one of its addresses. Only the winner of the NodePort has it
		// elsewhere.
		if all := everyAddress(f); all != f && len(c.claims[all]) > 0 {
			changed[c.claims[all][0]] = struct{}{}
		}
	}
	switch len(ids) {
	case 0:
		delete(c.claims, f)
		delete(taken, f)
		return
	case 1:
		delete(taken, f)
	default:
		taken[f] = ids[0]
	}
	c.claims[f] = ids
}

// rank orders two Services that claim f, the winner first. The author of a Service writes its
// external IPs, and its API server its age: with either it could otherwise take the address of
// another Service.
func (c *Catalog) rank(f Frontend, a, b ServiceID) int {
	x, y := c.services[a], c.services[b]
	return cmp.Or(
		first(y.onlyExternal(f.Addr), x.onlyExternal(f.Addr)),
		first(x.Created.IsZero(), y.Created.IsZero()),
		first(x.assigned(f.Addr), y.assigned(f.Addr)),
		x.Created.Compare(y.Created), a.Compare(b))
}

// first compares two claimants by a property of the winner.
func first(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// assigned reports whether weir has assigned an address to s.
func (s Service) assigned(a netip.Addr) bool {
	return slices.ContainsFunc(s.VIPs, func(v VIP) bool { return v.Addr == a && v.Assigned })
}

// onlyExternal reports whether an address is an external IP of s and nothing else of it.
func (s Service) onlyExternal(a netip.Addr) bool {
	brings := false
	for _, v := range s.VIPs {
		if v.Addr == a {
			if v.Kind != ExternalIP {
				return false
			}
			brings = true
		}
	}
	return brings
}

// everyAddress returns the NodePort frontend that includes f.
func everyAddress(f Frontend) Frontend {
	f.Addr = unspecified(FamilyOf(f.Addr))
	return f
}

// equal reports whether two Services are the same.
func equal(a, b Service) bool {
	return a.ID == b.ID && a.Created.Equal(b.Created) &&
		slices.Equal(a.VIPs, b.VIPs) &&
		slices.EqualFunc(a.Ports, b.Ports, func(x, y Port) bool {
			return x.Key() == y.Key() && x.NodePort == y.NodePort && slices.Equal(x.Backends, y.Backends)
		}) &&
		a.Scheduler == b.Scheduler && a.Affinity == b.Affinity && a.Keep == b.Keep && a.OnePacket == b.OnePacket && a.Group == b.Group && a.FWMark == b.FWMark && a.CheckVIPs == b.CheckVIPs &&
		a.Restricted == b.Restricted && a.Ranges == b.Ranges && slices.Equal(a.SourceRanges, b.SourceRanges) && slices.Equal(a.Self, b.Self) &&
		a.HealthCheck == b.HealthCheck && a.Apart == b.Apart && slices.Equal(a.Notes, b.Notes) &&
		a.Drain == b.Drain && a.WhenDown == b.WhenDown && slices.Equal(a.Fallback, b.Fallback) && a.Forward == b.Forward && a.Encap == b.Encap &&
		maps.Equal(a.Labels, b.Labels)
}

// backendAddrs returns the addresses of all backends and fallbacks of s.
func (s Service) backendAddrs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, p := range s.Ports {
			for _, be := range p.Backends {
				if !yield(be.Addr.Addr()) {
					return
				}
			}
		}
		for _, a := range s.Fallback {
			if !yield(a.Addr()) {
				return
			}
		}
	}
}
