package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// deafRouter has a router send keepalives and read nothing, while routes change all the time. All kernel
// buffers between weir and it are as small as they can be. Another router gets every change meanwhile; the
// session ends after the hold time, and weir has not grown. Later the same router reads and sends nothing.
func deafRouter(t *testing.T, e *edge) {
	soakOnly(t, "it waits for hold times; package bgp tests that such a session ends")
	echoAll(t, e.Lab)
	s, deaf := e.boxes[0], e.Host(villainHost.Name)
	wmem := strings.TrimSpace(s.box.Must(t, "sysctl", "-n", "net.ipv4.tcp_wmem"))
	s.box.Must(t, "sysctl", "-qw", "net.ipv4.tcp_wmem=4096 4096 4096")
	defer s.box.Must(t, "sysctl", "-qw", "net.ipv4.tcp_wmem="+wmem)
	deaf.Must(t, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 4096 4096")

	const sometimes = "198.51.100.9"
	config := func(change int) string {
		many := make([]string, 250)
		for i := range many {
			many[i] = fmt.Sprintf("2001:db8:3::%x", i+1)
		}
		toml := rarely(peering(1, "", "")) + villainPeers + shared + fmt.Sprintf(`
[[bgp.advertise]]
services = ["many"]
med = %d
[[bgp.advertise]]
[[service]]
name = "many"
vips = ["%s"]
ports = ["80:8080"]
backends = ["fd02::11"]
`, change, strings.Join(many, `", "`))
		if change%2 == 1 {
			toml += serves("sometimes", []string{sometimes}, "80:8080", allWebs, "")
		}
		return toml
	}
	s.run(t, config(0))
	e.awaitRoutes(t, bothVIPs, 1)
	watch := watchRoutes(t, e.Host("router"))
	c := startClients(t, e.client1, sharedTargets)
	begin, before := time.Now(), s.rss(t)
	v := villain{deaf, netip.MustParseAddr(villainAddr), villainASN, boxAddr(1) + ":179"}
	conn, err := v.establish(t.Context())
	must(t, err)
	defer keepAlive(conn)()

	const report = `reason="the router has read nothing for 9s"`
	changes := 0
	took := eventually(t, 2*time.Minute, func() error {
		changes++
		s.reload(t, config(changes))
		if e.awaitRoutes(t, []string{sometimes}, []int{1}[:changes%2]...); !strings.Contains(s.daemon.Output(), report) {
			return fmt.Errorf("the session with a router that reads nothing lasts, after %d changes of 250 routes", changes)
		}
		return nil
	})
	figure(t, "trouble: a router that reads nothing loses its session after", took)
	after := s.rss(t)
	figure(t, fmt.Sprintf("trouble: a router that reads nothing, memory before and after %d changes of 250 routes", changes), fmt.Sprintf("%d MiB, %d MiB", before, after))
	if after > before+rssLimit {
		t.Errorf("weir has %d MiB, and had %d", after, before)
	}
	s.metricIs(t, fmt.Sprintf(`weir_bgp_session_up{address=%q,peer="villain"}`, villainAddr), 0)
	s.metricIs(t, fmt.Sprintf(`weir_bgp_flaps_total{address=%q,peer="villain"}`, villainAddr), 1)
	s.metricIs(t, fmt.Sprintf(`weir_bgp_flaps_total{address=%q,peer="router"}`, routerAddr(1)), 0)
	for _, vip := range bothVIPs {
		if n := watch.flaps(vip, begin); n > 0 {
			t.Errorf("the route to %s left the router %d times", vip, n)
		}
	}
	c.unhurt(t, "a router that reads nothing")

	// It may come back, and sends nothing from then on.
	c = startClients(t, e.client1, sharedTargets)
	eventually(t, time.Minute, func() error {
		conn, err = v.establish(t.Context())
		return err
	})
	silent := time.Now()
	if err := s.daemon.Expect(within(t, time.Minute), `reason="nothing received from the router for 9s"`); err != nil {
		t.Error(err)
	}
	figure(t, "trouble: a silent router without BFD, hold time 9 s, loses its session after", time.Since(silent))
	_ = conn.Close()
	s.metricIs(t, fmt.Sprintf(`weir_bgp_flaps_total{address=%q,peer="router"}`, routerAddr(1)), 0)
	c.unhurt(t, "a router that sends nothing")
}

// keepAlive sends keepalives over a session until it is stopped.
func keepAlive(conn net.Conn) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = conn.Write(message(bgpKeepalive, nil)) // fails when the session has ended
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		_ = conn.Close()
	}
}
