package e2e

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// boxVisits are the answers that the box itself gets at networks and addresses.
func (s *site) boxVisits(t testing.TB, ends ...string) []answer {
	t.Helper()
	answers, err := s.visitsIn(within(t, time.Minute), "", 1, ends...)
	if err != nil {
		t.Fatalf("the box itself visits %v: %v", ends, err)
	}
	return answers
}

// boxIsSeenAs checks that backends see the box as that when it visits a VIP
// itself, over TCP and UDP.
func (s *site) boxIsSeenAs(t *testing.T, want string, addrs ...string) {
	t.Helper()
	var ends []string
	for _, addr := range addrs {
		ends = append(ends, "tcp", addr, "udp", addr)
	}
	for i, a := range s.boxVisits(t, ends...) {
		if a.saw != want {
			t.Errorf("the box itself visits %s: %s saw %s, want %s", ends[2*i:2*i+2], a.server, a.saw, want)
		}
	}
}

// stay visits and stays until the test ends or the connection is closed.
func stay(t testing.TB, from *lab.Machine, addr string) (net.Conn, answer) {
	t.Helper()
	c, err := visit(t.Context(), from.DialContext, "tcp", addr)
	if err != nil {
		t.Fatalf("%s visits %s: %v", from.Name(), addr, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Conn, c.answer
}

// mustVisit visits once, over a connection or a flow of its own.
func mustVisit(t testing.TB, from *lab.Machine, network, addr string) answer {
	t.Helper()
	c, err := visit(t.Context(), dialerOf(from), network, addr)
	if err != nil {
		t.Fatalf("%s visits %s %s: %v", from.Name(), network, addr, err)
	}
	_ = c.Close()
	return c.answer
}

// visits is mustVisit n times; it counts the servers that the guest has reached.
func visits(t testing.TB, from *lab.Machine, network, addr string, n int) map[string]int {
	t.Helper()
	met := map[string]int{}
	for range n {
		met[mustVisit(t, from, network, addr).server]++
	}
	return met
}

// outcome is how a visit ends: the name of who answered, or an outcome of package traffic.
func outcome(ctx context.Context, from *lab.Machine, network, addr string) string {
	server, err := visiting(from, network)(ctx, addr)
	if err != nil {
		return string(traffic.OutcomeOf(err))
	}
	return server
}

// visiting asks greeters, over a connection or a flow of its own each time.
func visiting(from *lab.Machine, network string) traffic.Ask {
	return func(ctx context.Context, addr string) (string, error) {
		c, err := visit(ctx, dialerOf(from), network, addr)
		if err != nil {
			return "", err
		}
		_ = c.Close()
		return c.server, nil
	}
}

// expect checks how a visit ends. want may be "web" for any of the backends. Who
// wants silence waits for a second.
func expect(t testing.TB, from *lab.Machine, network, addr, want string) {
	t.Helper()
	patience := 5 * time.Second
	if want == silence {
		patience = time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := outcome(ctx, from, network, addr)
	if want == "web" && strings.HasPrefix(got, "web") {
		return
	}
	if got != want {
		t.Errorf("%s visits %s %s: %s, want %s", from.Name(), network, addr, got, want)
	}
}

// Echo requests, as ping sends them.

// pinged is whether an address answers echo requests: "pong", refused
// (unreachable) or silence. A caller that expects silence waits for a second, all others
// wait for four.
func pinged(t testing.TB, from *lab.Machine, addr, want string) string {
	t.Helper()
	to := netip.MustParseAddr(addr)
	network, any, echo, reply, unreachable := "ip4:icmp", "0.0.0.0", byte(8), byte(0), byte(3)
	if to.Is6() {
		network, any, echo, reply, unreachable = "ip6:ipv6-icmp", "::", 128, 129, 1
	}
	c, err := from.ListenPacket(network, any)
	must(t, err)
	defer func() { _ = c.Close() }()
	// Type, code, checksum, id, sequence number. For IPv6 the kernel sums itself.
	packet := []byte{echo, 0, 0, 0, 0x77, 0x77, 0, 1}
	if to.Is4() {
		sum := ^(uint16(echo)<<8 + 0x7777 + 1)
		packet[2], packet[3] = byte(sum>>8), byte(sum)
	}
	patience := 4 * time.Second
	if want == silence {
		patience = time.Second
	}
	buf := make([]byte, 256)
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		if _, err := c.WriteTo(packet, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			t.Fatal(err)
		}
		must(t, c.SetReadDeadline(time.Now().Add(again)))
		for {
			n, who, err := c.ReadFrom(buf)
			if err != nil {
				break // the time for another request
			}
			switch {
			case n < 1:
			case buf[0] == reply && who.String() == addr:
				return "pong"
			case buf[0] == unreachable:
				return refused
			}
		}
	}
	return silence
}
