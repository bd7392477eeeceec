// Package config holds the values of a valid configuration, with every default filled in.
//
// It never reads files and never validates: package load makes a Config of a file, or the
// list of its problems. No value is text that must still be parsed. The keys and their
// readers are in packages serving and vips, conflicts between tables in package check.
package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/source"
	"weir/k8ssync"
	"weir/lb"
	"weir/lb/health"
)

// Config is a valid configuration with every default filled in.
type Config struct {
	// Files are the files of the configuration, the main one first.
	Files    []string
	Kernel   Kernel
	Daemon   Daemon
	Defaults Defaults
	// Services in the order of the files, and their checks.
	Services []lb.Service
	Checks   []health.Group
	// Clusters in the order of the files.
	Clusters []Cluster
	// Addresses is [addresses] with the pools and reservations, in the order of the
	// files. Without Pools no addresses are assigned. The daemon sets its Identity.
	Addresses k8ssync.ProviderConfig
	// BGP is nil without [bgp].
	BGP *BGP
	// Fleet is nil without [fleet], L2 without [l2].
	Fleet *Fleet
	L2    *L2
	// Hooks are those of [[hook]].
	Hooks []Hook
	// Warnings are the problems of lower severity than Error.
	Warnings []source.Problem
}

// Configured reports whether there is a service, a cluster or a fleet.
func (c *Config) Configured() bool {
	return len(c.Services) > 0 || len(c.Clusters) > 0 || c.Fleet != nil
}

// Kernel is the table [kernel]: the state that weir keeps in the kernel.
type Kernel struct {
	Mode Mode
	// NamePrefix begins the names of all sets and chains. Device holds the VIPs.
	NamePrefix string
	Device     string
	Rules      Rules
	IPTables   IPTables
	Families   []lb.Family
	// MasqueradeBit marks packets to masquerade: see Mark.
	MasqueradeBit int
	MasqueradeAll bool
	// MasqueradeSource are the source addresses of masqueraded connections, at most one of
	// each family; none means an address of this box. In a fleet the owner of all VIPs
	// has them.
	MasqueradeSource []netip.Addr
	// SloppyTCP accepts packets in the middle of a connection, for instance one of a
	// failed box.
	SloppyTCP bool
	// DetectLocal identifies packets of pods: by ClusterCIDRs, by the ranges of the box's
	// own Node, by BridgeInterface or by InterfacePrefix.
	DetectLocal     DetectLocal
	ClusterCIDRs    []netip.Prefix
	BridgeInterface string
	InterfacePrefix string
	// NodePortNets are the addresses that serve node ports; a family without one serves
	// them on all its addresses. NodePortPrimary replaces them by those of the Node.
	NodePortNets    []netip.Prefix
	NodePortPrimary bool
	// StrictARP are interfaces that answer ARP only for their own addresses. Base has the
	// parameters for it.
	StrictARP []string
	// Sysctls are additional kernel parameters; Base has them too.
	Sysctls      []lb.Sysctl
	ExcludeCIDRs []netip.Prefix
	// Pools are the prefixes that one route each makes local (vip_mode "route"). Without
	// any, each VIP is an address of Device.
	Pools []lb.PoolRoute
	// DecapsulateFrom are the boxes of which this one decapsulates packets, DecapsulateMTU is the MTU of
	// the paths from them.
	DecapsulateFrom []netip.Addr
	DecapsulateMTU  int
	// Ping lets VIPs answer ICMP echo requests.
	Ping bool
	// SyncPeriod is the interval of audits of the whole kernel state, MinSyncPeriod the
	// minimum interval of writes.
	SyncPeriod, MinSyncPeriod time.Duration
	// The timeouts of IPVS connections; 0 keeps the kernel's own.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
	ManageSysctls                         bool
}

// Mark returns the packet mark for masquerading, which is also its mask.
func (k Kernel) Mark() uint32 { return 1 << k.MasqueradeBit }

// Base returns the kernel state that lb needs before any Service.
func (k Kernel) Base() lb.Base {
	b := lb.Base{Device: k.Device, Families: k.Families, Sources: k.MasqueradeSource}
	for _, a := range k.DecapsulateFrom {
		b.Tunnels = append(b.Tunnels, lb.TunnelDevice{Remote: a})
	}
	if k.ManageSysctls {
		b.Sysctls = slices.Concat(lb.Sysctls(k.Families), lb.TakeoverSysctls(k.SloppyTCP, false), ARPSysctls(k.StrictARP), k.Sysctls)
	}
	return b
}

// Base returns the base of the table [kernel] with the additions of the fleet and of the services.
func (c *Config) Base() lb.Base {
	b := c.Kernel.Base()
	b.Sync = c.Sync().Daemons()
	if c.Kernel.ManageSysctls {
		b.Sysctls = c.Sysctls()
	}
	return b
}

// Sysctls returns the kernel parameters that weir needs, also if the operator sets them.
func (c *Config) Sysctls() []lb.Sysctl {
	k := c.Kernel
	out := slices.Concat(lb.Sysctls(k.Families), lb.TakeoverSysctls(k.SloppyTCP, c.Sync() != nil), ARPSysctls(k.StrictARP), k.Sysctls)
	if c.ChecksIPv4VIPs() {
		out = append(out, lb.OwnSourceSysctl())
	}
	if c.onlyDirect() {
		out[slices.Index(out, lb.ConntrackSysctl(true))] = lb.ConntrackSysctl(false)
	}
	return out
}

// onlyDirect reports whether no backend is masqueraded. Checks of VIPs need conntrack: they are
// connections of this box.
func (c *Config) onlyDirect() bool {
	if len(c.Clusters) > 0 || c.ChecksVIPs() {
		return false
	}
	masqueraded := func(b lb.Backend) bool { return !b.Forward.Direct() }
	for _, svc := range c.Services {
		if len(svc.Fallback) > 0 && !svc.Forward.Direct() {
			return false
		}
		for _, port := range svc.Ports {
			if slices.ContainsFunc(port.Backends, masqueraded) {
				return false
			}
		}
	}
	return len(c.Services) > 0
}

// ChecksVIPs reports whether checks address VIPs at their backends.
func (c *Config) ChecksVIPs() bool {
	return slices.ContainsFunc(c.Services, func(s lb.Service) bool { return s.CheckVIPs })
}

// ChecksIPv4VIPs reports whether such a backend is IPv4, which needs lb.OwnSourceSysctl.
func (c *Config) ChecksIPv4VIPs() bool {
	return slices.ContainsFunc(c.Services, func(s lb.Service) bool {
		return s.CheckVIPs && slices.ContainsFunc(s.Ports, func(p lb.Port) bool {
			return slices.ContainsFunc(p.Backends, func(b lb.Backend) bool { return b.Addr.Addr().Is4() })
		})
	})
}

// Mode is the kernel's load balancer.
type Mode string

// The values of mode.
const (
	ModeAuto      Mode = "auto"
	ModeIPVS      Mode = "ipvs"
	ModeNetfilter Mode = "netfilter"
)

// DetectLocal is the way to identify packets of pods.
type DetectLocal string

// The values of detect_local.
const (
	ClusterCIDR     DetectLocal = "cluster-cidr"
	NodeCIDR        DetectLocal = "node-cidr"
	BridgeInterface DetectLocal = "bridge-interface"
	InterfacePrefix DetectLocal = "interface-prefix"
)

// Rules is the owner of weir's sets and rules in the kernel.
type Rules string

// The values of rules.
const (
	RulesAuto     Rules = "auto"     // nftables if the kernel can do all of it
	RulesIPTables Rules = "iptables" // and ipset
	RulesNFTables Rules = "nftables"
)

// IPTables is the variant of the iptables programs.
type IPTables string

// The values of iptables.
const (
	IPTablesAuto   IPTables = "auto"
	IPTablesLegacy IPTables = "legacy"
	IPTablesNFT    IPTables = "nft"
)

// Daemon is the table [daemon]: the process itself.
type Daemon struct {
	// Socket is the path of the unix socket for the command line.
	Socket string
	// HealthListen, MetricsListen and PageListen are the HTTP addresses of /healthz and
	// /livez, of /metrics, and of the status page; "" disables them. Equal addresses share
	// one listener.
	HealthListen, MetricsListen, PageListen string
	// MetricsBackends is that /metrics has series of single backends.
	MetricsBackends bool

	LogLevel  slog.Level
	LogFormat LogFormat
	OnStop    OnStop
	// StopTimeout limits the drain before a stop.
	StopTimeout time.Duration
	// AllowExec permits programs, which run in another unit.
	AllowExec bool
	// StateDir is the directory of the state that survives restarts.
	StateDir string
}

// Listener is an HTTP address of the daemon, and its key in [daemon].
type Listener struct{ Key, Addr string }

// Listeners returns the HTTP addresses that are not empty, in the order of the schema.
func (d Daemon) Listeners() []Listener {
	all := []Listener{{"health_listen", d.HealthListen}, {"metrics_listen", d.MetricsListen}, {"page_listen", d.PageListen}}
	return slices.DeleteFunc(all, func(l Listener) bool { return l.Addr == "" })
}

// LogFormat is the format of log lines.
type LogFormat string

// The values of log_format.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// OnStop is the action when the daemon stops; a restart has none.
type OnStop string

// The values of on_stop.
const (
	StopKeeps    OnStop = "keep"
	StopDrains   OnStop = "drain"
	StopCleansUp OnStop = "cleanup" // drains, too
)

// Defaults is the table [defaults]: defaults of all Services, which each can override.
type Defaults struct {
	Scheduler lb.Scheduler
	Drain     time.Duration
}

// restart are the keys that need a restart, in the order of the schema; of bgp only its
// presence.
var restart = []struct {
	key  string
	same func(a, b *Config) bool
}{
	{"kernel.mode", func(a, b *Config) bool { return a.Kernel.Mode == b.Kernel.Mode }},
	{"kernel.name_prefix", func(a, b *Config) bool { return a.Kernel.NamePrefix == b.Kernel.NamePrefix }},
	{"kernel.device", func(a, b *Config) bool { return a.Kernel.Device == b.Kernel.Device }},
	{"kernel.rules", func(a, b *Config) bool { return a.Kernel.Rules == b.Kernel.Rules }},
	{"kernel.iptables", func(a, b *Config) bool { return a.Kernel.IPTables == b.Kernel.IPTables }},
	{"kernel.families", func(a, b *Config) bool { return slices.Equal(a.Kernel.Families, b.Kernel.Families) }},
	{"kernel.masquerade_bit", func(a, b *Config) bool { return a.Kernel.MasqueradeBit == b.Kernel.MasqueradeBit }},
	{"daemon.socket", func(a, b *Config) bool { return a.Daemon.Socket == b.Daemon.Socket }},
	{"daemon.health_listen", func(a, b *Config) bool { return a.Daemon.HealthListen == b.Daemon.HealthListen }},
	{"daemon.metrics_listen", func(a, b *Config) bool { return a.Daemon.MetricsListen == b.Daemon.MetricsListen }},
	{"daemon.page_listen", func(a, b *Config) bool { return a.Daemon.PageListen == b.Daemon.PageListen }},
	{"daemon.log_format", func(a, b *Config) bool { return a.Daemon.LogFormat == b.Daemon.LogFormat }},
	{"bgp", func(a, b *Config) bool { return (a.BGP == nil) == (b.BGP == nil) }},
}

// RestartNeeded returns the keys that differ between two configurations and need a
// restart, in the order of the schema.
func RestartNeeded(running, wanted *Config) []string {
	var keys []string
	for _, r := range restart {
		if !r.same(running, wanted) {
			keys = append(keys, r.key)
		}
	}
	return keys
}

// AllInterfaces in StrictARP means every interface.
const AllInterfaces = "all"

// ARPSysctls returns the parameters that make interfaces answer, and announce, only their
// own addresses. The kernel uses the greater value of an interface's and that of all
// (Documentation/networking/ip-sysctl.rst), so other interfaces do not change.
func ARPSysctls(interfaces []string) []lb.Sysctl {
	var out []lb.Sysctl
	for _, name := range interfaces {
		// As in sysctl(8), a dot within a part of the name is a slash.
		conf := "net.ipv4.conf." + strings.ReplaceAll(name, ".", "/")
		out = append(out, lb.Sysctl{Name: conf + ".arp_ignore", Value: "1"}, lb.Sysctl{Name: conf + ".arp_announce", Value: "2"})
	}
	return out
}

// Cluster is a table [[kubernetes]].
type Cluster struct {
	// Config is for the client of the cluster. Its StateFile is below daemon.state_dir.
	k8ssync.Config
	// Guard limits deletions.
	Guard lb.GuardOptions
}

// IsNode reports whether the box is a node of the cluster.
func (c Cluster) IsNode() bool { return c.NodeName != "" }

// Sync returns [fleet.sync], nil without it.
func (c *Config) Sync() *FleetSync {
	if c.Fleet == nil {
		return nil
	}
	return c.Fleet.Sync
}

// named are the keys that identify weir's own objects in the kernel.
var named = []string{"kernel.name_prefix", "kernel.device", "kernel.families", "kernel.iptables"}

// RefuseRestart refuses a configuration that differs in keys that a running daemon can't change.
func RefuseRestart(running, wanted *Config) error {
	keys := RestartNeeded(running, wanted)
	if len(keys) == 0 {
		return nil
	}
	do := "systemctl restart weir, which loses no connection"
	if slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(named, k) }) {
		do = "a restart would leave the objects with the old ones behind. Put the old file back, stop weir, run weir cleanup, " +
			"which ends connections, and start weir with the new file"
	}
	return fmt.Errorf("%s can't change while weir runs: %s", strings.Join(keys, ", "), do)
}
