package doctor

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb/linux"
)

// before reports whether the kernel is older than a version; an unreadable one is not.
func before(k facts.Kernel, major, minor int) bool {
	var a, b int
	_, _ = fmt.Sscanf(k.Release, "%d.%d", &a, &b) // no number is 0
	return a > 0 && (a < major || a == major && b < minor)
}

// oldKernel reports kernels before 4.18, which lack the scheduler mh, and before 5.9, where
// a client that reuses a port waits a second (kernel commit f0a5e4d7a594).
func oldKernel(f box) []Finding {
	const fix = "install and boot the current kernel of the distribution"
	switch {
	case before(f.Kernel, 4, 18):
		return []Finding{{Severity: Error, Text: "kernel " + f.Kernel.Release + " is older than 4.18 and has no scheduler mh", Fix: fix}}
	case before(f.Kernel, 5, 9):
		return []Finding{{Severity: Warning, Text: "kernel " + f.Kernel.Release + " is older than 5.9: clients that reuse a port may wait a second", Fix: fix}}
	}
	return nil
}

// noIPVS reports a kernel without IPVS.
func noIPVS(f box) []Finding {
	if f.Kernel.IPVS {
		return nil
	}
	if f.Kernel.Modules["ip_vs"] == facts.Loadable {
		return []Finding{{
			Severity: Warning, Text: "module ip_vs is not loaded", Fix: "load it now and at boot",
			Command: "modprobe ip_vs && echo ip_vs >/etc/modules-load.d/weir-ip_vs.conf",
		}}
	}
	x := Finding{
		Severity: Error, Text: "kernel " + f.Kernel.Release + " has no IPVS",
		Fix: "install the full kernel package of your distribution (cloud kernels have fewer modules) and boot it, " +
			"or set kernel.mode = \"netfilter\"",
	}
	if f.Config != nil && f.Config.Kernel.Mode == config.ModeAuto {
		x.Severity, x.Text = Warning, x.Text+": fallback to mode netfilter, without schedulers, weights and limits"
	}
	return []Finding{x}
}

// noModules reports modules that are neither built in nor loadable. The kernel loads a
// loadable one by itself.
func noModules(f box) []Finding {
	c := linux.Config{Mode: linux.ModeIPVS, Backend: facts.Backend(&f.Facts), Decapsulates: f.Config != nil && len(f.Config.Kernel.DecapsulateFrom) > 0}
	if !facts.UsesIPVS(&f.Facts) {
		c.Mode, c.Decapsulates = linux.ModeNetfilter, false
	}
	served := facts.ServedBy(&f.Facts)
	var lacks, hidden []string
	for _, m := range linux.Modules(c, served.Schedulers) {
		switch state := f.Kernel.Modules[m]; {
		case m == "ip_vs": // it has its own check
		case state == facts.Absent:
			lacks = append(lacks, m)
		case state == facts.Hidden:
			hidden = append(hidden, m)
		}
	}
	switch {
	case len(hidden) > 0 && f.Running == nil: // a running daemon has them all
		return []Finding{{Severity: Unknown, Text: "can't check " + some(hidden) + " of kernel " + f.Kernel.Release +
			": there is no /lib/modules/" + f.Kernel.Release}}
	case len(lacks) == 0:
		return nil
	}
	return []Finding{{
		Severity: Error, Text: "kernel " + f.Kernel.Release + " lacks " + strings.Join(lacks, ", "),
		Fix:     "load them; if a file is missing, install and boot the full kernel package",
		Command: "modprobe -a " + strings.Join(lacks, " "),
	}}
}

// refusedRules reports why nftables does not have the rules, unless the configuration selects iptables.
func refusedRules(f box) []Finding {
	k := f.Config.Kernel
	auto := k.Rules == config.RulesAuto && k.IPTables == config.IPTablesAuto
	instead := "iptables and ipset have the rules, not nftables: "
	reason := ""
	switch {
	case k.Rules == config.RulesNFTables && f.Kernel.Refusal != "":
		return []Finding{{
			Severity: Error, Text: "the kernel refuses weir's rules in nftables: " + f.Kernel.Refusal,
			Fix: "set kernel.rules = \"auto\" and restart weir: it selects iptables and ipset",
		}}
	case f.Running != nil:
		reason = f.Running.Kernel.IPTablesReason
	case f.Kernel.Untried && (auto || k.Rules == config.RulesNFTables):
		return []Finding{{Severity: Unknown, Text: "whether the kernel accepts weir's rules in nftables can't be checked: only root may try"}}
	case auto && !f.Kernel.NFTables:
		instead, reason = "weir selects iptables and ipset for its rules, not nftables: ", f.Kernel.Refusal
	}
	if reason == "" {
		return nil
	}
	return []Finding{{Severity: Passed, Text: instead + reason}}
}

// fullIPVS reports too few buckets of the connection table of IPVS.
func fullIPVS(f box) []Finding {
	if f.Kernel.IPVSBuckets == 0 || f.Kernel.IPVSConns/f.Kernel.IPVSBuckets < longChain {
		return nil
	}
	return []Finding{{
		Severity: Warning,
		Text:     fmt.Sprintf("IPVS has %d connections in %d buckets", f.Kernel.IPVSConns, f.Kernel.IPVSBuckets),
		Fix:      "configure 2^20 buckets (8 MiB) for the next boot",
		Command:  "echo options ip_vs conn_tab_bits=20 >/etc/modprobe.d/weir.conf",
	}}
}

// longChain is the greatest acceptable number of connections of a bucket.
const longChain = 8
