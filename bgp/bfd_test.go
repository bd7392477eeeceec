package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bfd"
	"golang.org/x/sys/unix"

	"weir/bgp/advertise"
	"weir/cmd/weirlab/fuzzing"
)

// bfdRouter is the other end of a BFD session.
type bfdRouter struct {
	conn    *net.UDPConn
	mu      sync.Mutex
	mute    bool
	last    bfd.BFDHeader
	packets int
}

func newBFDRouter(t *testing.T, addr netip.Addr) *bfdRouter {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { // the box has the port too
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		})
	}}
	conn, err := lc.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(addr, 3784).String())
	must(t, err)
	r := &bfdRouter{conn: conn.(*net.UDPConn)}
	t.Cleanup(func() { conn.Close() })
	r.setTTL(t, 255)
	go r.run()
	return r
}

func (r *bfdRouter) setTTL(t *testing.T, ttl int) {
	t.Helper()
	setSocketTTL(t, r.conn, unix.IPPROTO_IP, unix.IP_TTL, ttl)
}

func setSocketTTL(t *testing.T, conn *net.UDPConn, level, option, ttl int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, ttl) }))
	must(t, err)
}

// run answers as RFC 5880, 6.8.6 has it, for as long as nothing goes wrong.
func (r *bfdRouter) run() {
	buf := make([]byte, 1500)
	for {
		n, from, err := r.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		var h bfd.BFDHeader
		if h.UnmarshalBinary(buf[:n]) != nil {
			continue
		}
		r.mu.Lock()
		r.last = h
		r.packets++
		mute := r.mute
		r.mu.Unlock()
		if mute || h.State == bfd.StateAdminDown {
			continue
		}
		state := bfd.StateUp
		if h.State == bfd.StateDown {
			state = bfd.StateInit
		}
		answer, err := (&bfd.BFDHeader{Version: 1, State: state, Final: h.Poll, DetectTimeMultiplier: 3, MyDiscriminator: 7,
			YourDiscriminator: h.MyDiscriminator, DesiredMinTxInterval: 50_000, RequiredMinRxInterval: 50_000}).MarshalBinary()
		if err == nil {
			_, _ = r.conn.WriteToUDPAddrPort(answer, netip.AddrPortFrom(from.Addr(), 3784))
		}
	}
}

func (r *bfdRouter) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = true
}

func (r *bfdRouter) heard() bfd.BFDHeader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func TestBFD(t *testing.T) {
	parallel(t)
	r, b := newRaw(t), newBox(t)
	other := newBFDRouter(t, r.addr)
	other.setTTL(t, 254) // another host with the router's address, beyond the link
	b.sessions.recreateAfter = 0
	b.configure(func(c *Config) {
		c.GracefulRestart = 120 * time.Second
		c.Peers = []Peer{r.peer("r", b.addr)}
		c.Peers[0].Hold = 90 * time.Second // not that which finds out
		// The router's answers come from this process, which may not run for a second.
		c.Peers[0].BFD = BFD{Enabled: true, Interval: 50 * time.Millisecond, Multiplier: 60}
	})
	eventually(t, func() string {
		other.mu.Lock()
		defer other.mu.Unlock()
		if other.packets < 3 {
			return fmt.Sprintf("the box has sent %d packets", other.packets)
		}
		return ""
	})
	if h := other.heard(); h.State != bfd.StateDown {
		t.Errorf("answers with TTL 254 have brought the session to state %d", h.State)
	}
	other.setTTL(t, 255)
	up := func() {
		t.Helper()
		r.establish(capIPv4, capAS4, capRestart)
		b.established("r")
		eventually(t, func() string {
			if s := b.status("r"); s.BFD.State != "up" || s.BFD.Detect != 3*time.Second {
				return fmt.Sprintf("%+v", s.BFD)
			}
			return ""
		})
	}
	up()
	other.silence()
	if got := r.over(); got != `cease: administrative reset` {
		t.Errorf("the router sees %q when it is silent", got)
	}
	b.hasDown("r", "BFD: the router is not there any more")

	other.mu.Lock()
	other.mute = false
	other.mu.Unlock()
	up()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		if h := other.heard(); h.State != bfd.StateAdminDown || h.Diagnostic != bfd.DiagnosticAdministrativelyDown {
			return fmt.Sprintf("the last the router heard is %+v", h)
		}
		return ""
	})
	if got := r.over(); got != "closed" {
		t.Errorf("the router sees %q on Close", got)
	}
}

// TestBFDOfASilentRouterIsDown polls a session with BFD but without a packet of the router: GoBGP
// has no state for it then.
func TestBFDOfASilentRouterIsDown(t *testing.T) {
	t.Parallel()
	addr := loopback()
	peer := Peer{Name: "r", Address: addr, BFD: BFD{Enabled: true}}
	b := &sessions{log: slog.New(slog.DiscardHandler), changed: func() {}, sessions: map[netip.Addr]*session{}, peers: []Peer{peer}}
	b.of(addr)
	b.update(&api.Peer{State: &api.PeerState{NeighborAddress: addr.String()}, Timers: &api.Timers{}}, time.Now())
	if s := b.sessions[addr]; s == nil || s.BFD.State != "down" {
		t.Errorf("it is %+v", s)
	}
}

// TestBFDListenerTakesTTL255Only sends packets to a listener like GoBGP's, over both families.
func TestBFDListenerTakesTTL255Only(t *testing.T) { // not parallel: GoBGP has such listeners too
	lc := net.ListenConfig{}
	l, err := lc.ListenPacket(t.Context(), "udp", fmt.Sprint(":", 3784))
	must(t, err)
	defer l.Close()
	var clients []*net.UDPConn
	for _, to := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(3784)))
		must(t, err)
		defer c.Close()
		if _, err := c.Write([]byte("before the filter")); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c.(*net.UDPConn))
	}
	must(t, (&ttlFilter{attach: attachTTLFilter}).install())
	send := func(text string, ttl int) {
		setSocketTTL(t, clients[0], unix.IPPROTO_IP, unix.IP_TTL, ttl)
		setSocketTTL(t, clients[1], unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, ttl)
		for _, c := range clients {
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, ttl := range []int{1, 64, 254, 255} {
		send(fmt.Sprint(ttl), ttl)
	}
	for range clients {
		buf := make([]byte, 100)
		must(t, l.SetReadDeadline(time.Now().Add(patience)))
		n, from, err := l.ReadFrom(buf)
		must(t, err)
		if got := string(buf[:n]); got != "255" {
			t.Errorf("it gets %q from %s", got, from)
		}
	}
}

// TestBFDListenerWithoutFilterTakesNothing has a kernel that refuses the filter, for each family of listener.
func TestBFDListenerWithoutFilterTakesNothing(t *testing.T) { // not parallel, as the test before
	takesNothing(t, "udp4", "127.0.0.1")
	takesNothing(t, "udp", "127.0.0.1", "::1")
}

// Go listens for both families where sysctl has removed the addresses of IPv6.
func TestBFDListenerWithoutIPv6TakesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, for a network namespace of its own")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0))
	must(t, exec.Command("ip", "link", "set", "dev", "lo", "up").Run())
	takesNothing(t, "udp", "127.0.0.1")
}

func takesNothing(t *testing.T, network string, hosts ...string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).ListenPacket(t.Context(), network, fmt.Sprint(":", 3784))
	must(t, err)
	defer l.Close()
	send := func(text string) {
		for _, host := range hosts {
			c, err := net.Dial("udp", net.JoinHostPort(host, fmt.Sprint(3784)))
			must(t, err)
			_, err = c.Write([]byte(text)) // later ones are refused
			if text == "before" {
				must(t, err)
			}
			must(t, c.Close())
		}
	}
	send("before")
	f := ttlFilter{attach: func(int) error { return errors.New("no memory") }}
	if err := f.install(); err == nil || !strings.HasPrefix(f.problem(), "BFD is off") || !strings.Contains(f.problem(), "no memory") {
		t.Errorf("%s: %v, problem %q", network, err, f.problem())
	}
	send("after")
	must(t, l.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	buf := make([]byte, 100)
	if n, from, err := l.ReadFrom(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: it gets %q from %v, error %v", network, buf[:n], from, err)
	}
}

func TestBFDEndsWithTheRightTTL(t *testing.T) {
	parallel(t)
	addr := loopback()
	conn, err := net.ListenPacket("udp", netip.AddrPortFrom(addr, 3784).String())
	if err != nil {
		t.Skipf("somebody has BFD's port: %v", err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTTL, 1) }))
	box := loopback()
	p := Peer{BFD: BFD{Enabled: true, Interval: 300 * time.Millisecond, Multiplier: 3}}
	must(t, bfdAdminDown(addr, box, p))
	data, oob := make([]byte, 100), make([]byte, 100)
	n, oobn, _, from, err := conn.(*net.UDPConn).ReadMsgUDPAddrPort(data, oob)
	must(t, err)
	var h bfd.BFDHeader
	if err := h.UnmarshalBinary(data[:n]); err != nil || h.Validate() != nil {
		t.Errorf("a packet that is none: % x", data[:n])
	}
	if h.MyDiscriminator == 0 || h.YourDiscriminator != 0 || h.DetectTimeMultiplier != 3 {
		t.Errorf("%+v", h)
	}
	if from.Addr() != box || from.Port() < 49152 {
		t.Errorf("it comes from %s", from)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 || messages[0].Data[0] != 255 {
		t.Errorf("its TTL is not 255: %v, %v", messages, err)
	}
}

func TestLeaveIsOverWhenItsTimeIs(t *testing.T) {
	parallel(t)
	b := newBox(t)
	b.set(map[netip.Prefix][]advertise.Path{prefix("192.0.2.1/32"): to("r")})
	b.configure(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_ = b.Leave(ctx) // whatever it had time for
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// FuzzBFD reads what any neighbor may send to the port of BFD. weir parses none of it: this is the part of
// GoBGP that reads packets in weir's process.
func FuzzBFD(f *testing.F) {
	fuzzing.Wide(f)
	for _, h := range []bfd.BFDHeader{
		{Version: 1, State: bfd.StateUp, DetectTimeMultiplier: 3, MyDiscriminator: 7, YourDiscriminator: 9, DesiredMinTxInterval: 300_000, RequiredMinRxInterval: 300_000},
		{Version: 1, State: bfd.StateAdminDown, Diagnostic: bfd.DiagnosticAdministrativelyDown, DetectTimeMultiplier: 3, MyDiscriminator: 7},
		{Version: 1, State: bfd.StateDown, Poll: true, DetectTimeMultiplier: 1, MyDiscriminator: 1},
	} {
		packet, err := h.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet)
		f.Add(packet[:len(packet)-1])
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		var h, again bfd.BFDHeader
		if h.UnmarshalBinary(packet) != nil || h.Validate() != nil {
			return
		}
		out, err := h.MarshalBinary()
		if err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		if err := again.UnmarshalBinary(out); err != nil || again != h {
			t.Errorf("%+v is read as %+v, %v", h, again, err)
		}
	})
}
