package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// L2 is the table [l2]: the owner of a VIP answers ARP and NDP for it.
type L2 struct {
	// Interfaces are those on which it answers, in the order of the file; at least one.
	Interfaces []string
	// Refresh is how often neighbors are told again of what is held; 0 is never.
	Refresh time.Duration
	// Kinds are those of the VIPs of clusters that are answered for; Static tells that
	// those of static services are. Pools are what VIPs must be of, if there are any.
	Kinds  []lb.VIPKind
	Static bool
	Pools  []netip.Prefix
	// Gateways are held by the owner of everything.
	Gateways []Gateway
}

// Gateway is the table [[l2.gateway]]: an address through which backends send their
// replies.
type Gateway struct {
	Address netip.Addr
	// Interface is the only one on which it is answered for.
	Interface string
}

// Wants tells whether an address at which some Services serve is one to answer for.
func (l *L2) Wants(a netip.Addr, serving []lb.Serving) bool {
	if len(l.Pools) > 0 && !slices.ContainsFunc(l.Pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return false
	}
	return slices.ContainsFunc(serving, func(s lb.Serving) bool {
		if s.Kind == lb.NodePort {
			return false // at the box's own addresses, which the kernel answers for
		}
		if s.Service.Source == Source {
			return l.Static
		}
		return slices.Contains(l.Kinds, s.Kind)
	})
}

// Everywhere gives all interfaces on which anything is answered for.
func (l *L2) Everywhere() []string {
	out := slices.Clone(l.Interfaces)
	for _, g := range l.Gateways {
		if !slices.Contains(out, g.Interface) {
			out = append(out, g.Interface)
		}
	}
	return out
}

// answerer is [l2] that is being read.
type answerer struct {
	section
	*L2
	gateways []gateway
}

// gateway is one that is being read; the Address of one that is wrong is the zero Addr.
type gateway struct {
	section
	Gateway
}

// readL2 gives nil if there is no [l2], or something else in its place.
func readL2(top section, k Kernel) *answerer {
	if !top.has("l2") || top.bad("l2") {
		return nil
	}
	s := top.sub("l2")
	l := &answerer{section: s, L2: &L2{Interfaces: s.interfaces("interfaces"), Refresh: s.duration("refresh")}}
	if s.emptyList("interfaces") {
		s.fail("interfaces", "nothing would be answered anywhere", `write some such as interfaces = ["eth0"]`)
	}
	if s.emptyList("vips") && len(s.subs("gateway")) == 0 && len(k.MasqueradeSource) == 0 {
		s.fail("vips", "nothing would be answered for", "name some, or leave the key out")
	}
	for _, name := range s.texts("vips") {
		if i := slices.Index(vipKindNames, name); i >= 0 {
			l.Kinds = append(l.Kinds, vipKinds[i])
		} else {
			l.Static = true
		}
	}
	for _, t := range s.subs("gateway") {
		l.readGateway(t, k)
	}
	return l
}

func (l *answerer) readGateway(s section, k Kernel) {
	g := gateway{section: s}
	if g.Interface = s.text("interface"); s.has("interface") && !s.bad("interface") {
		if f := badInterface(g.Interface); f != nil {
			s.fail("interface", f.text, f.fix)
		}
	}
	if s.has("address") && !s.bad("address") {
		a, f := parseAddr(s.text("address"))
		switch {
		case f != nil:
		case len(k.Families) > 0 && !slices.Contains(k.Families, lb.FamilyOf(a)):
			f = faultf("remove it, or add the family there", "%q is %s, which is not in kernel.families", a, lb.FamilyOf(a))
		case slices.ContainsFunc(l.Gateways, func(g Gateway) bool { return g.Address == a }):
			f = faultf("remove one", "%q is that of another gateway", a)
		default:
			g.Address = a
			l.Gateways = append(l.Gateways, g.Gateway)
		}
		if f != nil {
			s.fail("address", f.text, f.fix)
		}
	}
	l.gateways = append(l.gateways, g)
}

// keepKernelQuiet has the kernel answer for no VIP by itself where the owner is to:
// for IPv4, as it answers NDP only for addresses of the interface itself.
func (l *answerer) keepKernelQuiet(k *Kernel, kernel section, files Files) {
	if !slices.Contains(k.Families, lb.IPv4) {
		return
	}
	all := slices.Contains(k.StrictARP, allInterfaces)
	for _, name := range l.Everywhere() {
		if badInterface(name) != nil || all || slices.Contains(k.StrictARP, name) {
			continue
		}
		if !k.ManageSysctls {
			l.checkQuiet(name, files)
			continue
		}
		k.StrictARP = append(k.StrictARP, name)
		for _, own := range arpSysctls([]string{name}) {
			if slices.ContainsFunc(k.Sysctls, func(o lb.Sysctl) bool { return o.Name == own.Name }) {
				kernel.fail("sysctls", own.Name+" is set by weir itself, for [l2]", "remove it")
			}
		}
	}
}

// checkQuiet looks whether the operator has set what weir must not set.
func (l *answerer) checkQuiet(name string, files Files) {
	for _, p := range arpSysctls([]string{name}) {
		set := "sysctl -w " + p.Name + "=" + p.Value
		switch value, ok := effective(p.Name, name, files); {
		case !ok:
			l.warn(Warning, "interfaces", "with kernel.manage_sysctls = false it is yours to see that the kernel does not answer for VIPs on "+name, set)
		case value < p.Value:
			l.fail("interfaces", "the kernel itself would answer for VIPs on "+name+": "+p.Name+" is "+value+", and kernel.manage_sysctls is false",
				set+", or let weir set it")
		}
	}
}

// effective gives a parameter of an interface as the kernel takes it, a digit: the
// greater one of its own and that of all.
func effective(parameter, iface string, files Files) (string, bool) {
	last := parameter[strings.LastIndexByte(parameter, '.')+1:]
	greater := ""
	for _, name := range []string{iface, allInterfaces} {
		text, err := files.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/" + last)
		if err != nil {
			return "", false
		}
		greater = max(greater, strings.TrimSpace(string(text)))
	}
	return greater, true
}
