package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/doctor/walk"
	"weir/lb"
)

// need is a packet that must pass, and the traffic that it stands for.
type need struct {
	walk.Packet
	what string
}

// needs returns the packets of peers and members that must pass, and their replies.
func (f box) needs() []need {
	var out []need
	add := func(what string, p walk.Packet) { out = append(out, need{p, what}) }
	for _, p := range f.Speakers {
		way := walk.Packet{Hook: "INPUT", In: p.Interface, Src: p.Addr.Addr().WithZone(""), Proto: "tcp"}
		answer := way
		answer.State, answer.Port = "ESTABLISHED", 40000
		add("replies of BGP peer "+p.Name, answer)
		way.State = "NEW"
		if f.Config != nil && f.Config.BGP != nil && f.Config.BGP.Speaker.ListenPort > 0 {
			way.Port = uint16(f.Config.BGP.Speaker.ListenPort)
			add("connections of BGP peer "+p.Name, way)
		}
		if f.bfd(p.Name) {
			way.Proto, way.Port = "udp", 3784
			add("BFD of peer "+p.Name, way)
		}
	}
	ports := f.bfdBackends()
	for _, w := range f.Ways {
		if port, ok := ports[w.Backend]; ok && w.Error == "" {
			add("BFD of backend "+w.Backend.String(), walk.Packet{Hook: "INPUT", In: w.Interface, Src: w.Backend, Proto: "udp", Port: port, State: "NEW"})
		}
	}
	if f.Config != nil && f.Config.Fleet != nil {
		for _, m := range f.Members {
			way := walk.Packet{Hook: "INPUT", In: m.Interface, Src: m.Addr.Addr(), Proto: "udp", Port: f.Config.Fleet.Gossip.Bind.Port(), State: "NEW"}
			add("gossip of member "+m.Name, way)
			way.Proto = "tcp"
			add("connections of member "+m.Name, way)
		}
	}
	return out
}

// serviceNeeds returns the packets of clients that must pass, and of the replies one for each interface.
func (f box) serviceNeeds() []need {
	out := f.clientNeeds()
	links := map[string]bool{}
	for _, w := range f.Ways {
		if w.Error == "" && !w.Local && !links[w.Interface] {
			links[w.Interface] = true
			for _, up := range f.uplinks() {
				out = append(out, need{walk.Packet{Hook: "FORWARD", In: w.Interface, Out: up, Src: w.Backend, Proto: "tcp", Port: 40000, State: "ESTABLISHED", Service: true}, "replies of backend " + w.Backend.String()})
			}
		}
	}
	for _, p := range f.healthPorts() {
		for _, in := range f.uplinks() {
			out = append(out, need{walk.Packet{Hook: "INPUT", In: in, Dst: p.Addr(), Proto: "tcp", Port: p.Port(), State: "NEW", Service: true}, fmt.Sprintf("probes of healthCheckNodePort %d", p.Port())})
		}
	}
	return out
}

// uplinks returns the interfaces of clients and probes; "" is any.
func (f box) uplinks() []string {
	if len(f.Network.Uplinks) == 0 {
		return []string{""}
	}
	return f.Network.Uplinks
}

// untracked is the state of packets of IPVS with net.ipv4.vs.conntrack = 0: ip_vs_notrack in
// net/netfilter/ipvs/ip_vs_xmit.c.
const untracked = "UNTRACKED"

// ipvsState is the state of a client's first packet that IPVS sends.
func (f box) ipvsState() string {
	off := lb.ConntrackSysctl(false)
	if f.Running != nil && f.Sysctls[off.Name] == off.Value || f.Running == nil && slices.Contains(f.neededSysctls(), off) {
		return untracked
	}
	return "NEW"
}

// translated is the state of a client's first packet after DNAT, in mode netfilter.
const translated = "NEW,DNAT"

// clientNeeds returns the packets of clients: to the box and from there to the backends with IPVS, and else
// through the box.
func (f box) clientNeeds() []need {
	served := facts.ServedBy(&f.Facts)
	if !facts.UsesIPVS(&f.Facts) {
		return f.serverNeeds(served.Servers, "FORWARD", translated)
	}
	return append(f.serverNeeds(served.Servers, "OUTPUT", f.ipvsState()), f.frontendNeeds("INPUT")...) // at OUTPUT as if the box had made them
}

// frontendNeeds returns the packets of clients to VIPs and node ports.
func (f box) frontendNeeds(hook string) (out []need) {
	served := facts.ServedBy(&f.Facts)
	for _, x := range slices.Concat(served.Frontends, served.NodePorts) {
		for _, in := range f.uplinks() {
			out = append(out, need{walk.Packet{Hook: hook, In: in, Dst: x.Addr, Proto: x.Proto, Port: x.Port, State: "NEW", Service: true}, "clients of " + x.Service})
		}
	}
	return out
}

// at returns the packets that meet a base chain.
func at(f box, h facts.NFHook, needs []need) (out []need) {
	const dnat = -101 // the priority of weir's chain at prerouting
	before := h.Hook == "PREROUTING" && h.Priority < dnat && !facts.UsesIPVS(&f.Facts)
	if before {
		needs = slices.Concat(f.frontendNeeds(h.Hook), needs)
	}
	for _, n := range needs {
		if h.Hook == "PREROUTING" && n.Hook != "OUTPUT" && !(before && n.State == translated) {
			n.Hook, n.Out = h.Hook, ""
		}
		if n.Hook == h.Hook {
			n.Stateless = h.Stateless()
			out = append(out, n)
		}
	}
	return out
}

// serverNeeds returns the packets of clients to the servers that are not the box itself.
func (f box) serverNeeds(servers []facts.Server, hook, state string) (out []need) {
	ways := map[netip.Addr]facts.Way{}
	for _, w := range f.Ways {
		ways[w.Backend] = w
	}
	for _, s := range servers {
		w := ways[s.Backend]
		if w.Local || w.Error != "" {
			continue
		}
		from := f.uplinks()
		if hook == "OUTPUT" {
			from = []string{""}
		}
		for _, in := range from {
			out = append(out, need{walk.Packet{Hook: hook, In: in, Out: w.Interface, Dst: s.Addr, Proto: s.Proto, Port: s.Port, State: state, Service: true}, "clients of " + s.Service})
		}
	}
	return out
}

// bfdBackends returns the backends with a check of type bfd, and the port of its packets.
func (f box) bfdBackends() map[netip.Addr]uint16 {
	out := map[netip.Addr]uint16{}
	if f.Config == nil {
		return out
	}
	for _, g := range f.Config.Checks {
		for _, p := range g.Ports {
			for _, b := range p.Backends {
				if g.Check.Kind == "bfd" {
					out[b.Addr.Addr()] = g.Check.BFDPort()
				}
			}
		}
	}
	return out
}

func (f box) bfd(peer string) bool {
	if f.Config == nil || f.Config.BGP == nil {
		return false
	}
	for _, p := range f.Config.BGP.Speaker.Peers {
		if p.Name == peer {
			return p.BFD.Enabled
		}
	}
	return false
}

// family returns the family of a packet.
func (n need) family() lb.Family {
	if cmp.Or(n.Src, n.Dst).Is6() {
		return lb.IPv6
	}
	return lb.IPv4
}

// first reports whether it is the first packet of a connection.
func (n need) first() bool { return n.State == "NEW" || n.State == untracked }
