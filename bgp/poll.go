package bgp

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// prefixLimitPause is the pause before a router that sent too many prefixes is retried.
const prefixLimitPause = time.Hour

// update takes over the state that GoBGP only returns on request. It reports whether a
// peer with too many prefixes may be retried: the pause is over, or the limit has changed.
func (b *sessions) update(p *api.Peer, now time.Time) (pardon bool) {
	if p == nil || p.State == nil {
		return false
	}
	addr, err := netip.ParseAddr(p.State.NeighborAddress)
	if err != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.of(addr)
	if s == nil {
		return false
	}
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
	pardon = overLimit && (s.limitChanged || now.Sub(s.DownAt) >= prefixLimitPause)
	if overLimit && s.State != Established && !pardon {
		s.Down = tooMany(s)
	}
	s.limitChanged = false
	return pardon
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
