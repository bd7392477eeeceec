package bgp

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// sessions has the state of all sessions. GoBGP's goroutines write it, Status reads it; no
// call blocks.
type sessions struct {
	log     *slog.Logger
	changed func() // the Speaker must check its state
	// recreateAfter is how long a session must have lasted for GoBGP's peer to be created
	// again when it is lost. GoBGP itself retries shorter ones, with a longer pause.
	recreateAfter time.Duration
	filter        ttlFilter

	mu       sync.Mutex
	number   uint64 // of the present GoBGP, the only one that counts: events and lines of a stopped one are ignored
	peers    []Peer // with defaults
	sessions map[netip.Addr]*session
	refused  lines // about routers of ranges without a session
	restart  time.Duration
}

// session is the state of one router.
type session struct {
	PeerStatus
	peer         Peer
	extended     bool // the router takes IPv4 routes with IPv6 next hops (RFC 8950)
	downKnown    bool // Down is the reason of the present failure
	limitChanged bool // the prefix limit has changed since the last poll
	recreate     bool // GoBGP's peer must be created again
	before       Messages
	polledAt     time.Time     // the last poll
	unsent       time.Duration // since a message could be sent
	lines        lines
}

// lines counts log lines, to limit them.
type lines struct {
	logged, suppressed int // since window
	window             time.Time
}

// The lines that a peer may log in a period.
const (
	logLimit  = 6
	logPeriod = time.Minute
)

// configure takes over the peers of a Config. Sessions of removed or changed peers are
// forgotten.
func (b *sessions) configure(peers []Peer, restart time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peers, b.restart = peers, restart
	now := map[netip.Addr]*session{}
	for _, p := range peers {
		if p.Address.IsValid() {
			now[p.Address] = b.keep(p.Address, p)
		}
	}
	for addr, s := range b.sessions {
		if p, ok := b.peerOf(addr); ok && p.Range.IsValid() && p.Name == s.Name {
			now[addr] = b.keep(addr, p)
		}
	}
	b.sessions = now
}

func (b *sessions) keep(addr netip.Addr, p Peer) *session {
	s := b.sessions[addr]
	if s == nil || s.Name != p.Name {
		s = &session{PeerStatus: PeerStatus{Address: addr, State: Idle, Since: time.Now()}}
	}
	s.limitChanged = s.limitChanged || s.MaxPrefixes != 0 && s.MaxPrefixes != p.MaxPrefixes
	s.peer, s.Name, s.Range, s.LocalASN, s.MaxPrefixes = p, p.Name, p.Range, p.LocalASN, p.MaxPrefixes
	s.Authentication = p.authentication()
	s.BFD.Enabled, s.BFD.Detect = p.BFD.Enabled, p.BFD.Interval*time.Duration(p.BFD.Multiplier)
	s.Restart.Enabled, s.Restart.Time = b.restart > 0, b.restart
	if s.State != Established {
		s.ASN, s.Hold, s.Keepalive, s.Families = p.ASN, p.Hold, p.Keepalive, p.Families
	}
	return s
}

func (p Peer) authentication() string {
	switch {
	case p.Password != "" && p.TTLSecurity > 0:
		return "md5+gtsm"
	case p.Password != "":
		return "md5"
	case p.TTLSecurity > 0:
		return "gtsm"
	}
	return "none"
}

// peerOf returns the peer of an address, which GoBGP reports with its zone.
func (b *sessions) peerOf(addr netip.Addr) (Peer, bool) {
	for _, p := range bySpecificity(b.peers) {
		if p.Address == addr || p.Range.Contains(addr.WithZone("")) {
			return p, true
		}
	}
	return Peer{}, false
}

// forget removes a router of a range.
func (b *sessions) forget(addr string) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[a]; s != nil && s.Range.IsValid() {
		delete(b.sessions, a)
	}
}

// of returns the session of an address, and creates it for a new router of a range.
func (b *sessions) of(addr netip.Addr) *session {
	if s := b.sessions[addr]; s != nil {
		return s
	}
	p, ok := b.peerOf(addr)
	if !ok {
		return nil
	}
	s := b.keep(addr, p)
	b.sessions[addr] = s
	if len(b.sessions) > mostPending {
		b.changed() // a poll removes some
	}
	return s
}

// all returns the sessions, sorted, ranges before their routers.
func (b *sessions) all(listening bool) []PeerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []PeerStatus
	for s := range maps.Values(b.sessions) {
		out = append(out, s.PeerStatus)
	}
	for _, p := range b.peers {
		if !p.Range.IsValid() {
			continue
		}
		r := PeerStatus{Name: p.Name, Range: p.Range, ASN: p.ASN, LocalASN: p.LocalASN, State: Idle, MaxPrefixes: p.MaxPrefixes,
			Families: p.Families, Hold: p.Hold, Keepalive: p.Keepalive, Authentication: p.authentication()}
		if listening {
			r.State = Active
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address))
	})
	return out
}

// addresses returns the addresses of a peer's sessions.
func (b *sessions) addresses(p Peer) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []netip.Addr
	for addr, s := range b.sessions {
		if s.Name == p.Name {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// refusesExtended reports whether a connected router of p refuses IPv4 routes with IPv6
// next hops; without one, the previous value.
func (b *sessions) refusesExtended(p Peer, was bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.Name == p.Name && s.State == Established {
			return !s.extended
		}
	}
	return was
}

// lost returns the peers to create again, each once.
func (b *sessions) lost() []Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Peer
	for _, s := range b.sessions {
		if s.recreate && s.State != Established {
			s.recreate, s.before = false, s.Messages
			out = append(out, s.peer)
		}
	}
	return out
}

// withoutBFD returns the peers with a BFD session that is not up.
func (b *sessions) withoutBFD() []Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Peer
	for _, s := range b.sessions {
		if s.peer.BFD.Enabled && s.peer.Address.IsValid() && s.BFD.State != bfdStates[api.BfdSessionState_BFD_SESSION_STATE_UP] {
			out = append(out, s.peer)
		}
	}
	return out
}

// withBFD returns the sessions with BFD up.
func (b *sessions) withBFD() []session {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []session
	for _, s := range b.sessions {
		if s.BFD.State == bfdStates[api.BfdSessionState_BFD_SESSION_STATE_UP] {
			out = append(out, *s)
		}
	}
	return out
}

var bfdStates = map[api.BfdSessionState]string{
	api.BfdSessionState_BFD_SESSION_STATE_UP: "up", api.BfdSessionState_BFD_SESSION_STATE_INIT: "init",
	api.BfdSessionState_BFD_SESSION_STATE_DOWN:       "down",
	api.BfdSessionState_BFD_SESSION_STATE_ADMIN_DOWN: "admin-down",
}
