package serving

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/lb"
)

func readKernel(s schema.Section) config.Kernel {
	var k config.Kernel
	s.Read(kernelKeys(&k))
	k.Families = families(s)
	if k.MinSyncPeriod > k.SyncPeriod {
		s.Fail("min_sync_period", fmt.Sprintf("%s is longer than sync_period (%s)",
			draft.Duration(k.MinSyncPeriod), draft.Duration(k.SyncPeriod)), "use at most "+strconv.Quote(draft.Duration(k.SyncPeriod)))
	}
	if k.SyncPeriod > 5*time.Minute {
		s.Warn(source.Warning, "sync_period", fmt.Sprintf("a wrong kernel state may persist for %s", draft.Duration(k.SyncPeriod)),
			`the default is "10s"`)
	}
	k.Pools = routePools(s, k)
	k.MasqueradeSource = masqueradeSource(s, k)
	k.DecapsulateFrom = decapsulateFrom(s, k)
	readNode(s, &k)
	return k
}

// decapsulateFrom returns the boxes of which this one decapsulates packets.
func decapsulateFrom(s schema.Section, k config.Kernel) (out []netip.Addr) {
	for _, e := range s.Elements("decapsulate_from") {
		a, f := parse.Addr(e.Scalar.(string))
		switch {
		case f != nil:
		case a.Is6():
			f = source.Faultf("use the IPv4 address of that box", "%q is IPv6, and weir decapsulates IPv4 only", a)
		case slices.Contains(out, a):
			f = source.Faultf("remove one", "%q is in the list twice", a)
		}
		if f != nil {
			s.FailAt(e, "decapsulate_from", f.Text, f.Fix)
			continue
		}
		out = append(out, a)
	}
	switch {
	case len(out) == 0:
	case k.Mode == config.ModeNetfilter:
		s.Fail("decapsulate_from", `needs IPVS, and mode is "netfilter"`, "use another mode, or remove this")
	case !slices.Contains(k.Families, lb.IPv4):
		s.Fail("decapsulate_from", "has no effect without IPv4 in families", "remove it")
	}
	return out
}

func families(s schema.Section) []lb.Family {
	var out []lb.Family
	for _, name := range s.Texts("families") {
		f := lb.IPv4
		if name == "ipv6" {
			f = lb.IPv6
		}
		out = append(out, f)
	}
	if v := s.Get("families"); len(v.List) == 0 {
		s.Fail("families", "weir would serve nothing", `use "ipv4", "ipv6" or both`)
	}
	slices.Sort(out)
	return out
}

// routePools returns the pools of vip_mode "route".
func routePools(s schema.Section, k config.Kernel) []lb.PoolRoute {
	route := s.Text("vip_mode") == "route"
	for _, name := range []string{"route_pools", "route_source"} {
		if !route && len(s.Elements(name)) > 0 {
			s.Fail(name, `has no effect without vip_mode = "route"`, "set that, or remove this")
		}
	}
	sources := perFamily(s, "route_source")
	var pools []lb.PoolRoute
	for _, e := range s.Elements("route_pools") {
		p, f := parse.Prefix(e.Scalar.(string))
		if f == nil {
			f = badRoutePool(p, k, pools)
		}
		if f != nil {
			s.FailAt(e, "route_pools", f.Text, f.Fix)
			continue
		}
		pools = append(pools, lb.PoolRoute{Prefix: p, Src: sources[lb.FamilyOf(p.Addr())]})
	}
	if !route {
		return nil
	}
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		a, ok := sources[f]
		if ok && len(pools) > 0 && !slices.ContainsFunc(pools, func(p lb.PoolRoute) bool { return p.Src == a }) {
			s.Fail("route_source", fmt.Sprintf("%q has no effect: no range of route_pools is %s", a, f), "remove it")
		}
	}
	if len(s.Elements("route_pools")) == 0 && !s.Bad("route_pools") {
		s.Fail("route_pools", `is missing, and vip_mode is "route"`, `add route_pools = ["192.0.2.0/24"]`)
	}
	return pools
}

func badRoutePool(p netip.Prefix, k config.Kernel, others []lb.PoolRoute) *source.Fault {
	if f := parse.UnusablePool(p.String(), parse.RangeOf(p), k.Families); f != nil {
		return f
	}
	for _, o := range others {
		if o.Prefix.Overlaps(p) {
			return source.Faultf("remove one", "%q and %q overlap", p, o.Prefix)
		}
	}
	for _, x := range k.ExcludeCIDRs {
		if x.Overlaps(p) {
			return source.Faultf("remove one", "%q overlaps %q of exclude_cidrs", p, x)
		}
	}
	return nil
}

// masqueradeSource returns masquerade_source: at most one address of each family.
func masqueradeSource(s schema.Section, k config.Kernel) []netip.Addr {
	var out []netip.Addr
	sources := perFamily(s, "masquerade_source")
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		a, ok := sources[f]
		switch {
		case !ok:
		case !slices.Contains(k.Families, f):
			s.Fail("masquerade_source", fmt.Sprintf("%q is %s, which is not in families", a, f), "remove it, or add the family")
		default:
			out = append(out, a)
		}
	}
	return out
}

// readNode reads the keys that matter most to a box that is a node of a cluster.
func readNode(s schema.Section, k *config.Kernel) {
	k.BridgeInterface = interfaceOf(s, k.DetectLocal, "bridge_interface", config.BridgeInterface)
	k.InterfacePrefix = interfaceOf(s, k.DetectLocal, "interface_prefix", config.InterfacePrefix)
	if k.DetectLocal != config.ClusterCIDR && s.Written("cluster_cidrs") {
		s.Fail("cluster_cidrs", `has no effect without detect_local = "`+string(config.ClusterCIDR)+`"`, "remove one of them")
	}
	k.NodePortNets, k.NodePortPrimary = nodePortAddresses(s)
	k.StrictARP = strictARP(s, *k)
	k.Sysctls = sysctls(s, *k)
	if k.SloppyTCP && !k.ManageSysctls {
		s.Warn(source.Warning, "sloppy_tcp", "with manage_sysctls = false the operator must set the kernel parameters",
			"set net.ipv4.vs.sloppy_tcp and net.netfilter.nf_conntrack_tcp_loose to 1")
	}
}

// interfaceOf returns the interface, or the prefix of interfaces, that one value of
// detect_local needs.
func interfaceOf(s schema.Section, used config.DetectLocal, name string, needs config.DetectLocal) string {
	text := s.Text(name)
	switch {
	case used != needs && text != "" && !s.Bad("detect_local"):
		s.Fail(name, `has no effect without detect_local = "`+string(needs)+`"`, "set that, or remove this")
	case used == needs && text == "" && !s.Bad(name):
		s.Fail(name, `is missing, and detect_local is "`+string(needs)+`"`, "write the name as ip link shows it")
	case text != "" && !parse.DeviceForm.Matches(text):
		s.Fail(name, strconv.Quote(text)+" is not a valid interface name", "use 1 to 15 letters, digits and . _ -")
	case needs == config.InterfacePrefix && len(text) > 14: // with its "+" iptables has room for 15
		s.Fail(name, strconv.Quote(text)+" has the length of a full name", "shorten it")
	}
	return text
}

func nodePortAddresses(s schema.Section) (nets []netip.Prefix, primary bool) {
	list := s.Elements("node_port_addresses")
	i := slices.IndexFunc(list, func(e *source.Value) bool { return e.Scalar == "primary" })
	if i < 0 {
		return s.Prefixes("node_port_addresses"), false
	}
	if len(list) > 1 {
		s.FailAt(list[i], "node_port_addresses", `"primary" can't be combined with ranges`, "remove it, or the ranges")
	}
	return nil, true
}

func strictARP(s schema.Section, k config.Kernel) []string {
	out := s.Texts("strict_arp")
	if len(out) > 1 && slices.Contains(out, config.AllInterfaces) {
		s.Fail("strict_arp", `"all" can't be combined with interfaces`, "remove it, or the interfaces")
	}
	if len(out) > 0 && !slices.Contains(k.Families, lb.IPv4) {
		s.Fail("strict_arp", "has no effect without IPv4 in families", "remove it")
	}
	needsManage(s, "strict_arp", len(out) > 0, k)
	return out
}

func needsManage(s schema.Section, name string, used bool, k config.Kernel) {
	if used && !k.ManageSysctls {
		s.Fail(name, "has no effect with manage_sysctls = false", "remove one of them")
	}
}

func sysctls(s schema.Section, k config.Kernel) []lb.Sysctl {
	var out []lb.Sysctl
	own := slices.Concat(lb.Sysctls([]lb.Family{lb.IPv4, lb.IPv6}), lb.TakeoverSysctls(k.SloppyTCP, false), config.ARPSysctls(k.StrictARP))
	for _, e := range s.Elements("sysctls") {
		name, value, _ := strings.Cut(e.Scalar.(string), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		same := func(o lb.Sysctl) bool { return o.Name == name }
		switch {
		case slices.ContainsFunc(own, same):
			s.FailAt(e, "sysctls", "weir sets "+name+" itself", "remove it")
		case slices.ContainsFunc(out, same):
			s.FailAt(e, "sysctls", name+" is in the list twice", "remove one")
		default:
			out = append(out, lb.Sysctl{Name: name, Value: value})
		}
	}
	needsManage(s, "sysctls", len(out) > 0, k)
	return out
}
