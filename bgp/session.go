package bgp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// board is what is known about the sessions. GoBGP's goroutines write to it, Status
// reads it; nobody waits here.
type board struct {
	log  *slog.Logger
	wake func() // something has changed that the Speaker should look at
	// renewAfter is how long a session has to last for GoBGP's side of it to be made
	// anew when it is lost. Shorter ones GoBGP tries again by itself, with more of a
	// pause.
	renewAfter time.Duration

	mu       sync.Mutex
	peers    []Peer // with defaults
	sessions map[netip.Addr]*session
	restart  time.Duration
}

// session is what the board knows of one router.
type session struct {
	PeerStatus
	peer     Peer
	extended bool // the router takes IPv4 routes with IPv6 next hops (RFC 8950)
	caught   bool // Down is about the present failure
	pardoned bool // the limit of prefixes is another since it was last looked at
	renew    bool // GoBGP's side of it is to be made anew
	before   Messages
	lines    int // logged since window
	unsaid   int
	window   time.Time
}

// A peer may have so many lines in the log in that time.
const (
	linesEach  = 6
	linesEvery = time.Minute
)

// configure takes over the peers of a Config. Sessions of peers that are gone, or
// are not what they were, are forgotten.
func (b *board) configure(peers []Peer, restart time.Duration) {
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

func (b *board) keep(addr netip.Addr, p Peer) *session {
	s := b.sessions[addr]
	if s == nil || s.Name != p.Name {
		s = &session{PeerStatus: PeerStatus{Address: addr, State: Idle, Since: time.Now()}}
	}
	s.pardoned = s.pardoned || s.MaxPrefixes != 0 && s.MaxPrefixes != p.MaxPrefixes
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

// peerOf finds the peer of an address, which GoBGP gives with its zone.
func (b *board) peerOf(addr netip.Addr) (Peer, bool) {
	for _, p := range bySpecificity(b.peers) {
		if p.Address == addr || p.Range.Contains(addr.WithZone("")) {
			return p, true
		}
	}
	return Peer{}, false
}

// of is the session of an address, made when a router of a range turns up.
func (b *board) of(addr netip.Addr) *session {
	if s := b.sessions[addr]; s != nil {
		return s
	}
	p, ok := b.peerOf(addr)
	if !ok {
		return nil
	}
	s := b.keep(addr, p)
	b.sessions[addr] = s
	return s
}

var states = map[packet.FSMState]State{
	packet.BGP_FSM_IDLE: Idle, packet.BGP_FSM_CONNECT: Connect, packet.BGP_FSM_ACTIVE: Active,
	packet.BGP_FSM_OPENSENT: OpenSent, packet.BGP_FSM_OPENCONFIRM: OpenConfirm, packet.BGP_FSM_ESTABLISHED: Established,
}

// event is a change of a session's state.
func (b *board) event(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if e.Type == apiutil.PEER_EVENT_END_OF_INIT {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(e.Peer.State.NeighborAddress)
	if s == nil {
		return
	}
	state := states[e.Peer.State.SessionState]
	switch {
	case state == Established && s.State != Established:
		b.up(s, e, at)
	case state != Established && s.State == Established:
		b.down(s, e, at)
	}
	if why := refusal(e.Peer.State.DisconnectReason, s); why != "" && state != Established && s.State != Established {
		b.tell(s, why, at)
	}
	s.State = state
	if s.Range.IsValid() && state == Idle && e.Type == apiutil.PEER_EVENT_STATE {
		delete(b.sessions, s.Address) // GoBGP forgets them too
	}
}

// unwanted is what is known when a router answers with a NOTIFICATION before there is
// a session: GoBGP doesn't tell which.
const unwanted = "the router answers with a NOTIFICATION: it does not want this session; its log tells why, mostly the address or the ASN"

// refusal is why a session did not come up, or empty.
func refusal(r api.PeerState_DisconnectReason, s *session) string {
	switch {
	case r == api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return badPeerAS(s.peer)
	case r == api.PeerState_DISCONNECT_REASON_INVALID_MSG && s.State == OpenConfirm:
		return unwanted
	case r == api.PeerState_DISCONNECT_REASON_READ_FAILED:
		return "the router ended the connection before there was a session: it may not know this address"
	}
	return ""
}

func badPeerAS(p Peer) string {
	return fmt.Sprintf("the router's ASN is not %d, as configured", p.ASN)
}

func (b *board) up(s *session, e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	s.Since, s.caught = at, false
	s.ASN = e.Peer.State.PeerASN
	local := e.Peer.Transport.LocalAddress.Unmap()
	if local.IsUnspecified() { // GoBGP tells the one of the configuration, if any
		local = sourceTo(netip.AddrPortFrom(s.Address, DefaultPort))
	}
	s.Local = netip.AddrPortFrom(local, uint16(e.Peer.Transport.LocalPort))
	s.Families, s.extended = Families{}, false
	s.Restart.Kept, s.Restart.PeerTime = false, 0
	multiprotocol := false
	for _, c := range e.Peer.State.RemoteCap {
		switch c := c.(type) {
		case *packet.CapMultiProtocol:
			multiprotocol = true
			s.Families.IPv4 = s.Families.IPv4 || c.CapValue == packet.RF_IPv4_UC && s.peer.Families.IPv4
			s.Families.IPv6 = s.Families.IPv6 || c.CapValue == packet.RF_IPv6_UC && s.peer.Families.IPv6
		case *packet.CapExtendedNexthop:
			s.extended = s.extended || len(c.Tuples) > 0
		case *packet.CapGracefulRestart:
			s.Restart.Kept = s.Restart.Enabled
			s.Restart.PeerTime = time.Duration(c.Time) * time.Second
		}
	}
	if !multiprotocol {
		s.Families.IPv4 = s.peer.Families.IPv4 // RFC 4760, 8: that is what it can
	}
	b.say(s, slog.LevelInfo, "bgp session up", at)
	b.wake()
}

func (b *board) down(s *session, e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	overLimit := e.Peer.State.AdminState == api.PeerState_ADMIN_STATE_PFX_CT
	// With BFD always: the router's own may end with the session, as BIRD's does, and what
	// GoBGP makes of that a moment later would end the next one, and so on.
	s.renew = !s.Range.IsValid() && !overLimit && (s.BFD.Enabled || at.Sub(s.Since) >= b.renewAfter)
	s.Since, s.DownAt, s.Local = at, at, netip.AddrPort{}
	s.Flaps++
	if !s.caught {
		s.Down = reason(e.Peer.State.DisconnectReason, s)
	}
	if overLimit {
		s.Down = tooMany(s)
	}
	s.caught = false
	s.Prefixes = 0
	s.ASN, s.Hold, s.Keepalive, s.Families = s.peer.ASN, s.peer.Hold, s.peer.Keepalive, s.peer.Families
	b.say(s, slog.LevelWarn, "bgp session down", at, slog.String("why", s.Down))
	b.wake()
}

func tooMany(s *session) string {
	return fmt.Sprintf("the router sent more than %d prefixes; tried again in %s", s.MaxPrefixes, overLimitPause)
}

// reason is why a session ended of which no NOTIFICATION told.
func reason(r api.PeerState_DisconnectReason, s *session) string {
	switch r {
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection ended without a NOTIFICATION: the router restarts, or was cut off"
	case api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection broke while sending"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("nothing heard from the router for %s", s.Hold)
	case api.PeerState_DISCONNECT_REASON_DECONFIGURED:
		return "the configuration changed"
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		return "the router sent something else than BGP"
	}
	return "the session was stopped"
}

// fail records why there is no session, or will be none in a moment.
func (s *session) fail(why string, at time.Time) {
	s.Down, s.DownAt, s.caught = why, at, true
}

// cannotConnect is a connection that did not come up. If the router has connected
// in the meantime it does not matter.
func (b *board) cannotConnect(addr netip.Addr, err string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.of(addr); s != nil && s.State != Established {
		err = withoutEnds(err)
		if s.peer.Password != "" && strings.HasSuffix(err, "i/o timeout") {
			err += ": so it is, too, when the router has another password or none (TCP MD5)" // RFC 2385: it drops what is signed otherwise
		}
		b.tell(s, err, time.Now())
		s.caught = false
	}
}

// withoutEnds takes from an error of package net the addresses that it begins with:
// who reads it knows the router's, and the own one is mostly 0.0.0.0:0.
func withoutEnds(err string) string {
	if _, rest, ok := strings.Cut(err, ": "); ok && strings.HasPrefix(err, "dial ") {
		return rest
	}
	return err
}

// connected is a connection that came up. Nothing more is heard of it until the
// router has answered.
func (b *board) connected(addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.of(addr); s != nil && s.State != Established && !s.caught {
		s.fail("connected, but the router does not answer: it may want a password or TTL security, or not know this address", time.Now())
		s.caught = false
	}
}

// notification is one that was sent or received.
func (b *board) notification(addr netip.Addr, sent bool, code, subcode uint8, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(addr)
	if s == nil {
		return
	}
	now, words := time.Now(), notification(code, subcode, why)
	down := "received NOTIFICATION: " + words
	if sent {
		s.Sent, down = words, "sent NOTIFICATION: "+words
	} else {
		s.Received = words
	}
	switch {
	case sent && code == packet.BGP_ERROR_OPEN_MESSAGE_ERROR && subcode == packet.BGP_ERROR_SUB_BAD_PEER_AS:
		down = badPeerAS(s.peer)
	case sent && code == packet.BGP_ERROR_FSM_ERROR && s.State != Established:
		down = unwanted
	case sent && code == packet.BGP_ERROR_CEASE && subcode == packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET && s.BFD.Enabled:
		down = "BFD: the router is not there any more"
	case sent && code == packet.BGP_ERROR_CEASE && subcode == packet.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED:
		down = tooMany(s)
	case sent && code == packet.BGP_ERROR_HOLD_TIMER_EXPIRED:
		down = fmt.Sprintf("nothing heard from the router for %s", s.Hold)
	case sent && code == packet.BGP_ERROR_UPDATE_MESSAGE_ERROR && s.caught:
		down = s.Down // what was malformed has been told
	}
	if s.State == Established {
		s.fail(down, now)
		return
	}
	b.tell(s, down, now)
}

// malformed is a message that ends the session.
func (b *board) malformed(addr netip.Addr, err string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.of(addr); s != nil {
		s.fail("the router sent a malformed message: "+err, time.Now())
	}
}

// tell records why a session does not come up, and logs it when that is new.
func (b *board) tell(s *session, why string, at time.Time) {
	known := s.Down == why
	s.fail(why, at)
	if !known {
		b.say(s, slog.LevelWarn, "bgp session does not come up", at, slog.String("why", why))
	}
}

// say logs a line about a session, if it has not had too many of late.
func (b *board) say(s *session, level slog.Level, line string, at time.Time, attrs ...slog.Attr) {
	if at.Sub(s.window) > linesEvery {
		s.window, s.lines = at, 0
	}
	if s.lines++; s.lines > linesEach {
		s.unsaid++
		return
	}
	attrs = append([]slog.Attr{slog.String("peer", s.Name), slog.String("address", s.Address.String())}, attrs...)
	if s.unsaid > 0 {
		attrs = append(attrs, slog.Int("lines_left_out", s.unsaid))
		s.unsaid = 0
	}
	b.log.LogAttrs(context.Background(), level, line, attrs...)
}

// all gives what is known, sorted, ranges before their routers.
func (b *board) all(listening bool) []PeerStatus {
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

// addresses are those of a peer's sessions.
func (b *board) addresses(p Peer) []netip.Addr {
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

// refusesExtended tells whether a router of p that is there does not take IPv4
// routes with IPv6 next hops; if none is there, it is as it was.
func (b *board) refusesExtended(p Peer, was bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.Name == p.Name && s.State == Established {
			return !s.extended
		}
	}
	return was
}

// lost are the peers whose session is to be made anew, each told once.
func (b *board) lost() []Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Peer
	for _, s := range b.sessions {
		if s.renew && s.State != Established {
			s.renew, s.before = false, s.Messages
			out = append(out, s.peer)
		}
	}
	return out
}

// withBFD are the sessions beside which BFD is up.
func (b *board) withBFD() []session {
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
