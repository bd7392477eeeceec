// Package config reads the configuration: one strict TOML file and what it
// includes.
//
// Parse checks everything there is to check and gives either a Config, whose
// values nobody has to validate again, or an *Errors with every problem of every
// file: where it is, what is wrong and how to put it right. A Config never holds
// text that somebody still has to parse.
//
// The schema (Schema) is data: one table tells each key's type, limits, default
// and meaning. It alone decides what may be written, and where defaults live.
//
// The package decides nothing about traffic and touches no kernel. Of weir it
// imports lb, lb/health, k8ssync, k8ssync/ipam, bgp, cluster and cluster/owner, for the
// values that it makes, and it is the only one to import the TOML library.
package config

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"weir/k8ssync"
	"weir/lb"
	"weir/lb/health"
)

// Source is the lb.ServiceID.Source of the Services that a file defines.
const Source = "static"

// Config is a valid configuration with every default filled in.
type Config struct {
	// Files are those it was read from, the main one first.
	Files    []string
	Kernel   Kernel
	Daemon   Daemon
	Defaults Defaults
	// Services in the order of the files, and the checks of those that have any.
	Services []lb.Service
	Checks   []health.Group
	// Clusters in the order of the files.
	Clusters []Cluster
	// Addresses is [addresses] with the pools and reservations, in the order of the
	// files; without Pools no addresses are given. Its Identity is for the daemon to
	// fill in.
	Addresses k8ssync.ProviderConfig
	// BGP is nil without [bgp].
	BGP *BGP
	// Fleet is nil without [cluster], L2 without [l2].
	Fleet *Fleet
	L2    *L2
	// Warnings are problems that keep nobody from running it: no Severity is
	// Error.
	Warnings []Problem
}

// Configured tells whether there is anything to do: a service, a cluster or a fleet.
func (c *Config) Configured() bool {
	return len(c.Services) > 0 || len(c.Clusters) > 0 || c.Fleet != nil
}

// Kernel is the table [kernel]: how weir keeps its state in the kernel.
type Kernel struct {
	Mode Mode
	// NamePrefix begins the names of all sets and chains; Device holds the VIPs.
	NamePrefix string
	Device     string
	IPTables   IPTables
	Families   []lb.Family
	// MasqueradeBit marks packets to masquerade: see Mark.
	MasqueradeBit int
	MasqueradeAll bool
	// MasqueradeSource are what masqueraded connections bear instead of an address of
	// this box, at most one of each family; in a fleet the owner of everything has them.
	MasqueradeSource []netip.Addr
	// SloppyTCP makes connections of packets that do not begin one: those of a box that
	// is gone.
	SloppyTCP bool
	// DetectLocal says how packets of pods are known: by ClusterCIDRs, by the
	// ranges of the box's own Node, by BridgeInterface or by InterfacePrefix.
	DetectLocal     DetectLocal
	ClusterCIDRs    []netip.Prefix
	BridgeInterface string
	InterfacePrefix string
	// NodePortNets are where node ports are served; a family without one has them
	// on all its addresses. NodePortPrimary is instead of any: those of the Node.
	NodePortNets    []netip.Prefix
	NodePortPrimary bool
	// StrictARP are interfaces that answer ARP for their own addresses alone; Base
	// has the parameters for it.
	StrictARP []string
	// Sysctls are kernel parameters that the operator wants; Base has them too.
	Sysctls      []lb.Sysctl
	ExcludeCIDRs []netip.Prefix
	// Pools are the prefixes that are made local by one route each (vip_mode
	// "route"); none means that each VIP is an address on Device.
	Pools []lb.PoolRoute
	// Ping lets VIPs answer echo requests.
	Ping bool
	// SyncPeriod is the time between two audits of the whole kernel state,
	// MinSyncPeriod the least time between two writes.
	SyncPeriod, MinSyncPeriod time.Duration
	// The timeouts of IPVS connections; 0 leaves the kernel's own.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
	ManageSysctls                         bool
}

// Mark is the packet mark for masquerading, and the mask to match it with.
func (k Kernel) Mark() uint32 { return 1 << k.MasqueradeBit }

// Base is what lb wants in the kernel before any Service.
func (k Kernel) Base() lb.Base {
	b := lb.Base{Device: k.Device, Families: k.Families, Sources: k.MasqueradeSource}
	if k.ManageSysctls {
		b.Sysctls = slices.Concat(lb.Sysctls(k.Families), lb.TakeoverSysctls(k.SloppyTCP, false), arpSysctls(k.StrictARP), k.Sysctls)
	}
	return b
}

// Base is that of the table [kernel], with what the fleet needs in the kernel.
func (c *Config) Base() lb.Base {
	b := c.Kernel.Base()
	b.Sync = c.Sync().Daemons()
	if c.Kernel.ManageSysctls {
		b.Sysctls = append(b.Sysctls, lb.TakeoverSysctls(false, c.Sync() != nil)...)
	}
	return b
}

// Mode says what balances.
type Mode string

// The values of mode.
const (
	ModeAuto     Mode = "auto"
	ModeIPVS     Mode = "ipvs"
	ModeIPTables Mode = "iptables"
)

// DetectLocal says how packets of pods are known.
type DetectLocal string

// The values of detect_local.
const (
	ClusterCIDR     DetectLocal = "cluster-cidr"
	NodeCIDR        DetectLocal = "node-cidr"
	BridgeInterface DetectLocal = "bridge-interface"
	InterfacePrefix DetectLocal = "interface-prefix"
)

// IPTables says which iptables programs to use.
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
	// Listen is where HTTP answers (/metrics, /healthz, /livez); empty is nowhere.
	Listen    string
	LogLevel  slog.Level
	LogFormat LogFormat
	OnStop    OnStop
	// StopTimeout is how long a drain before a stop may take.
	StopTimeout time.Duration
	// StateDir is the folder for what a restart must find again.
	StateDir string
}

// LogFormat is how log lines are written.
type LogFormat string

// The values of log_format.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// OnStop says what a stop of the daemon does, which a restart is not.
type OnStop string

// The values of on_stop.
const (
	StopKeeps    OnStop = "keep"
	StopDrains   OnStop = "drain"
	StopCleansUp OnStop = "cleanup" // drains, too
)

// Defaults is the table [defaults]: what a Service gets that does not say
// otherwise, whatever its source.
type Defaults struct {
	Scheduler lb.Scheduler
	Drain     time.Duration
}

// restart are the keys that a running daemon can't change, in the order of the
// schema; of bgp only whether it is there.
var restart = []struct {
	key  string
	same func(a, b *Config) bool
}{
	{"kernel.mode", func(a, b *Config) bool { return a.Kernel.Mode == b.Kernel.Mode }},
	{"kernel.name_prefix", func(a, b *Config) bool { return a.Kernel.NamePrefix == b.Kernel.NamePrefix }},
	{"kernel.device", func(a, b *Config) bool { return a.Kernel.Device == b.Kernel.Device }},
	{"kernel.iptables", func(a, b *Config) bool { return a.Kernel.IPTables == b.Kernel.IPTables }},
	{"kernel.families", func(a, b *Config) bool { return slices.Equal(a.Kernel.Families, b.Kernel.Families) }},
	{"kernel.masquerade_bit", func(a, b *Config) bool { return a.Kernel.MasqueradeBit == b.Kernel.MasqueradeBit }},
	{"daemon.socket", func(a, b *Config) bool { return a.Daemon.Socket == b.Daemon.Socket }},
	{"daemon.listen", func(a, b *Config) bool { return a.Daemon.Listen == b.Daemon.Listen }},
	{"daemon.log_format", func(a, b *Config) bool { return a.Daemon.LogFormat == b.Daemon.LogFormat }},
	{"bgp", func(a, b *Config) bool { return (a.BGP == nil) == (b.BGP == nil) }},
}

// RestartNeeded gives the keys that differ between two configurations and that
// only a restart brings into effect, in the order of the schema.
func RestartNeeded(running, wanted *Config) []string {
	var keys []string
	for _, r := range restart {
		if !r.same(running, wanted) {
			keys = append(keys, r.key)
		}
	}
	return keys
}
