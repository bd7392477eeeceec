package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestForwardPathMTU uploads through a tunnel, over a path with a smaller MTU than the server's segments need. The box
// reports that to the client, which then sends smaller ones.
func TestForwardPathMTU(t *testing.T) {
	t.Parallel()
	k := forwardKit(t)
	s := k.s
	k.serverBox(t).Must(t, s.weir, "backend", vip4, vip6, "--tunnel", "ipip")
	k.given(asTable + strings.Replace(forwarded("tunnel", 0, ""), "backends = []", `backends = ["10.2.0.14", "fd02::e"]`, 1))
	for _, target := range forwardTargets {
		k.want("client1", target, "server keep")
	}
	s.box.Must(t, "ip", "link", "set", "back", "mtu", "1400")
	// Segments as on a wire. The lab would hand the box packets of many segments, which no network card does.
	s.client1.Must(t, "ethtool", "-K", "front", "tso", "off", "gso", "off")
	for _, discovery := range []string{"1", "0"} {
		for _, gro := range []string{"on", "off"} {
			name := fmt.Sprintf("pmtu_disc %s, GRO %s", discovery, gro)
			s.box.Must(t, "sysctl", "-qw", "net.ipv4.vs.pmtu_disc="+discovery)
			s.box.Must(t, "ethtool", "-K", "front", "gro", gro)
			s.client1.Must(t, "sh", "-ec", "ip route flush cache; ip -6 route flush cache")
			k.uploads(t)
			four, six := s.client1.Must(t, "ip", "route", "get", vip4), s.client1.Must(t, "ip", "-6", "route", "get", vip6)
			t.Logf("%s: the client's routes:\n%s%s", name, four, six)
			if told := strings.Contains(four, "mtu 1380"); told != (discovery == "1") {
				t.Errorf("%s: the route of IPv4 is %s", name, four)
			}
			if !strings.Contains(six, "mtu 1360") {
				t.Errorf("%s: the route of IPv6 is %s", name, six)
			}
		}
	}
}
