package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestAttemptFromBeforeTheVIP has a client send a SYN while the box has no VIP and routes the packet
// elsewhere. conntrack then has a connection without translation for two minutes. With the VIP
// there, the retransmitted SYN must reach a backend, which can reply to the box only.
func TestAttemptFromBeforeTheVIP(t *testing.T) {
	t.Parallel()
	p := plain(lab.UML)
	for i := range p.Hosts {
		if strings.HasPrefix(p.Hosts[i].Name, "web") {
			p.Hosts[i].Routes = nil
		}
	}
	k := newKit(t, p)
	for _, hop := range []string{"10.2.0.99", "fd02::99"} { // a router that drops all
		k.s.box.Must(t, "ip", "neigh", "add", hop, "lladdr", "02:00:00:00:00:99", "dev", "back")
	}
	k.s.box.Must(t, "ip", "route", "add", vip4, "via", "10.2.0.99")
	k.s.box.Must(t, "ip", "route", "add", vip6, "via", "fd02::99")
	for i, mode := range []string{"ipvs", "netfilter"} {
		t.Run(mode, func(t *testing.T) {
			kernel := fmt.Sprintf("[kernel]\nmode = %q\n", mode)
			k.s.run(t, kernel+serves("other", []string{"192.0.2.99"}, "80:8080", allWebs, ""))
			defer k.s.cleanSlate(t)
			connected := map[string]chan error{}
			for from, to := range map[string]string{"10.1.0.2": vip4, "fd01::2": vip6} {
				result := make(chan error, 1)
				connected[to] = result
				ctx := within(t, 80*time.Second) // the sixth SYN is due after 31 s, the seventh after 63 s
				go func() {
					local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), uint16(41000+i)))
					c, err := k.s.Host("client1").DialFrom(ctx, "tcp", local, at(to, 80))
					if err == nil {
						_ = c.Close()
					}
					result <- err
				}()
			}
			eventually(t, 10*time.Second, func() error {
				flows := k.s.box.Must(t, "conntrack", "-L", "-f", "ipv4") + k.s.box.Must(t, "conntrack", "-L", "-f", "ipv6")
				if n := strings.Count(flows, fmt.Sprintf("sport=%d dport=80 [UNREPLIED]", 41000+i)); n != 2 {
					return fmt.Errorf("%d of 2 attempts went past the box:\n%s", n, flows)
				}
				return nil
			})
			k.s.reload(t, kernel+service("web", ""))
			for to, err := range connected {
				if err := <-err; err != nil {
					t.Errorf("%s: %v", to, err)
				}
			}
		})
	}
}
