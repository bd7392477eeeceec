package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb"
)

// neededSysctls returns the parameters that weir needs.
func (f box) neededSysctls() []lb.Sysctl {
	if f.Config == nil {
		return withoutIPVS(f, lb.Sysctls([]lb.Family{lb.IPv4}))
	}
	out := f.Config.Sysctls()
	if !f.checksIPv4VIPs() {
		out = slices.DeleteFunc(out, func(s lb.Sysctl) bool { return s == lb.OwnSourceSysctl() })
	}
	slices.SortFunc(out, func(a, b lb.Sysctl) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value)) })
	return withoutIPVS(f, slices.Compact(out))
}

// checksIPv4VIPs reports whether the box must admit packets with its own addresses as source.
func (f box) checksIPv4VIPs() bool {
	return f.Config != nil && f.Config.ChecksIPv4VIPs() && facts.UsesIPVS(&f.Facts)
}

func withoutIPVS(f box, list []lb.Sysctl) []lb.Sysctl {
	return slices.DeleteFunc(list, func(s lb.Sysctl) bool {
		return (!facts.UsesIPVS(&f.Facts) || !f.Kernel.IPVS) && strings.HasPrefix(s.Name, "net.ipv4.vs.")
	})
}

// wrongSysctl reports parameters with a wrong value.
func wrongSysctl(f box) []Finding {
	var out []Finding
	for _, s := range f.neededSysctls() {
		have, ok := f.Sysctls[s.Name]
		if !ok || have == s.Value {
			continue
		}
		x := Finding{
			Severity: Error, Text: fmt.Sprintf("%s is %s, and must be %s", s.Name, have, s.Value),
			Fix: "set it; a running weir does so unless kernel.manage_sysctls is false", Command: set(s.Name, s.Value),
		}
		if f.Running == nil && (f.Config == nil || f.Config.Kernel.ManageSysctls) {
			x.Severity, x.Fix, x.Command = Info, "the start of weir sets it", ""
		}
		out = append(out, x)
	}
	return append(out, ownSource(f)...)
}

// ownSource reports that the box admits packets of other hosts with its own addresses as source, and
// needs none.
func ownSource(f box) []Finding {
	name := lb.OwnSourceSysctl().Name
	if f.Config == nil || f.Sysctls[name] != "1" || slices.ContainsFunc(f.neededSysctls(), func(s lb.Sysctl) bool { return s.Name == name }) {
		return nil
	}
	return []Finding{{
		Severity: Info, Text: name + " is 1, and no check of a VIP needs it: other hosts can send packets with addresses of this box",
		Fix: "set it to 0, unless another program needs it", Command: set(name, "0"),
	}}
}

func set(name, value string) string {
	if strings.Contains(value, " ") {
		return fmt.Sprintf("sysctl -w %s=%q", name, value)
	}
	return "sysctl -w " + name + "=" + value
}

// sysctlFile reports files that set a wrong value at boot or by sysctl --system. The last
// file counts.
func sysctlFile(f box) []Finding {
	last := map[string]facts.SysctlLine{}
	for _, l := range f.SysctlFiles {
		last[l.Name] = l
	}
	var out []Finding
	for _, s := range f.neededSysctls() {
		l, ok := last[s.Name]
		if !ok || l.Value == s.Value {
			continue
		}
		out = append(out, Finding{
			Severity: Warning,
			Text:     fmt.Sprintf("%s:%d sets %s to %s, and weir needs %s", l.File, l.Line, l.Name, l.Value, s.Value),
			Fix:      "comment that line out",
			Command:  fmt.Sprintf("sed -i '%ds/^/# /' %s", l.Line, l.File),
		})
	}
	return out
}

// reuse reports conn_reuse_mode 1 before kernel 5.9: a client that reuses a port loses its
// first packet (kubernetes issue 81775).
func reuse(f box) []Finding {
	const name = "net.ipv4.vs.conn_reuse_mode"
	if v, ok := f.Sysctls[name]; !ok || v == "0" {
		return nil
	}
	return []Finding{{Severity: Warning, Text: name + " is not 0 on kernel " + f.Kernel.Release, Fix: "set it to 0, until the kernel is upgraded", Command: set(name, "0")}}
}

// checkedBehind reports whether the route to an IPv4 backend with checks of VIPs has an interface.
func (f box) checkedBehind(name string) bool {
	if !f.checksIPv4VIPs() {
		return false
	}
	checked := map[netip.Addr]bool{}
	for _, s := range f.Config.Services {
		for _, p := range s.Ports {
			for _, b := range p.Backends {
				checked[b.Addr.Addr()] = checked[b.Addr.Addr()] || s.CheckVIPs && b.Addr.Addr().Is4()
			}
		}
	}
	return slices.ContainsFunc(f.Ways, func(w facts.Way) bool { return w.Interface == name && checked[w.Backend] })
}

// rpFilter reports strict reverse path filtering on a box with several uplinks, or towards backends
// with checks of VIPs: their replies have an address of the box. One uplink drops forged packets only, unless
// the box has routes back by another interface.
func rpFilter(f box) []Finding {
	var strict []string
	for _, l := range f.Network.Links {
		if l.Name != "lo" && l.Up && f.effective("rp_filter", l.Name) == "1" {
			strict = append(strict, l.Name)
		}
	}
	var out []Finding
	for _, name := range strict {
		uplink := slices.Contains(f.Network.Uplinks, name)
		checks := f.checkedBehind(name)
		if !checks && (!uplink || len(f.Network.Uplinks) < 2 && f.Network.RPFiltered == 0) {
			continue
		}
		severity, what := Warning, "rp_filter is strict on "+name+", one of several uplinks ("+strings.Join(f.Network.Uplinks, ", ")+")"
		if checks {
			what = "rp_filter is strict on " + name + ", and checks of VIPs get no replies there"
		} else if n := f.Network.RPFiltered; n > 0 {
			what = fmt.Sprintf("rp_filter is strict on %s, and has dropped %d packets since boot, %d in the last second", name, n, f.Network.RPGrowing)
			if len(f.Network.Uplinks) < 2 && f.Network.RPGrowing == 0 {
				severity = Info
			}
		}
		conf := "net.ipv4.conf." + sysctlPart(name) + ".rp_filter"
		out = append(out, Finding{
			Severity: severity, Text: what,
			Fix:     "set it to loose, in /etc/sysctl.d too",
			Command: set(conf, "2") + " && echo " + conf + "=2 >>/etc/sysctl.d/90-weir-rp-filter.conf",
		})
	}
	return out
}

// effective returns the greater value of a parameter of all interfaces and of one
// (Documentation/networking/ip-sysctl.rst).
func (f box) effective(parameter, link string) string {
	return max(f.Sysctls["net.ipv4.conf.all."+parameter], f.Sysctls["net.ipv4.conf."+sysctlPart(link)+"."+parameter])
}

// sysctlPart returns the name of an interface in the name of a parameter.
func sysctlPart(link string) string { return strings.ReplaceAll(link, ".", "/") }

// localnet reports route_localnet, which opens 127.0.0.1 to neighbors (CVE-2020-8558).
func localnet(f box) []Finding {
	var out []Finding
	for _, name := range append([]string{"all"}, f.links()...) {
		conf := "net.ipv4.conf." + sysctlPart(name) + ".route_localnet"
		if name == "lo" || f.Sysctls[conf] != "1" {
			continue
		}
		out = append(out, Finding{
			Severity: Warning, Text: conf + " is 1: hosts of that network can reach services on 127.0.0.1",
			Fix: "clear it, unless something on this box needs it and its firewall drops 127.0.0.0/8 from outside", Command: set(conf, "0"),
		})
	}
	return out
}

func (f box) links() []string {
	var out []string
	for _, l := range f.Network.Links {
		out = append(out, l.Name)
	}
	return out
}

// lostRA reports a default route by router advertisements that a forwarding box will
// lose, because accept_ra is not 2.
func lostRA(f box) []Finding {
	link := f.Network.DefaultByRA
	conf := "net.ipv6.conf." + sysctlPart(link) + ".accept_ra"
	if link == "" || f.Sysctls["net.ipv6.conf.all.forwarding"] != "1" || f.Sysctls[conf] == "2" {
		return nil
	}
	return []Finding{{
		Severity: Error, Text: "the IPv6 default route comes from router advertisements on " + link + ", which a forwarding box ignores while accept_ra is " + f.Sysctls[conf],
		Fix:     "set it to 2, in /etc/sysctl.d too, or set a default route",
		Command: set(conf, "2") + " && echo " + conf + "=2 >>/etc/sysctl.d/90-weir-ra.conf",
	}}
}

// bridged reports a node with pods on a bridge that does not call iptables: replies within
// the bridge bypass conntrack.
func bridged(f box) []Finding {
	const name = "net.bridge.bridge-nf-call-iptables"
	bridge := slices.ContainsFunc(f.Network.Links, func(l facts.Link) bool { return l.Kind == "bridge" })
	have, ok := f.Sysctls[name]
	if !bridge || ok && have == "1" {
		return nil
	}
	return []Finding{{
		Severity: Error, Text: "pods are on a bridge, and " + name + " is " + cmp.Or(have, "missing"),
		Fix:     "load br_netfilter and set it, in /etc/sysctl.d and /etc/modules-load.d too",
		Command: "modprobe br_netfilter && " + set(name, "1"),
	}}
}
