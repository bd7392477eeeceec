package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/lb"
)

// readNode reads what matters most to a box that is a node of a cluster.
func (s section) readNode(k *Kernel) {
	k.DetectLocal = DetectLocal(s.text("detect_local"))
	k.BridgeInterface = s.interfaceOf(k.DetectLocal, "bridge_interface", BridgeInterface)
	k.InterfacePrefix = s.interfaceOf(k.DetectLocal, "interface_prefix", InterfacePrefix)
	if k.DetectLocal != ClusterCIDR && s.written("cluster_cidrs") {
		s.fail("cluster_cidrs", `is only used with detect_local = "`+string(ClusterCIDR)+`"`, "remove one of them")
	}
	k.NodePortNets, k.NodePortPrimary = s.nodePortAddresses()
	k.StrictARP = s.strictARP(*k)
	k.Sysctls = s.sysctls(*k)
	if k.SloppyTCP && !k.ManageSysctls {
		s.warn(Warning, "sloppy_tcp", "is for whoever manages the kernel parameters, as manage_sysctls is false",
			"see that net.ipv4.vs.sloppy_tcp and net.netfilter.nf_conntrack_tcp_loose are 1")
	}
}

// interfaceOf reads the name of an interface, or its beginning, that one way to
// know pods needs.
func (s section) interfaceOf(way DetectLocal, name string, needs DetectLocal) string {
	text := s.text(name)
	switch {
	case way != needs && text != "" && !s.bad("detect_local"):
		s.fail(name, `is only used with detect_local = "`+string(needs)+`"`, "set that, or remove this")
	case way == needs && text == "" && !s.bad(name):
		s.fail(name, `is missing: detect_local is "`+string(needs)+`"`, "name it as ip link does")
	case text != "" && !deviceForm.MatchString(text):
		s.fail(name, strconv.Quote(text)+" can't be the name of an interface", "write 1 to 15 letters, digits and . _ -")
	case needs == InterfacePrefix && len(text) > 14: // with its "+" iptables has room for 15
		s.fail(name, strconv.Quote(text)+" is as long as a whole name", "shorten it")
	}
	return text
}

func (s section) nodePortAddresses() (nets []netip.Prefix, primary bool) {
	list := s.elements("node_port_addresses")
	i := slices.IndexFunc(list, func(e *value) bool { return e.scalar == "primary" })
	if i < 0 {
		return s.prefixes("node_port_addresses"), false
	}
	if len(list) > 1 {
		s.failAt(list[i], "node_port_addresses", `"primary" stands alone`, "remove it, or all others")
	}
	return nil, true
}

// allInterfaces makes strict_arp what it is for kube-proxy.
const allInterfaces = "all"

func (s section) strictARP(k Kernel) []string {
	var out []string
	for _, e := range s.elements("strict_arp") {
		name := e.scalar.(string)
		switch {
		case !deviceForm.MatchString(name) || name == "lo" || name == "default":
			s.failAt(e, "strict_arp", strconv.Quote(name)+" can't be an interface that answers ARP", `write its name as ip link does, or "all"`)
		case slices.Contains(out, name):
			s.failAt(e, "strict_arp", strconv.Quote(name)+" is in the list twice", "remove one")
		default:
			out = append(out, name)
		}
	}
	if len(out) > 1 && slices.Contains(out, allInterfaces) {
		s.fail("strict_arp", `"all" stands alone`, "remove it, or all others")
	}
	if len(out) > 0 && !slices.Contains(k.Families, lb.IPv4) {
		s.fail("strict_arp", "does nothing without IPv4, and families has none", "remove it")
	}
	s.needsManage("strict_arp", len(out) > 0, k)
	return out
}

func (s section) needsManage(name string, used bool, k Kernel) {
	if used && !k.ManageSysctls {
		s.fail(name, "does nothing with manage_sysctls = false", "remove one of them")
	}
}

// arpSysctls make interfaces answer, and say, only what is their own. The kernel
// takes the greater of an interface's value and that of all
// (Documentation/networking/ip-sysctl.rst), so others are not touched.
func arpSysctls(interfaces []string) []lb.Sysctl {
	var out []lb.Sysctl
	for _, name := range interfaces {
		// As in sysctl(8), a dot within a part of the name is a slash.
		conf := "net.ipv4.conf." + strings.ReplaceAll(name, ".", "/")
		out = append(out, lb.Sysctl{Name: conf + ".arp_ignore", Value: "1"}, lb.Sysctl{Name: conf + ".arp_announce", Value: "2"})
	}
	return out
}

// sysctlForm is a parameter of the network and its value: numbers and words, as
// the kernel shows them when they are read.
var sysctlForm = regexp.MustCompile(`^(net(?:\.[A-Za-z0-9_/@:-]+)+) *= *([A-Za-z0-9_,.:-]+(?: [A-Za-z0-9_,.:-]+)*)$`)

func (s section) sysctls(k Kernel) []lb.Sysctl {
	var out []lb.Sysctl
	own := slices.Concat(lb.Sysctls([]lb.Family{lb.IPv4, lb.IPv6}), lb.TakeoverSysctls(k.SloppyTCP, false), arpSysctls(k.StrictARP))
	for _, e := range s.elements("sysctls") {
		text := e.scalar.(string)
		m := sysctlForm.FindStringSubmatch(text)
		if m == nil {
			s.failAt(e, "sysctls", strconv.Quote(text)+" does not set a parameter of the network",
				`write one such as "net.netfilter.nf_conntrack_max=1048576"`)
			continue
		}
		same := func(o lb.Sysctl) bool { return o.Name == m[1] }
		switch {
		case slices.ContainsFunc(own, same):
			s.failAt(e, "sysctls", m[1]+" is set by weir itself", "remove it")
		case slices.ContainsFunc(out, same):
			s.failAt(e, "sysctls", fmt.Sprintf("%s is in the list twice", m[1]), "remove one")
		default:
			out = append(out, lb.Sysctl{Name: m[1], Value: m[2]})
		}
	}
	s.needsManage("sysctls", len(out) > 0, k)
	return out
}
