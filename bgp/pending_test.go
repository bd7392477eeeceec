package bgp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestPendingRoutersHaveALimitOfTimeAndNumber(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var s pending
	var end []string
	for _, c := range []struct {
		now     int
		waiting []string
		end     []string
	}{
		{0, []string{"a", "b"}, nil},
		{20, []string{"b", "c"}, nil}, // a has a session, or is gone
		{30, []string{"a", "b", "c"}, []string{"b"}},
		{49, []string{"a", "c"}, nil},
		{50, []string{"a", "c"}, []string{"c"}},
		{51, []string{"a", "c"}, nil}, // c is a new one
		{60, []string{"a", "c"}, []string{"a"}},
	} {
		if s, end = s.after(c.waiting, at(c.now)); !slices.Equal(end, c.end) {
			t.Errorf("after %d s %v end, want %v", c.now, end, c.end)
		}
	}
	var many []string
	for i := range mostPending {
		many = append(many, fmt.Sprint(i))
	}
	s, _ = s.after(slices.Clone(many), at(100))
	if s, end = s.after(append([]string{"new", "newer"}, many...), at(101)); !slices.Equal(end, many[:2]) || len(s) != mostPending {
		t.Errorf("of %d routers %v end, want the oldest two", len(many)+2, end)
	}
}

// TestPendingRoutersAreRemoved connects to a box from more addresses of a range than it keeps, and sends nothing. Then a router
// of the range gets its session.
func TestPendingRoutersAreRemoved(t *testing.T) {
	b := newBox(t) // not parallel: it takes many files
	b.configure(func(c *Config) {
		c.ListenPort, c.ListenAddrs = freePort(t, b.addr), []netip.Addr{b.addr}
		c.Peers = []Peer{{Name: "rack", Range: prefix("127.0.0.0/8"), ASN: routerASN}}
	})
	var conns []net.Conn
	for i := range mostPending * 3 / 2 {
		from := net.TCPAddr{IP: net.IPv4(127, 200, byte(i/250), byte(i%250+1))}
		d := net.Dialer{LocalAddr: &from, Timeout: patience}
		conn, err := d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(b.addr, uint16(b.cfg.ListenPort)).String())
		must(t, err)
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, conn := range conns { // until GoBGP has accepted it
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, _ = conn.Read(make([]byte, 1))
	}
	eventually(t, func() string {
		if n := goroutinesOf("(*fsmHandler).loop"); n < mostPending/2 || n > mostPending {
			return fmt.Sprintf("GoBGP has %d peers, want at most %d", n, mostPending)
		}
		if n := len(b.Status().Peers); n > mostPending+1 { // and the range
			return fmt.Sprintf("the status has %d peers, want at most %d", n, mostPending+1)
		}
		return ""
	})
	router := newRaw(t)
	router.dial(b.addr, b.cfg.ListenPort, capIPv4, capAS4)
	state := func() (p PeerStatus) {
		for _, p := range b.Status().Peers {
			if p.Address == router.addr {
				return p
			}
		}
		return p
	}
	eventually(t, func() string {
		if p := state(); p.State != Established {
			return fmt.Sprintf("the router is %q: %s", p.State, p.Down)
		}
		return ""
	})
	since := state().Since
	// It stays while a configuration changes something else.
	b.configure(func(c *Config) { c.Peers = append(c.Peers, newRaw(t).peer("other", b.addr)) })
	if p := state(); p.State != Established || p.Since != since {
		t.Errorf("after the change of another peer the router is %q since %s, was since %s", p.State, p.Since, since)
	}
	_ = router.conn.SetReadDeadline(time.Now().Add(time.Second))
	if kind, _, err := router.read(); err == nil && kind == notify {
		t.Error("the router got a NOTIFICATION")
	}
}

// A router that is gone when a poll gets to it in GoBGP's list leaves no session behind. One that waits still has to end.
func TestAPollMakesNoSession(t *testing.T) {
	t.Parallel()
	b := &sessions{log: quietLog(), changed: func() {}, sessions: map[netip.Addr]*session{}}
	b.configure([]Peer{Peer{Name: "rack", Range: prefix("127.0.0.0/8")}.WithDefaults(Config{ASN: boxASN})}, 0)
	if got := b.update(polled(loopback(), 1, 0), time.Now()); got != await {
		t.Errorf("the poll finds %d to do", got)
	}
	if len(b.sessions) > 0 {
		t.Errorf("a router that GoBGP does not have stays: %+v", b.all(true))
	}
}
