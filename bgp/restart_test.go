package bgp

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"weir/bgp/advertise"
)

// GoBGP reports no end of its sessions when it is stopped. A router that does not come back then must not count as
// connected: a box that no router reaches would stay fit.
func TestARestartEndsAllSessions(t *testing.T) {
	parallel(t)
	one, own, b := newRaw(t), newRaw(t), newBox(t)
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("rack", "own")})
	b.configure(func(c *Config) {
		c.ListenPort, c.ListenAddrs = freePort(t, b.addr), []netip.Addr{b.addr}
		c.Peers = []Peer{{Name: "rack", Range: netip.PrefixFrom(one.addr, 32), ASN: routerASN}, own.peer("own", b.addr)}
	})
	one.dial(b.addr, b.cfg.ListenPort, capIPv4, capAS4)
	own.establish(capIPv4, capAS4)
	b.established("rack", "own")
	var before Messages
	eventually(t, func() string {
		if before = b.status("own").Messages; before.SentTotal == 0 {
			return "no message is counted"
		}
		return ""
	})
	b.configure(func(c *Config) { c.ASN = 65099 }) // neither of them answers
	for _, p := range b.Status().Peers {
		if p.State == Established {
			t.Errorf("%s, %s, is %s after the restart", p.Name, p.Address, p.State)
		}
	}
	if p := b.status("rack"); p.Address.IsValid() {
		t.Errorf("%s is known before it connects", p.Address)
	}
	p := b.status("own")
	if p.Flaps != 1 {
		t.Errorf("own has flapped %d times", p.Flaps)
	}
	if p.Messages.SentTotal < before.SentTotal {
		t.Errorf("it has sent %d messages, and had sent %d", p.Messages.SentTotal, before.SentTotal)
	}
}

// What a GoBGP that has been stopped still reports makes no session, and ends none.
func TestStoppedGoBGPIsIgnored(t *testing.T) {
	t.Parallel()
	known, stranger := loopback(), loopback()
	b := &sessions{log: quietLog(), changed: func() {}, sessions: map[netip.Addr]*session{}}
	b.configure([]Peer{
		Peer{Name: "known", Address: known, ASN: routerASN}.WithDefaults(Config{ASN: boxASN}),
		Peer{Name: "rack", Range: netip.PrefixFrom(stranger, 32), ASN: routerASN}.WithDefaults(Config{ASN: boxASN}),
	}, 0)
	change := func(number uint64, addr netip.Addr, state packet.FSMState) {
		b.event(number, &apiutil.WatchEventMessage_PeerEvent{Peer: apiutil.Peer{State: apiutil.PeerState{
			NeighborAddress: addr, SessionState: state, DisconnectReason: api.PeerState_DISCONNECT_REASON_READ_FAILED,
		}}}, time.Now())
	}
	former := b.current()
	change(former, known, packet.BGP_FSM_ESTABLISHED)
	b.stopped(time.Now())
	if lost := b.lost(); len(lost) > 0 {
		t.Errorf("%v would be created a second time", lost)
	}
	if got := b.sessions[known]; got.State != Idle || got.Flaps != 1 || got.Down != restarted {
		t.Errorf("after the stop: %+v", got.PeerStatus)
	}
	change(b.current(), known, packet.BGP_FSM_ESTABLISHED)
	change(former, known, packet.BGP_FSM_IDLE)
	change(former, stranger, packet.BGP_FSM_ESTABLISHED)
	handler := (&logHandler{log: quietLog(), sessions: b, limiter: &limiter{}, number: former}).WithAttrs([]slog.Attr{slog.String("Key", stranger.String())})
	must(t, handler.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelWarn, msgConnectFailed, 0)))
	if got := b.sessions[known]; got.State != Established || got.Flaps != 1 {
		t.Errorf("an event of the stopped one has ended the session of the present one: %+v", got.PeerStatus)
	}
	if b.sessions[stranger] != nil {
		t.Error("there is a session of a router that the present one does not know")
	}
}
