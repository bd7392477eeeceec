package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Status is what a Speaker is at, at one moment. It comes from memory of the
// Speaker's own and never waits for GoBGP or a router.
type Status struct {
	ASN      uint32
	RouterID netip.Addr
	Listen   []netip.AddrPort // where routers can connect; none: nowhere
	// Problem is why the speaker does not do its work, for instance that its port is
	// taken; empty when it does.
	Problem string
	Peers   []PeerStatus  // sorted by name, then address
	Routes  []RouteStatus // sorted by prefix, then by the first peer's name
}

// State is that of a session, in the words of RFC 4271, 8.2.2.
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

// PeerStatus is one session. A range has an entry of its own without Address, and
// one more for every router of it that is there.
type PeerStatus struct {
	Name     string
	Address  netip.Addr
	Range    netip.Prefix // of a range, and of the routers in it
	ASN      uint32       // the router's; of a range that takes every one, 0
	LocalASN uint32
	Local    netip.AddrPort // this end of the session; the zero value: there is none
	State    State
	Since    time.Time // when State came to be Established, or stopped being so
	// Down is why the session is not there, or was not the last time: what was sent,
	// what was received or what failed. DownAt is when it was.
	Down   string
	DownAt time.Time
	// Sent and Received are the last NOTIFICATION in each direction, in words, for
	// instance "bad peer AS"; empty: there was none.
	Sent, Received string
	Families       Families // what both sides speak; while not Established, what weir offers
	Prefixes       int      // the router has sent; none is used
	MaxPrefixes    int
	Advertised     int // prefixes that the router has from weir
	Messages       Messages
	Flaps          int // times that an Established session was lost
	Hold           time.Duration
	Keepalive      time.Duration // both as negotiated; while not Established, as configured
	BFD            BFDStatus
	Restart        RestartStatus
	Authentication string // "md5", "gtsm", "md5+gtsm" or "none"
	// Problem is what keeps routes from the router while its session is up, for
	// instance that no IPv6 next hop is known; empty: nothing does.
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
	Detect  time.Duration // within which the router is found dead
}

// RestartStatus is what both sides agreed on about restarts (RFC 4724).
type RestartStatus struct {
	Enabled  bool
	Time     time.Duration // for which the router was asked to keep the routes
	Kept     bool          // the router said that it can
	PeerTime time.Duration // the router's own restart time; weir keeps nothing of it
}

// RouteStatus is one prefix as some of the peers have it.
type RouteStatus struct {
	Prefix netip.Prefix
	Path   Path
	// Peers are who has it now: those of Path.Peers whose session is Established.
	Peers []Advertised
}

// Advertised is a prefix as one router has it.
type Advertised struct {
	Name    string
	Address netip.Addr
	NextHop netip.Addr
	ASPath  []uint32
}

// shown is what Status knows of the engine, which it never asks.
type shown struct {
	cfg     Config
	has     map[netip.Prefix]*class // of which only what never changes is read
	hops    map[string]hops
	listen  []netip.AddrPort
	problem string
}

// note takes over how it is after changes were applied, or some of them.
func (s *shown) note(e *engine, changes map[netip.Prefix][]Path, hops map[string]hops) {
	for prefix := range changes {
		if c := e.has[prefix]; c != nil {
			s.has[prefix] = c
		} else {
			delete(s.has, prefix)
		}
	}
	s.cfg, s.hops, s.listen, s.problem = e.cfg, hops, e.listen, e.problem
}

// Heard tells whether any router has a session. Other than Status it costs nothing for
// each route.
func (s *Speaker) Heard() bool { return s.board.heard() }

// heard tells whether there is a session.
func (b *board) heard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.State == Established {
			return true
		}
	}
	return false
}

// Status tells how things are.
func (s *Speaker) Status() Status {
	s.mu.Lock()
	now := s.shown
	now.has = maps.Clone(now.has)
	if !s.working.IsZero() && time.Since(s.working) > stuckAfter {
		now.problem = fmt.Sprintf("GoBGP has not answered for %s: no route changes get through; restart weir, which the routers will not notice",
			time.Since(s.working).Truncate(time.Second))
	}
	s.mu.Unlock()
	out := Status{ASN: now.cfg.ASN, RouterID: now.cfg.RouterID, Listen: now.listen, Problem: now.problem}
	out.Peers = s.board.all(len(now.listen) > 0)
	sessions := map[string][]*PeerStatus{}
	for i := range out.Peers {
		if p := &out.Peers[i]; p.State == Established {
			sessions[p.Name] = append(sessions[p.Name], p)
			p.Problem = now.hops[p.Name].problem(p.Families)
		}
	}
	for prefix, c := range now.has {
		for _, path := range c.paths {
			out.Routes = append(out.Routes, now.route(prefix, path, sessions))
		}
	}
	slices.SortFunc(out.Routes, func(a, b RouteStatus) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Path.Peers[0], b.Path.Peers[0]))
	})
	return out
}

// route is a path of a prefix with those who have it, whose counts go up.
func (s *shown) route(prefix netip.Prefix, path Path, sessions map[string][]*PeerStatus) RouteStatus {
	r, v6 := RouteStatus{Prefix: prefix, Path: path}, !prefix.Addr().Is4()
	for _, name := range path.Peers {
		hop := s.hops[name].of(v6)
		for _, p := range sessions[name] {
			if !hop.known() || v6 && !p.Families.IPv6 || !v6 && !p.Families.IPv4 {
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

// problem is why routes of a family that the session carries have no next hop.
func (h hops) problem(f Families) string {
	switch {
	case f.IPv6 && !h.v6.known():
		return "no IPv6 next hop is known, so no IPv6 routes are announced: the session's interface has no global IPv6 address; give one as next hop"
	case f.IPv4 && !h.v4.known():
		return "no IPv4 next hop is known, so no IPv4 routes are announced: the session's interface has no IPv4 address, " +
			"and the router does not take IPv6 next hops (RFC 8950); give one as next hop"
	}
	return ""
}
