package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weirlab/lab"
)

var (
	webs4 = []string{"10.2.0.11", "10.2.0.12", "10.2.0.13"}
	webs6 = []string{"fd02::11", "fd02::12", "fd02::13"}
)

// declared is the text of a Service; more are lines that it has besides.
func declared(name string, vips, ports, backends []string, more ...string) string {
	list := func(values []string) string {
		text, _ := json.Marshal(values)
		return string(text)
	}
	lines := []string{
		"", "[[service]]", fmt.Sprintf("name = %q", name), "vips = " + list(vips), "ports = " + list(ports),
	}
	if len(backends) > 0 {
		lines = append(lines, "backends = "+list(backends))
	}
	return strings.Join(append(lines, more...), "\n") + "\n"
}

// weighted are the three web servers of both families with a weight each.
func weighted(weights [3]int) string {
	var b strings.Builder
	for _, addrs := range [][]string{webs4, webs6} {
		for i, addr := range addrs {
			fmt.Fprintf(&b, "[[service.backend]]\naddress = %q\nweight = %d\n", addr, weights[i])
		}
	}
	return b.String()
}

// at is the address of a port of a VIP of either family.
func at(vip string, port int) string {
	if strings.Contains(vip, ":") {
		return fmt.Sprintf("[%s]:%d", vip, port)
	}
	return fmt.Sprintf("%s:%d", vip, port)
}

// fresh runs weir with a configuration on a box that knows nothing of another.
func (s *site) fresh(t testing.TB, toml string) {
	t.Helper()
	s.cleanSlate(t)
	s.run(t, toml)
}

// family is what both families have in their own way.
type family struct {
	name             string
	vip, other       string // two VIPs
	client1, client2 string
	box              string // as backends see it
	web1             string
}

var families = []family{
	{"IPv4", vip4, "198.51.100.10", "10.1.0.2", "10.1.0.3", "10.2.0.1", "10.2.0.11"},
	{"IPv6", vip6, "2001:db8:3::10", "fd01::2", "fd01::3", "fd02::1", "fd02::11"},
}

// bothFamilies gives the values that both families have for something.
func bothFamilies(of func(family) string) []string {
	return []string{of(families[0]), of(families[1])}
}

func vipOf(f family) string   { return f.vip }
func otherOf(f family) string { return f.other }
func web1Of(f family) string  { return f.web1 }

func TestSourceAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	t.Run("LoadBalancer", s.testSourceOfLoadBalancer)
	t.Run("ClusterIP", s.testSourceOfClusterIP)
	t.Run("hairpin", s.testHairpin)
	t.Run("the box itself", s.testSourceOfBox)
}

// sees checks the client address that the backends see when a client visits.
func sees(t *testing.T, from *lab.Machine, addr, want string) {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		for range 4 {
			if a := mustVisit(t, from, network, addr); a.saw != want {
				t.Errorf("%s visits %s %s: %s saw %s, want %s", from.Name(), network, addr, a.server, a.saw, want)
			}
		}
	}
}

var (
	dualWebs  = append(slices.Clone(webs4), webs6...)
	tcpAndUDP = []string{"80:8080", "80:8080/udp"}
)

func (s *site) testSourceOfLoadBalancer(t *testing.T) {
	toml := func(first, second string) string {
		return declared("first", bothFamilies(vipOf), tcpAndUDP, dualWebs, first) +
			declared("second", bothFamilies(otherOf), tcpAndUDP, dualWebs, second)
	}
	const keep, masquerade = `source_address = "keep"`, `source_address = "masquerade"`
	s.fresh(t, toml("", keep))
	for _, f := range families {
		sees(t, s.client1, at(f.vip, 80), f.box)
		sees(t, s.client1, at(f.other, 80), f.client1)
		sees(t, s.client2, at(f.other, 80), f.client2)
	}
	s.reload(t, toml(keep, masquerade))
	for _, f := range families {
		sees(t, s.client1, at(f.vip, 80), f.client1)
		sees(t, s.client1, at(f.other, 80), f.box)
	}
}

func (s *site) testSourceOfClusterIP(t *testing.T) {
	const kept, masked = true, false
	tests := []struct {
		name             string
		kernel           string
		client1, client2 bool
	}{
		{"nobody says who is inside", "", kept, kept},
		{"all ranges count", `cluster_cidrs = ["10.1.0.2/32", "fd01::2/128", "10.1.0.3/32", "fd01::3/128"]`, kept, kept},
		{"outside is masqueraded", `cluster_cidrs = ["10.77.0.0/16", "fd77::/64", "10.1.0.2/32", "fd01::2/128"]`, kept, masked},
		{"everybody is", `masquerade_all = true`, masked, masked},
		{"everybody is, though inside", `masquerade_all = true
cluster_cidrs = ["10.1.0.0/24", "fd01::/64"]`, masked, masked},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			toml := "[kernel]\nsync_period = \"2s\"\n" + tt.kernel + "\n" +
				declared("inside", bothFamilies(vipOf), tcpAndUDP, dualWebs, `type = "ClusterIP"`)
			if i == 0 {
				s.fresh(t, toml)
			} else {
				s.reload(t, toml)
			}
			for _, f := range families {
				for client, want := range map[*lab.Machine]string{
					s.client1: map[bool]string{kept: f.client1, masked: f.box}[tt.client1],
					s.client2: map[bool]string{kept: f.client2, masked: f.box}[tt.client2],
				} {
					sees(t, client, at(f.vip, 80), want)
				}
				s.boxIsSeenAs(t, f.box, at(f.vip, 80))
			}
		})
	}
}

// A backend that meets itself at its VIP would answer itself without the box, if
// it saw its own address.
func (s *site) testHairpin(t *testing.T) {
	s.fresh(t, "")
	for _, how := range []string{`source_address = "keep"`, `source_address = "masquerade"`, `type = "ClusterIP"`} {
		t.Run(how, func(t *testing.T) {
			s.reload(t, declared("alone", bothFamilies(vipOf), tcpAndUDP, bothFamilies(web1Of), how))
			for _, f := range families {
				sees(t, s.web(1), at(f.vip, 80), f.box)
			}
		})
	}
}

func (s *site) testSourceOfBox(t *testing.T) {
	const route = `vip_mode = "route"
route_pools = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"]
route_source = ["10.1.0.1", "fd01::1"]`
	for _, mode := range []struct{ name, kernel string }{{"address", ""}, {"route", route}} {
		t.Run(mode.name, func(t *testing.T) {
			s.fresh(t, "[kernel]\nsync_period = \"2s\"\n"+mode.kernel+"\n"+
				declared("masked", bothFamilies(vipOf), tcpAndUDP, dualWebs)+
				declared("kept", bothFamilies(otherOf), tcpAndUDP, dualWebs, `source_address = "keep"`))
			for _, f := range families {
				s.boxIsSeenAs(t, f.box, at(f.vip, 80), at(f.other, 80))
				// As any client, to see that the mode does not matter for them.
				sees(t, s.client1, at(f.vip, 80), f.box)
				sees(t, s.client1, at(f.other, 80), f.client1)
			}
			if mode.name == "route" {
				s.wantsSource(t, vip4, "10.1.0.1")
				s.wantsSource(t, vip6, "fd01::1")
			}
		})
	}
}

// wantsSource checks the address from which the box would speak to another.
func (s *site) wantsSource(t *testing.T, to, want string) {
	t.Helper()
	if out := s.box.Must(t, "ip", "route", "get", to); !slices.Contains(strings.Fields(out), want) {
		t.Errorf("ip route get %s: %s, want source %s", to, strings.TrimSpace(out), want)
	}
}
