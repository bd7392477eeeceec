package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Object is one thing in the kernel that weir owns. Objects are comparable values. Two with
// equal IDs are the same thing, and equal ones also have the same attributes. The set of
// implementations is closed: the types of this file, SyncDaemon and TunnelDevice.
type Object interface {
	// ID is the object without its attributes. Usable as a map key.
	ID() Object
	// String returns the text of the object in a log, in weir plan and in a test.
	String() string
	kind() kind
	// compare orders objects of the same kind.
	compare(Object) int
}

type kind uint8

const (
	kindSysctl kind = iota
	kindDevice
	kindSet
	kindRules
	kindMember
	kindVirtualServer
	kindRealServer
	kindAddress
	kindPoolRoute
	kindUnreachable
	kindSyncDaemon
	kindTunnelDevice
	numKinds
)

// Kind returns the sort of an object, for metrics: "virtual_server".
func Kind(o Object) string { return o.kind().String() }

func (k kind) String() string {
	return [...]string{
		kindSysctl: "sysctl", kindDevice: "device", kindSet: "set", kindRules: "rules", kindMember: "member",
		kindVirtualServer: "virtual_server", kindRealServer: "real_server", kindAddress: "address", kindPoolRoute: "pool_route",
		kindUnreachable: "unreachable", kindSyncDaemon: "sync_daemon", kindTunnelDevice: "tunnel_device",
	}[k]
}

// Family is an address family.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of an address; it must be valid and unmapped.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// unspecified is 0.0.0.0 or ::.
func unspecified(f Family) netip.Addr {
	if f == IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// Sysctl is a kernel parameter, with dots in its name as in sysctl(8). It is never reset: other
// programs may rely on it. Only OwnSourceSysctl goes with the rules.
type Sysctl struct {
	Name  string
	Value string
}

// Device is the dummy device that holds the VIPs (kube-ipvs0).
type Device struct {
	Name string
}

// IPSet is one ipset of one family, without its members.
type IPSet struct {
	Set    Set
	Family Family
}

// Rules is the static iptables rules of one family, all chains of them. They exist only if the
// kernel has exactly the configured rules, or those of an earlier configuration.
type Rules struct {
	Family Family
	// Outdated reports that the kernel has the rules of an earlier configuration: an attribute,
	// not part of the ID, and never wanted.
	Outdated bool
}

// Member is one member of an ipset. The set's type decides which fields it has; the others are
// zero. Its family is that of Addr, or of Net if there is no Addr.
type Member struct {
	Set   Set
	Addr  netip.Addr
	Port  uint16
	Proto Protocol
	// Net is the third dimension: a client's range, or as a single address the
	// backend itself; for a set of networks, its only one.
	Net netip.Prefix
	// Mark is what SetInternal or SetGroup maps the frontend to (Frontend.Mark): an
	// attribute, not part of the ID.
	Mark uint32
}

// VirtualServer is an IPVS service in the kernel.
type VirtualServer struct {
	Frontend  Frontend
	Scheduler Scheduler
	// Affinity is the persistence timeout in seconds, 0 when off.
	Affinity uint32
	// Mask has the bits of a client's address that affinity ignores, so that clients of
	// one network share a backend: the inverse of the netmask for IPv4, 128 minus the
	// prefix length for IPv6. weir wants 0, a single client.
	Mask uint32
	// Port is the destination port that packets of clients inside get before IPVS, of a virtual
	// server with a mark; 0 leaves it unchanged. With Affinity IPVS keeps the destination port
	// of such clients, and ignores the port of the real server (ip_vs_sched_persist).
	Port uint16
	// Damaged reports that the kernel has only a part of it, such as rules that another program
	// changed: an attribute that is observed and never wanted.
	Damaged bool
}

// matchesPort reports whether inside clients of a port reach the port of a real server.
func (o VirtualServer) matchesPort(port uint16, rs RealServer) bool {
	if o.Port != 0 {
		port = o.Port
	}
	return o.Affinity == 0 || port == rs.At(port).Port()
}

// RealServer is an IPVS destination. With port 0, packets keep the port of their client.
type RealServer struct {
	Frontend Frontend
	Addr     netip.AddrPort
	Weight   uint32
	Upper    uint32
	Lower    uint32
	Forward  Forwarding
	Encap    Encap // of Tunnel
	// Misplaced reports that its place among the real servers of scheduler mh differs from the
	// other boxes, so clients would reach other backends there: an attribute that is observed
	// and never wanted.
	Misplaced bool
}

// Address is a VIP on the dummy device, as a /32 or /128.
type Address struct {
	Addr netip.Addr
}

// PoolRoute makes a whole prefix local by one route, for vip_mode "route".
type PoolRoute struct {
	Prefix netip.Prefix
	// Src is the source address of the box's own traffic to the pool; invalid if the kernel
	// chooses it.
	Src netip.Addr
}

// Unreachable refuses packets for a whole prefix, except for the box's own addresses in it:
// packets for an announced aggregate must not go back to the router.
type Unreachable struct {
	Prefix netip.Prefix
}

func (o Sysctl) ID() Object        { return Sysctl{Name: o.Name} }
func (o Device) ID() Object        { return o }
func (o IPSet) ID() Object         { return o }
func (o Rules) ID() Object         { o.Outdated = false; return o }
func (o Member) ID() Object        { o.Mark = 0; return o }
func (o VirtualServer) ID() Object { return VirtualServer{Frontend: o.Frontend} }
func (o RealServer) ID() Object    { return RealServer{Frontend: o.Frontend, Addr: o.Addr} }
func (o Address) ID() Object       { return o }
func (o PoolRoute) ID() Object     { return PoolRoute{Prefix: o.Prefix} }
func (o Unreachable) ID() Object   { return o }

func (o Sysctl) kind() kind        { return kindSysctl }
func (o Device) kind() kind        { return kindDevice }
func (o IPSet) kind() kind         { return kindSet }
func (o Rules) kind() kind         { return kindRules }
func (o Member) kind() kind        { return kindMember }
func (o VirtualServer) kind() kind { return kindVirtualServer }
func (o RealServer) kind() kind    { return kindRealServer }
func (o Address) kind() kind       { return kindAddress }
func (o PoolRoute) kind() kind     { return kindPoolRoute }
func (o Unreachable) kind() kind   { return kindUnreachable }

func (o Sysctl) String() string { return fmt.Sprintf("sysctl %s=%s", o.Name, o.Value) }
func (o Device) String() string { return "device " + o.Name }
func (o IPSet) String() string  { return fmt.Sprintf("set %s %s (%s)", o.Set, o.Family, o.Set.Type()) }
func (o Rules) String() string  { return "rules " + o.Family.String() }

func (o Member) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "member %s ", o.Set)
	switch {
	case o.Set.Type() == bitmapPort:
		fmt.Fprintf(&b, "%s %d", o.Family(), o.Port)
	case o.Addr.IsValid():
		b.WriteString(o.Addr.String())
	}
	if o.Proto != 0 {
		fmt.Fprintf(&b, ",%s:%d", o.Proto, o.Port)
	}
	if o.Mark != 0 {
		fmt.Fprintf(&b, " mark %d", o.Mark)
	}
	if !o.Net.IsValid() {
		return b.String()
	}
	if o.Addr.IsValid() {
		b.WriteByte(',')
	}
	if o.Net.IsSingleIP() {
		b.WriteString(o.Net.Addr().String())
	} else {
		b.WriteString(o.Net.String())
	}
	return b.String()
}

func (o VirtualServer) String() string {
	s := fmt.Sprintf("virtual server %s %s", o.Frontend, o.Scheduler)
	if o.Affinity != 0 {
		s += fmt.Sprintf(" persistent %d", o.Affinity)
	}
	if o.Mask != 0 {
		s += fmt.Sprintf(" mask %#x", o.Mask)
	}
	if o.Damaged {
		s += " damaged"
	}
	if o.Port != 0 {
		s += fmt.Sprintf(" port %d", o.Port)
	}
	return s
}

func (o RealServer) String() string {
	s := fmt.Sprintf("real server %s of %s weight %d", o.Addr, o.Frontend, o.Weight)
	if o.Upper != 0 || o.Lower != 0 {
		s += fmt.Sprintf(" limits %d %d", o.Upper, o.Lower)
	}
	if o.Forward != Masquerading {
		s += " by " + o.method()
	}
	if o.Misplaced {
		s += " out of place"
	}
	return s
}

// mixed reports whether the backend is not of the family of its clients.
func (o RealServer) mixed() bool { return FamilyOf(o.Addr.Addr()) != FamilyOf(o.Frontend.Addr) }

// At returns the address and port that packets to a port of a VIP reach.
func (o RealServer) At(port uint16) netip.AddrPort {
	if o.Addr.Port() != 0 {
		return o.Addr
	}
	return netip.AddrPortFrom(o.Addr.Addr(), port)
}

func (o Address) String() string { return "address " + o.Addr.String() }

func (o PoolRoute) String() string {
	s := "local route " + o.Prefix.String()
	if o.Src.IsValid() {
		s += " src " + o.Src.String()
	}
	return s
}

func (o Unreachable) String() string { return "unreachable route " + o.Prefix.String() }

func (o Sysctl) compare(x Object) int { return cmp.Compare(o.Name, x.(Sysctl).Name) }
func (o Device) compare(x Object) int { return cmp.Compare(o.Name, x.(Device).Name) }
func (o IPSet) compare(x Object) int {
	y := x.(IPSet)
	return cmp.Or(cmp.Compare(o.Family, y.Family), cmp.Compare(o.Set, y.Set))
}
func (o Rules) compare(x Object) int { return cmp.Compare(o.Family, x.(Rules).Family) }
func (o Member) compare(x Object) int {
	y := x.(Member)
	if c := cmp.Compare(o.Set, y.Set); c != 0 {
		return c
	}
	if c := o.Addr.Compare(y.Addr); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(o.Port, y.Port), cmp.Compare(o.Proto, y.Proto),
		o.Net.Addr().Compare(y.Net.Addr()), cmp.Compare(o.Net.Bits(), y.Net.Bits()))
}
func (o VirtualServer) compare(x Object) int {
	return o.Frontend.Compare(x.(VirtualServer).Frontend)
}
func (o RealServer) compare(x Object) int {
	y := x.(RealServer)
	if c := o.Frontend.Compare(y.Frontend); c != 0 {
		return c
	}
	return o.Addr.Compare(y.Addr)
}
func (o Address) compare(x Object) int { return o.Addr.Compare(x.(Address).Addr) }
func (o PoolRoute) compare(x Object) int {
	return comparePrefixes(o.Prefix, x.(PoolRoute).Prefix)
}

func (o Unreachable) compare(x Object) int {
	return comparePrefixes(o.Prefix, x.(Unreachable).Prefix)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Compare orders objects by kind and then by their own order; attributes do not
// count.
func Compare(a, b Object) int {
	if c := cmp.Compare(a.kind(), b.kind()); c != 0 {
		return c
	}
	return a.compare(b)
}

// frontendOf returns the frontend of an object, if it is of one only.
func frontendOf(o Object) (Frontend, bool) {
	switch o := o.(type) {
	case VirtualServer:
		return o.Frontend, true
	case RealServer:
		return o.Frontend, true
	case Member:
		return o.frontend()
	}
	return Frontend{}, false
}
