package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

func TestProtocols(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	t.Run("TCP and UDP, ports and VIPs", s.testPortsAndVIPs)
	t.Run("SCTP", s.testSCTP)
}

// One Service with everything that one may have: ports of two protocols, with
// and without mapping, and several VIPs of both families. The greeters of other
// backend ports have other names, to show which one has answered.
func (s *site) testPortsAndVIPs(t *testing.T) {
	web1 := s.web(1)
	err := web1.Do(func() error {
		for _, g := range []struct{ name, network, addr string }{
			{"tcp-53", "tcp", ":53"}, {"udp-53", "udp", ":53"}, {"udp-5353", "udp", ":5353"},
			{"tcp-443", "tcp", ":443"}, {"tcp-8443", "tcp", ":8443"}, {"udp-8443", "udp", ":8443"},
		} {
			c, err := greetAt(g.name, g.network, g.addr)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		return nil
	})
	must(t, err)
	s.fresh(t,
		declared("one", slices.Concat(bothFamilies(vipOf), bothFamilies(otherOf)),
			[]string{"53", "53:5353/udp", "443:8443", "1443:443", "8443:8443/udp"}, bothFamilies(web1Of))+
			declared("three", []string{"198.51.100.20", "2001:db8:3::20"}, []string{"80:8080", "80:8080/udp"}, dualWebs))
	for _, f := range families {
		for _, vip := range []string{f.vip, f.other} {
			expect(t, s.client1, "tcp", at(vip, 53), "tcp-53")
			expect(t, s.client1, "udp", at(vip, 53), "udp-5353")
			expect(t, s.client1, "tcp", at(vip, 443), "tcp-8443")
			expect(t, s.client1, "tcp", at(vip, 1443), "tcp-443")
			expect(t, s.client1, "udp", at(vip, 8443), "udp-8443")
			// What the backend has is not what the Service offers.
			expect(t, s.client1, "tcp", at(vip, 8443), refused)
			expect(t, s.client1, "udp", at(vip, 443), refused)
			expect(t, s.client1, "tcp", at(vip, 80), refused)
		}
	}
	for _, vip := range []string{"198.51.100.20", "2001:db8:3::20"} {
		for _, network := range []string{"tcp", "udp"} {
			want := map[string]int{"web1": 3, "web2": 3, "web3": 3}
			if met := visits(t, s.client1, network, at(vip, 80), 9); !maps.Equal(met, want) {
				t.Errorf("%s %s: met %v, want 3 of each", network, vip, met)
			}
		}
	}
}

// The machine that carries the lab may have no SCTP, so its clients and backends
// are namespaces of the box: sc is the client, s1 and s2 are backends, each by a
// cable of its own.
const sctpHosts = `
modprobe sctp
n=1
for name in sc s1 s2; do
	ip netns add $name
	ip link add to-$name type veth peer name eth0 netns $name
	ip addr add 10.8.$n.1/24 dev to-$name
	ip addr add fd08:$n::1/64 dev to-$name nodad
	ip link set to-$name up
	ip -n $name addr add 10.8.$n.2/24 dev eth0
	ip -n $name addr add fd08:$n::2/64 dev eth0 nodad
	ip -n $name link set lo up
	ip -n $name link set eth0 up
	ip -n $name route add default via 10.8.$n.1
	ip -n $name route add default via fd08:$n::1
	n=$((n+1))
done
`

func (s *site) testSCTP(t *testing.T) {
	s.cleanSlate(t)
	s.box.Must(t, "sh", "-ec", sctpHosts)
	defer s.box.Must(t, "sh", "-c", "for n in sc s1 s2; do ip netns del $n; ip link del to-$n; done; true")
	for i, name := range []string{"s1", "s2"} {
		s.launchIn(t, name, "listen", name,
			"sctp4", fmt.Sprintf("10.8.%d.2:8080", i+2), "sctp6", fmt.Sprintf("[fd08:%d::2]:8080", i+2))
	}
	s.greetOnBox(t, "sctp4", "0.0.0.0:81", "sctp6", "[::]:81")
	backends := []string{"10.8.2.2", "10.8.3.2", "fd08:2::2", "fd08:3::2"}
	s.run(t, declared("masked", bothFamilies(vipOf), []string{"80:8080/sctp"}, backends)+
		declared("kept", bothFamilies(otherOf), []string{"80:8080/sctp"}, backends, `source_address = "keep"`))
	for _, f := range []struct {
		family
		network, client, gateway string
		box                      string // as backends see it
	}{
		{families[0], "sctp4", "10.8.1.2", "10.8.1.1", "10.8.%d.1"},
		{families[1], "sctp6", "fd08:1::2", "fd08:1::1", "fd08:%d::1"},
	} {
		t.Run(f.name, func(t *testing.T) {
			for _, vip := range []string{f.vip, f.other} {
				answers, err := s.visitsIn(within(t, time.Minute), "sc", 6, f.network, at(vip, 80))
				must(t, err)
				met := map[string]int{}
				for _, a := range answers {
					met[a.server]++
					want := f.client
					if vip == f.vip {
						want = fmt.Sprintf(f.box, map[string]int{"s1": 2, "s2": 3}[a.server])
					}
					if a.saw != want {
						t.Errorf("%s: %s saw %s, want %s", vip, a.server, a.saw, want)
					}
				}
				if met["s1"] != 3 || met["s2"] != 3 {
					t.Errorf("%s: met %v, want 3 of s1 and of s2", vip, met)
				}
				// The kernel's answer to that, port unreachable, is no news to an
				// SCTP client: it goes on trying.
				answers, err = s.visitsIn(within(t, 2*time.Second), "sc", 1, f.network, at(vip, 81))
				if err == nil {
					t.Errorf("%s port 81: %v, want no answer", vip, answers)
				}
			}
			own, err := s.visitsIn(within(t, time.Minute), "sc", 1, f.network, at(f.gateway, 81))
			if err != nil || own[0].server != "box" {
				t.Errorf("%s port 81: %v, %v, want the box's own daemon", f.gateway, own, err)
			}
			if a := s.boxVisits(t, f.network, at(f.vip, 80))[0]; !strings.HasPrefix(a.server, "s") {
				t.Errorf("the box itself met %v, want s1 or s2", a)
			}
		})
	}
}
