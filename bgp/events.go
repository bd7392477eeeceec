package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"weir/bgp/advertise"
)

var states = map[packet.FSMState]State{
	packet.BGP_FSM_IDLE: Idle, packet.BGP_FSM_CONNECT: Connect, packet.BGP_FSM_ACTIVE: Active,
	packet.BGP_FSM_OPENSENT: OpenSent, packet.BGP_FSM_OPENCONFIRM: OpenConfirm, packet.BGP_FSM_ESTABLISHED: Established,
}

// current returns the number of the present GoBGP, or of the next one.
func (b *sessions) current() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

// restarted is the reason when all sessions end because GoBGP is stopped: no router is to blame.
const restarted = "weir restarted BGP: for another ASN, router ID or listener, since a port was free at last, or after an error; see the log"

// stopped records that GoBGP, if there is one, is being stopped: all sessions end. It does not report that itself, and
// the next GoBGP does not know the routers of ranges before they connect.
func (b *sessions) stopped(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number++
	for addr, s := range b.sessions {
		if s.State == Established {
			b.ended(s, restarted, at)
		}
		s.State, s.recreate, s.before, s.BFD.State = Idle, false, s.Messages, ""
		if s.Range.IsValid() {
			delete(b.sessions, addr)
		}
	}
}

// event is a change of a session's state, reported by the GoBGP of a number.
func (b *sessions) event(number uint64, e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	defer logPanic(b.log)
	if e.Type == apiutil.PEER_EVENT_END_OF_INIT {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if number != b.number {
		return // of a GoBGP that has been stopped
	}
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
	if reason := refusal(e.Peer.State.DisconnectReason, s); reason != "" && state != Established && s.State != Established {
		b.fail(s, reason, at)
	}
	s.State = state
	if s.Range.IsValid() && state == Idle && e.Type == apiutil.PEER_EVENT_STATE {
		delete(b.sessions, s.Address) // GoBGP forgets them too
	}
}

// unwantedSession is the reason if a router answers with a NOTIFICATION before there is a
// session: GoBGP does not report its code.
const unwantedSession = "the router answers with a NOTIFICATION: it refuses this session; see its log, mostly for the address, the ASN or the families"

// refusal returns the reason why a session did not come up, or "".
func refusal(r api.PeerState_DisconnectReason, s *session) string {
	switch {
	case r == api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return badPeerAS(s.peer)
	case r == api.PeerState_DISCONNECT_REASON_INVALID_MSG && s.State == OpenConfirm:
		return unwantedSession
	case r == api.PeerState_DISCONNECT_REASON_READ_FAILED:
		return "the router ended the connection before there was a session: it may not know this address"
	}
	return ""
}

// badRouterID is the reason if either side refuses the router ID of the other one (RFC 6286, 2.2).
const badRouterID = "bad BGP identifier: the router and this box have the same router ID, or the router has none; give each its own"

func badPeerAS(p Peer) string {
	return fmt.Sprintf("the router's ASN is not %d, as configured", p.ASN)
}

func (b *sessions) up(s *session, e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	s.Since, s.downKnown = at, false
	s.ASN, s.RouterID = e.Peer.State.PeerASN, e.Peer.State.RouterID
	local := e.Peer.Transport.LocalAddress.Unmap()
	if local.IsUnspecified() { // GoBGP returns the configured one, if any
		local = sourceTo(netip.AddrPortFrom(s.Address, DefaultPort))
	}
	s.Local = netip.AddrPortFrom(local, uint16(e.Peer.Transport.LocalPort))
	s.Families, s.extended = advertise.Families{}, false
	s.Restart.Kept = false
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
		}
	}
	if !multiprotocol {
		s.Families.IPv4 = s.peer.Families.IPv4 // RFC 4760, 8: the default
	}
	b.logLine(s, slog.LevelInfo, "BGP session up", at)
	b.changed()
}

func (b *sessions) down(s *session, e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	overLimit := e.Peer.State.AdminState == api.PeerState_ADMIN_STATE_PFX_CT
	// With BFD always: the router may end its BFD session with this one, as BIRD does.
	// GoBGP would then reset the next session, and so on.
	removed := e.Peer.State.DisconnectReason == api.PeerState_DISCONNECT_REASON_UNSPECIFIED // by weir, which has a new one
	s.recreate = !s.Range.IsValid() && !overLimit && !removed && (s.BFD.Enabled || at.Sub(s.Since) >= b.recreateAfter)
	reason := s.Down
	if !s.downKnown {
		reason = silentEnd(e.Peer.State.DisconnectReason, s)
	}
	if overLimit {
		reason = tooMany(s)
	}
	b.ended(s, reason, at)
}

// ended records the end of a session.
func (b *sessions) ended(s *session, reason string, at time.Time) {
	s.Since, s.DownAt, s.Local = at, at, netip.AddrPort{}
	s.Flaps++
	s.Down, s.downKnown = reason, false
	s.Prefixes = 0
	s.ASN, s.Hold, s.Keepalive, s.Families = s.peer.ASN, s.peer.Hold, s.peer.Keepalive, s.peer.Families
	b.logLine(s, slog.LevelWarn, "BGP session down", at, slog.String("reason", s.Down))
	b.changed()
}

func tooMany(s *session) string {
	return fmt.Sprintf("the router sent more than %d prefixes; tried again in %s", s.MaxPrefixes, prefixLimitPause)
}

// silentEnd returns the reason why a session ended without a NOTIFICATION.
func silentEnd(r api.PeerState_DisconnectReason, s *session) string {
	switch r {
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection ended without a NOTIFICATION: the router restarts, or was cut off"
	case api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the connection broke while sending"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return fmt.Sprintf("nothing received from the router for %s", s.Hold)
	case api.PeerState_DISCONNECT_REASON_DECONFIGURED:
		return "the configuration changed"
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		return "the router sent something else than BGP"
	}
	return "the session was stopped"
}

// setDown records why there is no session, or will be none in a moment.
func (s *session) setDown(reason string, at time.Time) {
	s.Down, s.DownAt, s.downKnown = reason, at, true
}

// cannotConnect records a connection that failed, unless the router has connected
// meanwhile.
func (b *sessions) cannotConnect(addr netip.Addr, err string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.of(addr); s != nil && s.State != Established {
		err = withoutAddresses(err)
		if s.peer.Password != "" && strings.HasSuffix(err, "i/o timeout") {
			err += "; the cause may also be another password, or none, on the router (TCP MD5)" // RFC 2385: the router drops segments with another signature
		}
		b.fail(s, err, time.Now())
		s.downKnown = false
	}
}

// withoutAddresses removes the addresses from an error of package net: that of the router
// is known, and the own one is mostly 0.0.0.0:0.
func withoutAddresses(err string) string {
	if _, rest, ok := strings.Cut(err, ": "); ok && strings.HasPrefix(err, "dial ") {
		return rest
	}
	return err
}

// connected records a connection that came up. The next event is the answer of the router.
func (b *sessions) connected(addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.of(addr); s != nil && s.State != Established && !s.downKnown {
		s.setDown("connected, but the router does not answer: it may want a password or TTL security, or not know this address", time.Now())
		s.downKnown = false
	}
}

// notification records a NOTIFICATION.
func (b *sessions) notification(addr netip.Addr, sent bool, code, subcode uint8, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(addr)
	if s == nil {
		return
	}
	now, words := time.Now(), notification(code, subcode, reason)
	down := "received NOTIFICATION: " + words
	if sent {
		s.Sent, down = words, "sent NOTIFICATION: "+words
	} else {
		s.Received = words
	}
	switch {
	case sent && code == packet.BGP_ERROR_OPEN_MESSAGE_ERROR && subcode == packet.BGP_ERROR_SUB_BAD_PEER_AS:
		down = badPeerAS(s.peer)
	case code == packet.BGP_ERROR_OPEN_MESSAGE_ERROR && subcode == packet.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
		down = badRouterID
	case sent && code == packet.BGP_ERROR_FSM_ERROR && s.State != Established:
		down = unwantedSession
	case sent && code == packet.BGP_ERROR_CEASE && subcode == packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET && s.downKnown:
		down = s.Down // the poll has recorded that the router reads nothing
	case sent && code == packet.BGP_ERROR_CEASE && subcode == packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET && s.BFD.Enabled:
		down = "BFD: the router is not there any more"
	case sent && code == packet.BGP_ERROR_CEASE && subcode == packet.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED:
		down = tooMany(s)
	case sent && code == packet.BGP_ERROR_HOLD_TIMER_EXPIRED:
		down = fmt.Sprintf("nothing received from the router for %s", s.Hold)
	case sent && code == packet.BGP_ERROR_UPDATE_MESSAGE_ERROR && s.downKnown:
		down = s.Down // the malformed message has been recorded
	}
	if s.State == Established {
		s.setDown(down, now)
		return
	}
	b.fail(s, down, now)
}

// malformed records a message that ends the session.
func (b *sessions) malformed(addr netip.Addr, err string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.of(addr); s != nil {
		s.setDown("the router sent a malformed message: "+err, time.Now())
	}
}

// fail records why a session does not come up, and logs it if that is new.
func (b *sessions) fail(s *session, reason string, at time.Time) {
	known := s.Down == reason
	s.setDown(reason, at)
	if !known {
		b.logLine(s, slog.LevelWarn, "BGP session not established", at, slog.String("reason", reason))
	}
}

// logLine logs a line about a session, up to logLimit in logPeriod. Routers of ranges that have had no session share
// their lines: any host of the range can connect.
func (b *sessions) logLine(s *session, level slog.Level, line string, at time.Time, attrs ...slog.Attr) {
	l := &s.lines
	if s.Range.IsValid() && s.Flaps == 0 && level == slog.LevelWarn {
		l = &b.refused
	}
	if at.Sub(l.window) > logPeriod {
		l.window, l.logged = at, 0
	}
	if l.logged++; l.logged > logLimit {
		l.suppressed++
		return
	}
	attrs = append([]slog.Attr{slog.String("peer", s.Name), slog.String("address", s.Address.String())}, attrs...)
	if l.suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", l.suppressed))
		l.suppressed = 0
	}
	b.log.LogAttrs(context.Background(), level, line, attrs...)
}
