package doctor

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/lb/linux"
)

// release is the kernel's version as two numbers; 0.0 if it can't be read.
func (k Kernel) release() (major, minor int) {
	_, _ = fmt.Sscanf(k.Release, "%d.%d", &major, &minor) // no number is 0
	return major, minor
}

// before tells whether the kernel is older than a version; one that can't be read is not.
func (k Kernel) before(major, minor int) bool {
	a, b := k.release()
	return a > 0 && (a < major || a == major && b < minor)
}

// oldKernel: scheduler mh came with 4.18; 5.9 took out the second that a client waited
// who used a port again (kernel commit f0a5e4d7a594).
func oldKernel(f Facts) []Finding {
	const fix = "install your distribution's current kernel and boot it"
	switch {
	case f.Kernel.before(4, 18):
		return []Finding{{Severity: Error, What: "kernel " + f.Kernel.Release + " is older than 4.18 and has no scheduler mh", Fix: fix}}
	case f.Kernel.before(5, 9):
		return []Finding{{Severity: Warning, What: "kernel " + f.Kernel.Release + " is older than 5.9: clients that use a port again may wait a second", Fix: fix}}
	}
	return nil
}

// noIPVS: the kernel has no IPVS, or has not loaded it.
func noIPVS(f Facts) []Finding {
	if f.Kernel.IPVS {
		return nil
	}
	if f.Kernel.Modules["ip_vs"] == Loadable {
		return []Finding{{
			Severity: Warning, What: "module ip_vs is there and not loaded", Fix: "load it now, and at each start of the box",
			Command: "modprobe ip_vs && echo ip_vs >/etc/modules-load.d/weir-ip_vs.conf",
		}}
	}
	x := Finding{
		Severity: Error, What: "kernel " + f.Kernel.Release + " has no IPVS",
		Fix: "install the full kernel package of your distribution (cloud kernels have fewer modules) and boot it, " +
			"or do without: kernel.mode = \"iptables\"",
	}
	if f.Config != nil && f.Config.Kernel.Mode == config.ModeAuto {
		x.Severity, x.What = Warning, x.What+", so iptables balances: no schedulers, weights and limits"
	}
	return []Finding{x}
}

// noModules: of the modules that are needed the kernel has some neither built in nor to
// load. One that can be loaded is: the kernel asks for it by itself.
func noModules(f Facts) []Finding {
	mode := linux.ModeIPVS
	if !f.usesIPVS() {
		mode = linux.ModeIPTables
	}
	served := f.served()
	var lacks, hidden []string
	for _, m := range linux.Modules(mode, served.schedulers) {
		switch state := f.Kernel.Modules[m]; {
		case m == "ip_vs": // which has a check of its own
		case state == Absent:
			lacks = append(lacks, m)
		case state == Hidden:
			hidden = append(hidden, m)
		}
	}
	switch {
	case len(hidden) > 0 && f.Running == nil: // a daemon that runs has them all
		return []Finding{{Severity: Unknown, What: "whether kernel " + f.Kernel.Release + " has " + some(hidden) +
			" can't be known: there is no /lib/modules/" + f.Kernel.Release}}
	case len(lacks) == 0:
		return nil
	}
	return []Finding{{
		Severity: Error, What: "kernel " + f.Kernel.Release + " lacks " + strings.Join(lacks, ", "),
		Fix:     "load them, and where there is no such file install the full kernel package and boot it",
		Command: "modprobe -a " + strings.Join(lacks, " "),
	}}
}

// fullIPVS: IPVS's table of connections is so full that its chains are long.
func fullIPVS(f Facts) []Finding {
	if f.Kernel.IPVSBuckets == 0 || f.Kernel.IPVSConns/f.Kernel.IPVSBuckets < longChain {
		return nil
	}
	return []Finding{{
		Severity: Warning,
		What:     fmt.Sprintf("IPVS has %d connections in %d buckets", f.Kernel.IPVSConns, f.Kernel.IPVSBuckets),
		Fix:      "give it 2^20 buckets, 8 MiB, with the next start of the box",
		Command:  "echo options ip_vs conn_tab_bits=20 >/etc/modprobe.d/weir.conf",
	}}
}

// longChain is how many connections a bucket should have at most.
const longChain = 8
