package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// prefixLimitPause is the pause before a router that sent too many prefixes is retried.
const prefixLimitPause = time.Hour

// repair is what a poll finds to do about a session.
type repair int

const (
	noRepair repair = iota
	enable          // the pause after too many prefixes is over, or the limit has changed
	reset           // the router reads nothing
	await           // a router of a range has no session
)

// update takes over the state that GoBGP only returns on request.
func (b *sessions) update(p *api.Peer, now time.Time) repair {
	if p == nil || p.State == nil {
		return noRepair
	}
	addr, err := netip.ParseAddr(p.State.NeighborAddress)
	if err != nil {
		return noRepair
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[addr]
	switch {
	case s != nil:
	case p.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED:
		return noRepair
	default: // a router of a range that has just come, or is gone since GoBGP listed it: no event would remove its session
		return await
	}
	sent := s.Messages.SentTotal
	s.count(p.State.Messages)
	s.BFD.State = ""
	if s.BFD.Enabled {
		// A session without a packet from its peer has no state in GoBGP; RFC 5880, 6.8.1,
		// calls it down.
		s.BFD.State = cmp.Or(bfdStates[p.State.BfdState.GetSessionState()], bfdStates[api.BfdSessionState_BFD_SESSION_STATE_DOWN])
	}
	s.Prefixes = 0
	for _, f := range p.AfiSafis {
		s.Prefixes += int(f.State.GetReceived())
	}
	if t := p.Timers.GetState(); s.State == Established && t != nil {
		s.Hold = time.Duration(t.NegotiatedHoldTime) * time.Second
		s.Keepalive = time.Duration(t.KeepaliveInterval) * time.Second
	}
	overLimit := p.State.AdminState == api.PeerState_ADMIN_STATE_PFX_CT
	pardon := overLimit && (s.limitChanged || now.Sub(s.DownAt) >= prefixLimitPause)
	if overLimit && s.State != Established && !pardon {
		s.Down = tooMany(s)
	}
	s.limitChanged = false
	switch {
	case pardon:
		return enable
	case s.blocked(s.Messages.SentTotal != sent, now):
		s.setDown(fmt.Sprintf("the router has read nothing for %s", s.Hold), now)
		return reset
	case s.Range.IsValid() && p.State.SessionState != api.PeerState_SESSION_STATE_ESTABLISHED:
		return await
	}
	return noRepair
}

// blocked reports whether nothing could be sent to the router for the hold time: a router that
// reads nothing fills the connection, and GoBGP waits without limit and keeps all updates. RFC 9687
// ends such a session. weir sends a message at least three times in the hold time, so a router that
// reads any of them never gets here.
func (s *session) blocked(sent bool, now time.Time) bool {
	// The time while this process stood still does not count: GoBGP could not send then, either.
	passed := min(now.Sub(s.polledAt), 2*pollEvery)
	s.polledAt = now
	if sent || s.State != Established || s.Hold == 0 {
		s.unsent = 0
		return false
	}
	s.unsent += passed
	if s.unsent <= s.Hold {
		return false
	}
	s.unsent = 0
	return true
}

func (s *session) count(m *api.Messages) {
	if m == nil {
		return
	}
	s.Messages = Messages{
		SentUpdates:           s.before.SentUpdates + m.Sent.GetUpdate(),
		SentKeepalives:        s.before.SentKeepalives + m.Sent.GetKeepalive(),
		SentNotifications:     s.before.SentNotifications + m.Sent.GetNotification(),
		SentTotal:             s.before.SentTotal + m.Sent.GetTotal(),
		ReceivedUpdates:       s.before.ReceivedUpdates + m.Received.GetUpdate(),
		ReceivedKeepalives:    s.before.ReceivedKeepalives + m.Received.GetKeepalive(),
		ReceivedNotifications: s.before.ReceivedNotifications + m.Received.GetNotification(),
		ReceivedTotal:         s.before.ReceivedTotal + m.Received.GetTotal(),
	}
}
