package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/draft"
)

// markConverter converts virtual servers by fwmark.
type markConverter struct{ *converter }

// read reads a fwmark.
func (c markConverter) read(s *server, n *node, word string) {
	number, err := strconv.ParseUint(word, 0, 32)
	if err != nil || number == 0 {
		c.lose(s.node, n, "it is not a firewall mark")
		return
	}
	c.done[n] = true
	s.marks = append(s.marks, &mark{int64(number), n})
}

// marksLast returns the virtual servers, those with a fwmark after the others: c.vips has the addresses of
// all others then.
func (c markConverter) marksLast(servers []*node) []*node {
	marked := func(n *node) bool {
		return n.word(1) == "fwmark" || n.word(1) == "group" && slices.ContainsFunc(c.top.all("virtual_server_group"), func(g *node) bool {
			return g.word(1) == n.word(2) && len(g.all("fwmark")) > 0
		})
	}
	plain := slices.DeleteFunc(slices.Clone(servers), marked)
	return append(plain, slices.DeleteFunc(slices.Clone(servers), func(n *node) bool { return !marked(n) })...)
}

// marked writes the service of a fwmark. It has the addresses of vrrp_instances that no virtual_server
// names.
func (c markConverter) marked(out *draft.Writer, s *server, m *mark, check *check) {
	out.Table("[[service]]")
	out.Key("name", c.unused(s.node, fmt.Sprintf("fwmark-%d", m.number)), from(s.node))
	out.Remark("The rules that set the mark stay yours, and weir serves all that they mark.")
	out.Key("fwmark", m.number, from(m.node))
	if vips := c.unnamed(); len(vips) > 0 {
		out.Remark("Remove the addresses that packets with the mark do not have. Gateways of backends belong to [[l2.gateway]].")
		out.Key("vips", vips, "virtual_ipaddress, without a virtual_server")
	}
	c.remainder(out, c.translated(s), 0, false, check)
}

// translated returns s with the ports of the backends that IPVS translates to: those with NAT, unless
// persistence keeps the port of the client.
func (c markConverter) translated(s *server) *server {
	out := *s
	out.backends = slices.Clone(s.backends)
	for i, r := range out.backends {
		if r.method != nat || s.node.find("persistence_timeout") != nil {
			out.backends[i].port = 0
		}
	}
	return &out
}

// unnamed returns the addresses of vrrp_instances that are in no virtual_server and no service.
func (c markConverter) unnamed() (out []string) {
	for _, n := range c.top.all("vrrp_instance") {
		for _, list := range n.all("virtual_ipaddress", "virtual_ipaddress_excluded") {
			for _, e := range list.block {
				text, _, _ := strings.Cut(e.name(), "/")
				if a, err := netip.ParseAddr(text); err == nil {
					if _, named := c.vips[a]; !named {
						c.vips[a] = true
						out = append(out, a.String())
					}
				}
			}
		}
	}
	return out
}
