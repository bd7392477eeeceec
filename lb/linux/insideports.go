package linux

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/lb"
)

// insidePorts are the destination ports (lb.VirtualServer.Port) of packets to a virtual server
// by mark, and the given marks with port 0 (fwmarks.go). The ports are rules of chain INSIDE-PORTS:
//
//	-p tcp -m mark --mark 0xb4000003/0xffff3fff -j DNAT --to-destination :8080
//
// IPVS alters the reply tuple of conntrack (ip_vs_update_conntrack), and nat sends all later
// packets of such a connection to the real server by that: IPVS sees its first packet and the
// replies. So a connection that the client resets counts as open until it times out, and a
// connection survives the deletion of its real server.
type insidePorts map[lb.Frontend]uint16

// insidePortsChain is the name of their chain, without the prefix.
const insidePortsChain = "INSIDE-PORTS"

// rules returns the rules of chain INSIDE-PORTS.
func (p insidePorts) rules(m marking) (out []rule) {
	for _, f := range slices.SortedFunc(maps.Keys(p), lb.Frontend.Compare) {
		if f.Given {
			continue
		}
		marked := mark{bits: bits{m.firewall(f.Mark), ^m.reserved()}}
		out = append(out, when(protocol(f.Proto.String()), marked).then(destinationPort(p[f])))
	}
	return out
}

// readPorts returns the rules of existing virtual servers. All others are left out, and so
// removed with the next write.
func (r *rules) readPorts(have saved, servers *lb.Table) insidePorts {
	out := insidePorts{}
	for _, spec := range have["nat"].rules[r.config.Prefix+"-"+insidePortsChain] {
		words := strings.Fields(spec)
		mark, _, ok := parseMark(after(words, "--mark"))
		port, err := strconv.ParseUint(strings.TrimPrefix(after(words, "--to-destination"), ":"), 10, 16)
		f := lb.MarkFrontend(r.family, marking{r.config.Mark}.number(mark))
		if ok && err == nil && f.Mark != 0 && servers.Has(lb.VirtualServer{Frontend: f}) {
			out[f] = uint16(port)
		}
	}
	return out
}

// after returns the word after another one, "" without one.
func after(words []string, option string) string {
	if i := slices.Index(words, option); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// show sets the ports of the virtual servers of a family.
func (p insidePorts) show(family lb.Family, objects *lb.Table) {
	for f, port := range p {
		o, _ := objects.Get(lb.VirtualServer{Frontend: f})
		if vs, held := o.(lb.VirtualServer); held && lb.FamilyOf(f.Addr) == family {
			vs.Port = port
			objects.Put(vs)
		}
	}
}
