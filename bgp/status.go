package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weir/bgp/advertise"
)

// Status is the state of a Speaker. Reading it never waits for GoBGP or a router.
type Status struct {
	ASN      uint32
	RouterID netip.Addr
	Listen   []netip.AddrPort // addresses that routers can connect to
	// Problem is the reason why the speaker does not work, for instance that its port is
	// taken; empty: it works.
	Problem string
	Peers   []PeerStatus  // sorted by name, then address
	Routes  []RouteStatus // sorted by prefix, then by the first peer's name
}

// State is the state of a session (RFC 4271, 8.2.2).
type State string

// The states of a session. Established is the one with routes.
const (
	Idle        State = "Idle"
	Connect     State = "Connect"
	Active      State = "Active"
	OpenSent    State = "OpenSent"
	OpenConfirm State = "OpenConfirm"
	Established State = "Established"
)

// PeerStatus is a session. A range has an entry of its own without Address, and one for
// each of its connected routers.
type PeerStatus struct {
	Name     string
	Address  netip.Addr
	Range    netip.Prefix // of a range, and of the routers in it
	ASN      uint32       // the router's; 0 for a range of any ASN
	LocalASN uint32
	RouterID netip.Addr     // the router's, of the present or last session
	Local    netip.AddrPort // this end of the session; the zero value: there is none
	State    State
	Since    time.Time // when State changed to or from Established
	// Down is the reason why the session is not established, or was not the last time.
	// DownAt is when that was.
	Down   string
	DownAt time.Time
	// Sent and Received describe the last NOTIFICATION in each direction, for instance
	// "bad peer AS"; empty: there was none.
	Sent, Received string
	Families       advertise.Families // of both sides; while not Established, those of weir
	Prefixes       int                // received from the router; none is used
	MaxPrefixes    int
	Advertised     int // prefixes sent to the router
	Messages       Messages
	Flaps          int // losses of an Established session
	Hold           time.Duration
	Keepalive      time.Duration // both as negotiated; while not Established, as configured
	BFD            BFDStatus
	Restart        RestartStatus
	Authentication string // "md5", "gtsm", "md5+gtsm" or "none"
	// Problem is the reason why routes are missing while the session is up, for instance
	// that the router does not take IPv6 routes, or why BFD is off; empty: neither.
	Problem string
}

// Messages are counts since the peer was configured.
type Messages struct {
	SentUpdates, SentKeepalives, SentNotifications, SentTotal                 uint64
	ReceivedUpdates, ReceivedKeepalives, ReceivedNotifications, ReceivedTotal uint64
}

// BFDStatus is the BFD session beside a BGP session.
type BFDStatus struct {
	Enabled bool
	State   string        // "up", "init", "down" or "admin-down" (RFC 5880, 6.2)
	Detect  time.Duration // detection time
}

// RestartStatus is the result of the negotiation of graceful restart (RFC 4724).
type RestartStatus struct {
	Enabled bool
	Time    time.Duration // for which the router is asked to keep the routes
	Kept    bool          // the router agreed
}

// RouteStatus is a prefix with one of its paths.
type RouteStatus struct {
	Prefix netip.Prefix
	Path   advertise.Path
	// Peers are the routers that have it: those of Path.Peers with an Established session.
	Peers []Advertised
}

// Advertised is a prefix as a router has it.
type Advertised struct {
	Name    string
	Address netip.Addr
	NextHop netip.Addr
	ASPath  []uint32
}

// shown is the part of the engine that Status shows.
type shown struct {
	cfg     Config
	has     map[netip.Prefix]*class // of which only what never changes is read
	hops    map[string]hops
	listen  []netip.AddrPort
	problem string
}

// update takes over the state after changes were applied, or some of them.
func (s *shown) update(e *engine, changes map[netip.Prefix][]advertise.Path, hops map[string]hops) {
	for prefix := range changes {
		if c := e.table.has[prefix]; c != nil {
			s.has[prefix] = c
		} else {
			delete(s.has, prefix)
		}
	}
	s.cfg, s.hops, s.listen, s.problem = e.cfg, hops, e.listen, e.problem
}

// anyEstablished reports whether a session is established.
func (b *sessions) anyEstablished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.State == Established {
			return true
		}
	}
	return false
}

// route returns a path of a prefix with the routers that have it, and counts it there.
func (s *shown) route(prefix netip.Prefix, path advertise.Path, sessions map[string][]*PeerStatus, carriers map[carrier]bool) RouteStatus {
	r, v6 := RouteStatus{Prefix: prefix, Path: path}, !prefix.Addr().Is4()
	for _, name := range path.Peers {
		hop := s.hops[name].of(v6)
		for _, p := range sessions[name] {
			if v6 && !p.Families.IPv6 || !v6 && !p.Families.IPv4 {
				// A session that is down may be the one with the family.
				if p.Problem == "" && !carriers[carrier{p.ASN, p.RouterID, v6}] && !carriers[carrier{p.ASN, netip.Addr{}, v6}] {
					p.Problem = withoutFamily(v6)
				}
				continue
			}
			if !hop.known() {
				continue
			}
			p.Advertised++
			has := Advertised{Name: name, Address: p.Address, NextHop: hop.addr}
			if hop.self {
				has.NextHop = p.Local.Addr().WithZone("")
			}
			if p.ASN != p.LocalASN {
				has.ASPath = slices.Repeat([]uint32{p.LocalASN}, 1+path.Prepend)
			}
			r.Peers = append(r.Peers, has)
		}
	}
	return r
}

// carrier is a router with a session that carries a family. The router ID is invalid while the session is not
// established.
type carrier struct {
	asn uint32
	id  netip.Addr
	v6  bool
}

// carriers returns those of sessions. A router often has one session for each family.
func carriers(sessions []PeerStatus) map[carrier]bool {
	out := map[carrier]bool{}
	for i := range sessions {
		p := &sessions[i]
		if !p.Address.IsValid() {
			continue // a range
		}
		id := p.RouterID
		if p.State != Established {
			id = netip.Addr{}
		}
		if p.Families.IPv4 {
			out[carrier{p.ASN, id, false}] = true
		}
		if p.Families.IPv6 {
			out[carrier{p.ASN, id, true}] = true
		}
	}
	return out
}

// withoutFamily returns the reason why a session does not carry routes that are for its router.
func withoutFamily(v6 bool) string {
	name := "IPv4"
	if v6 {
		name = "IPv6"
	}
	return fmt.Sprintf("the router has no %s unicast in this session, so no %s routes are announced to it: add the family there, "+
		"or remove it from this peer's families", name, name)
}

// problem returns the reason why a family of the session has no next hop.
func (h hops) problem(f advertise.Families) string {
	switch {
	case f.IPv6 && !h.v6.known():
		return "no IPv6 next hop is known, so no IPv6 routes are announced: the session's interface has no global IPv6 address; give one as next hop"
	case f.IPv4 && !h.v4.known():
		return "no IPv4 next hop is known, so no IPv4 routes are announced: the session's interface has no IPv4 address, " +
			"and the router does not take IPv6 next hops (RFC 8950); give one as next hop"
	}
	return ""
}
