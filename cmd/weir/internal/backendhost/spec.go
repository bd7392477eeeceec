package backendhost

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Spec is the wanted configuration of a server.
type Spec struct {
	VIPs []netip.Addr `json:"vips"`
	// Tunnel is "ipip", "gue" or "gre"; empty for forward = "direct".
	Tunnel string `json:"tunnel,omitempty"`
	Port   uint16 `json:"tunnel_port,omitempty"` // of gue
	// Mixed reports whether tunnels over IPv4 have packets of IPv6, and the reverse.
	Mixed bool `json:"mixed,omitempty"`
	// MTU is that of the path from the box to this server.
	MTU int `json:"mtu,omitempty"`
}

// Tunnels are the values of Spec.Tunnel.
var Tunnels = []string{"ipip", "gue", "gre"}

// overheads are the bytes that each tunnel adds, over IPv4. GUE has those of a remote checksum.
var overheads = map[string]int{"ipip": 20, "gue": 20 + 8 + 4 + 8, "gre": 24}

// Validate returns the first fault of a specification.
func (s Spec) Validate() error {
	switch {
	case len(s.VIPs) == 0:
		return fmt.Errorf("no VIP is given: weir backend 192.0.2.10")
	case s.Tunnel != "" && !slices.Contains(Tunnels, s.Tunnel):
		return fmt.Errorf("%q is no tunnel: use one of %s", s.Tunnel, strings.Join(Tunnels, ", "))
	case s.Mixed && s.Tunnel == "":
		return fmt.Errorf("only tunnels can be mixed: write --tunnel ipip, gue or gre")
	case s.Tunnel == "gue" && s.Port == 0:
		return fmt.Errorf("gue needs a port above 0")
	case s.Tunnel != "" && s.MTU == 0:
		return fmt.Errorf("no device of this server is up, so the MTU of the path is unknown: write --mtu 1500")
	case s.Tunnel != "" && (s.MTU < 1280 || s.MTU > 65535):
		return fmt.Errorf("an MTU of %d is not from 1280, the least of IPv6, to 65535", s.MTU)
	}
	for _, a := range s.VIPs {
		if a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
			return fmt.Errorf("%s can't be a VIP", a)
		}
	}
	return nil
}

// families returns the families of the VIPs: 4, 6 or both.
func (s Spec) families() (out []int) {
	for _, family := range []int{4, 6} {
		if len(s.of(family)) > 0 {
			out = append(out, family)
		}
	}
	return out
}

// of returns the VIPs of a family.
func (s Spec) of(family int) (out []string) {
	for _, a := range s.VIPs {
		if a.Is4() == (family == 4) {
			out = append(out, a.String())
		}
	}
	return out
}

// mss returns the largest segment that fits the tunnel.
func (s Spec) mss(family int) int {
	n := s.MTU - overheads[s.Tunnel] - 40
	if family == 6 {
		n -= 20
	}
	if family == 6 || s.Mixed { // over IPv6
		n -= 20
	}
	return n
}

// tunnelDevice is a device that the module makes, and that ends tunnels from any address.
type tunnelDevice struct{ module, name string }

// device returns the device that ends tunnels with packets of one family over another one. That of
// GUE is in IPIP.
func (s Spec) device(family, over int) tunnelDevice {
	switch {
	case s.Tunnel == "gre" && over == 4:
		return tunnelDevice{"ip_gre", "gre0"}
	case s.Tunnel == "gre":
		return tunnelDevice{"ip6_gre", "ip6gre0"}
	case over == 6:
		return tunnelDevice{"ip6_tunnel", "ip6tnl0"}
	case family == 6:
		return tunnelDevice{"sit", "sit0"}
	}
	return tunnelDevice{"ipip", "tunl0"}
}

// tunnelSteps returns the parts that end tunnels with packets of one family over another one.
func (s Spec) tunnelSteps(family, over int) []step {
	d := s.device(family, over)
	out := []step{link(d)}
	if family == 4 {
		out = append(out, reversePath(d.name))
	}
	if family == 4 && d.name == "ip6tnl0" {
		out = append(out, anyFamily(d.name))
	}
	if s.Tunnel == "gue" {
		out = append(out, gue(over, s.Port))
	}
	return out
}

// steps returns the parts of the configuration in their order: the addresses are last, so that a
// check via a VIP passes only after the rest.
func (s Spec) steps() []step {
	var out []step
	if len(s.of(4)) > 0 {
		out = append(out, sysctl("net.ipv4.conf.all.arp_ignore", "1", "2"), sysctl("net.ipv4.conf.all.arp_announce", "2"))
	}
	for _, family := range s.families() {
		if s.Tunnel == "" {
			continue
		}
		for _, over := range []int{4, 6} {
			if over != family && !s.Mixed {
				continue
			}
			for _, p := range s.tunnelSteps(family, over) {
				if !slices.ContainsFunc(out, func(q step) bool { return q.what == p.what }) {
					out = append(out, p)
				}
			}
		}
	}
	if s.Tunnel != "" {
		out = append(out, segments(s))
	}
	for _, a := range s.VIPs {
		out = append(out, address(a))
	}
	return out
}

// Recipe returns the commands of a shell that do the same.
func (s Spec) Recipe() string {
	var b strings.Builder
	for _, p := range s.steps() {
		fmt.Fprintf(&b, "# %s\n", p.what)
		for _, c := range p.do {
			fmt.Fprintln(&b, shell(c))
		}
	}
	return b.String()
}

// shell returns a command as a line for a shell.
func shell(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		if words[i] = w; strings.ContainsAny(w, " {};&()|") {
			words[i] = "'" + w + "'"
		}
	}
	return strings.Join(words, " ")
}

// rules returns the commands that lower the largest segment in the answers of this server: those do
// not pass the box, which has to put the segments of clients into a tunnel. A rule never raises it.
func (s Spec) rules() [][]string {
	out := [][]string{
		{"nft", "add", "table", "inet", tableName},
		{"nft", "flush", "table", "inet", tableName},
		{"nft", "add", "chain", "inet", tableName, "output", "{ type filter hook output priority mangle; }"},
	}
	for _, family := range s.families() {
		out = append(out, []string{"nft", "add", "rule", "inet", tableName, "output", fmt.Sprintf("%s saddr { %s } tcp flags & (syn | ack) == (syn | ack) tcp option maxseg size set %d",
			ipWord[family], strings.Join(s.of(family), ", "), s.mss(family))})
	}
	return out
}

// ipWord is the word of nft for a family.
var ipWord = map[int]string{4: "ip", 6: "ip6"}

// tableName is the table of nf_tables.
const tableName = "weir_backend"
