package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/lb"
)

// neededSysctls are the parameters that weir must have, whoever sets them.
func (f Facts) neededSysctls() []lb.Sysctl {
	if f.Config == nil {
		return withoutIPVS(f, lb.Sysctls([]lb.Family{lb.IPv4}))
	}
	k := f.Config.Kernel
	out := slices.Concat(lb.Sysctls(k.Families), f.Config.Base().Sysctls, lb.TakeoverSysctls(k.SloppyTCP, f.Config.Sync() != nil))
	slices.SortFunc(out, func(a, b lb.Sysctl) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value)) })
	return withoutIPVS(f, slices.Compact(out))
}

func withoutIPVS(f Facts, list []lb.Sysctl) []lb.Sysctl {
	return slices.DeleteFunc(list, func(s lb.Sysctl) bool {
		return (!f.usesIPVS() || !f.Kernel.IPVS) && strings.HasPrefix(s.Name, "net.ipv4.vs.")
	})
}

// wrongSysctl: the kernel has another value than weir needs.
func wrongSysctl(f Facts) []Finding {
	var out []Finding
	for _, s := range f.neededSysctls() {
		have, ok := f.Sysctls[s.Name]
		if !ok || have == s.Value {
			continue
		}
		x := Finding{
			Severity: Error, What: fmt.Sprintf("%s is %s, and must be %s", s.Name, have, s.Value),
			Fix: "set it; weir does so itself when it runs, unless kernel.manage_sysctls is false", Command: set(s.Name, s.Value),
		}
		if f.Running == nil && (f.Config == nil || f.Config.Kernel.ManageSysctls) {
			x.Severity, x.Fix, x.Command = Info, "weir sets it when it starts", ""
		}
		out = append(out, x)
	}
	return out
}

func set(name, value string) string {
	if strings.Contains(value, " ") {
		return fmt.Sprintf("sysctl -w %s=%q", name, value)
	}
	return "sysctl -w " + name + "=" + value
}

// sysctlFile: a file sets another value than weir needs, when the box starts or somebody
// runs sysctl --system. The last of the files decides.
func sysctlFile(f Facts) []Finding {
	last := map[string]SysctlLine{}
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
			What:     fmt.Sprintf("%s:%d sets %s to %s, and weir needs %s", l.File, l.Line, l.Name, l.Value, s.Value),
			Fix:      "make that line a comment",
			Command:  fmt.Sprintf("sed -i '%ds/^/# /' %s", l.Line, l.File),
		})
	}
	return out
}

// reuse: before kernel 5.9 a client that used a port again lost its first packet, with
// conn_reuse_mode 1, or had a backend that was gone, with 0 (kubernetes issue 81775).
func reuse(f Facts) []Finding {
	const name = "net.ipv4.vs.conn_reuse_mode"
	if v, ok := f.Sysctls[name]; !ok || v == "0" {
		return nil
	}
	return []Finding{{Severity: Warning, What: name + " is not 0 on kernel " + f.Kernel.Release, Fix: "set it, until there is a newer kernel", Command: set(name, "0")}}
}

// rpFilter: strict reverse path filtering drops what comes in where the kernel would not
// send the answer. With several ways to the clients that is so for some of them.
func rpFilter(f Facts) []Finding {
	var strict []string
	for _, l := range f.Network.Links {
		if l.Name != "lo" && l.Up && f.effective("rp_filter", l.Name) == "1" {
			strict = append(strict, l.Name)
		}
	}
	var out []Finding
	for _, name := range strict {
		door := slices.Contains(f.Network.Doors, name)
		if !door || len(f.Network.Doors) < 2 && f.Network.RPFiltered == 0 {
			continue
		}
		what := "rp_filter is strict on " + name + ", one of several interfaces by which clients come (" + strings.Join(f.Network.Doors, ", ") + ")"
		if n := f.Network.RPFiltered; n > 0 {
			what = fmt.Sprintf("rp_filter is strict on %s, and has dropped %d packets", name, n)
		}
		conf := "net.ipv4.conf." + sysctlPart(name) + ".rp_filter"
		out = append(out, Finding{
			Severity: Warning, What: what,
			Fix:     "make it loose, in /etc/sysctl.d too",
			Command: set(conf, "2") + " && echo " + conf + "=2 >>/etc/sysctl.d/90-weir-rp-filter.conf",
		})
	}
	return out
}

// effective is the greater one of a parameter of all interfaces and of one
// (Documentation/networking/ip-sysctl.rst).
func (f Facts) effective(parameter, link string) string {
	return max(f.Sysctls["net.ipv4.conf.all."+parameter], f.Sysctls["net.ipv4.conf."+sysctlPart(link)+"."+parameter])
}

// sysctlPart is the name of an interface within that of a parameter.
func sysctlPart(link string) string { return strings.ReplaceAll(link, ".", "/") }

// localnet: with route_localnet neighbors reach what listens on 127.0.0.1
// (CVE-2020-8558).
func localnet(f Facts) []Finding {
	var out []Finding
	for _, name := range append([]string{"all"}, f.links()...) {
		conf := "net.ipv4.conf." + sysctlPart(name) + ".route_localnet"
		if name == "lo" || f.Sysctls[conf] != "1" {
			continue
		}
		out = append(out, Finding{
			Severity: Warning, What: conf + " is 1: hosts of that network can reach what listens on 127.0.0.1",
			Fix: "clear it, unless something on this box needs it and its firewall drops 127.0.0.0/8 from outside", Command: set(conf, "0"),
		})
	}
	return out
}

func (f Facts) links() []string {
	var out []string
	for _, l := range f.Network.Links {
		out = append(out, l.Name)
	}
	return out
}

// lostRA: a box that forwards does not listen to router advertisements any more, unless
// accept_ra is 2; its default route goes when its lifetime is over.
func lostRA(f Facts) []Finding {
	link := f.Network.DefaultByRA
	conf := "net.ipv6.conf." + sysctlPart(link) + ".accept_ra"
	if link == "" || f.Sysctls["net.ipv6.conf.all.forwarding"] != "1" || f.Sysctls[conf] == "2" {
		return nil
	}
	return []Finding{{
		Severity: Error, What: "the IPv6 default route is by router advertisements on " + link + ", which a box that forwards ignores while accept_ra is " + f.Sysctls[conf],
		Fix:     "let it listen, in /etc/sysctl.d too, or set a default route",
		Command: set(conf, "2") + " && echo " + conf + "=2 >>/etc/sysctl.d/90-weir-ra.conf",
	}}
}

// bridged: on a node whose pods hang on a bridge, replies within it go past conntrack
// unless the bridge calls iptables.
func bridged(f Facts) []Finding {
	const name = "net.bridge.bridge-nf-call-iptables"
	bridge := slices.ContainsFunc(f.Network.Links, func(l Link) bool { return l.Kind == "bridge" })
	have, ok := f.Sysctls[name]
	if !bridge || ok && have == "1" {
		return nil
	}
	return []Finding{{
		Severity: Error, What: "pods are on a bridge, and " + name + " is " + cmp.Or(have, "not there"),
		Fix:     "load br_netfilter and set it, in /etc/sysctl.d and /etc/modules-load.d too",
		Command: "modprobe br_netfilter && " + set(name, "1"),
	}}
}
