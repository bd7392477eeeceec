package doctor

import (
	"net/netip"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/linux"
)

// Part is a part of Facts that is gathered, or missing, as a whole. Its name is for
// sentences: "the rules can't be looked at".
type Part string

// The parts.
const (
	Configuration Part = "the configuration"
	Daemon        Part = "the daemon"
	Modules       Part = "the kernel's modules"
	Sysctls       Part = "the kernel's parameters"
	SysctlFiles   Part = "the files of sysctl.d"
	Conntrack     Part = "conntrack"
	Rules         Part = "the firewall's rules"
	Sockets       Part = "the sockets of this box"
	Processes     Part = "the processes of this box"
	Network       Part = "links and addresses"
	Ways          Part = "the ways to backends"
	Speakers      Part = "BGP peers"
	Members       Part = "members"
	APIs          Part = "API servers"
	Clock         Part = "the clock"
	System        Part = "the unit"
	Files         Part = "files"
)

// Facts are all that is known of a box. The zero value of a part that is Missing means
// nothing.
type Facts struct {
	// Missing says of each part that could not be looked at why.
	Missing map[Part]string

	// Config is nil if there is no valid one: Problems then say why. ConfigFile is its name.
	Config     *config.Config
	ConfigFile string
	Problems   []config.Problem

	// Running is the daemon's Status, nil if none answers; NotRunning is why.
	Running    *status.Status
	NotRunning string
	Neighbors  status.Neighbors
	Fleet      status.Members
	Services   status.Services
	Now        time.Time
	// Version is that of the program that asks; empty is not known.
	Version string

	Kernel      Kernel
	Sysctls     map[string]string // by name, as sysctl(8) has it
	SysctlFiles []SysctlLine
	Conntrack   ConntrackFacts
	Tables      []linux.Tables
	NFTables    []NFChain
	Sockets     []Socket
	Processes   []Process
	Network     NetworkFacts
	Ways        []Way
	Speakers    []Answer
	Members     []Answer
	APIs        []API
	Clock       ClockFacts
	System      SystemFacts
	Files       []FileFact
	Disk        DiskFacts
	Memory      MemoryFacts
}

// Kernel is the running kernel. Modules are those that weir needs, by name.
type Kernel struct {
	Release string
	Modules map[string]ModuleState
	// IPVS tells that it has IPVS now.
	IPVS bool
	// IPVSBuckets is the size of IPVS's connection table, IPVSConns what it holds.
	IPVSBuckets, IPVSConns int
}

// ModuleState says where a module is.
type ModuleState string

// The states of a module.
const (
	Loaded   ModuleState = "loaded" // or built in
	Loadable ModuleState = "loadable"
	Absent   ModuleState = "absent"
	// Hidden: not loaded, and there is no list of what is built in or can be loaded.
	Hidden ModuleState = "hidden"
)

// SysctlLine is one parameter in a file that is read when the box starts.
type SysctlLine struct {
	File, Name, Value string
	Line              int
}

// ConntrackFacts is how full the table of connections is. The counters are since the
// start of the kernel, Growing those of the last second.
type ConntrackFacts struct {
	Count, Max, Buckets int
	Dropped, Growing    uint64
}

// NFChain is a base chain of nf_tables that iptables has not made. Drops tells that it
// may drop or reject.
type NFChain struct {
	Table, Name, Hook string
	PolicyDrop, Drops bool
}

// Socket is one that listens. PID and Process are 0 and empty where they can't be known.
type Socket struct {
	Proto   lb.Protocol
	Addr    netip.AddrPort
	PID     int
	Process string
}

// Process is one that has to do with what weir does: kube-proxy, keepalived, kube-router.
type Process struct {
	PID  int
	Name string
}

// NetworkFacts are links, addresses and default routes.
type NetworkFacts struct {
	Links []Link
	// Neighbors are those that do not answer.
	Neighbors []Neighbor
	// Doors are the interfaces by which clients and routers come, as far as it is known:
	// where BGP peers and the default gateway are, and those of [l2].
	Doors []string
	// DefaultByRA tells that the IPv6 default route is from router advertisements, and on
	// which interface.
	DefaultByRA string
	// SoftDrops are packets that the kernel had no time for in the last second.
	SoftDrops uint64
	// RPFiltered are the packets that rp_filter has dropped since the start.
	RPFiltered uint64
}

// Link is an interface.
type Link struct {
	Name, Kind string
	MTU        int
	Up, LRO    bool
	Addrs      []netip.Prefix
	// Dropped are packets lost in the last second.
	Dropped uint64
}

// Neighbor is an address on a link that does not answer.
type Neighbor struct {
	Addr      netip.Addr
	Interface string
}

// Way is how packets go to a backend.
type Way struct {
	Backend   netip.Addr
	Interface string
	Gateway   netip.Addr // zero: on the link itself
	MTU       int        // of the route, or else of the interface
	// Local tells that it is an address of this box; Error why there is no way.
	Local bool
	Error string
	// Keep tells that it sees clients' addresses, so that its replies must come back here.
	Keep bool
	// Small and Large tell whether it answered an echo request of few bytes, and one that
	// fills MTU and may not be fragmented; Probed, that it was asked.
	Probed, Small, Large bool
}

// Answer is whether somebody takes a TCP connection.
type Answer struct {
	Name string
	Addr netip.AddrPort
	// Interface is by which it is reached, and so by which it comes; empty is not known.
	Interface string
	// Error is empty if it does; Refused tells that it says no, and not nothing.
	Error   string
	Refused bool
	// Asked tells that it was: nobody connects to a passive peer.
	Asked bool
}

// API is an API server. Skew is how far this box's clock is ahead of its.
type API struct {
	Cluster, URL, Error string
	Skew                time.Duration
	HasDate             bool
}

// ClockFacts tells whether something keeps the clock right.
type ClockFacts struct{ Synchronized bool }

// SystemFacts is what systemd says of weir's unit. Booted is false where systemd is not
// PID 1.
type SystemFacts struct {
	Booted          bool
	Enabled, Active string // as systemctl is-enabled and is-active have it
	Networkd        bool   // systemd-networkd runs
	NetworkdKeeps   bool   // and leaves others' routes alone
	OpenFiles, Most int    // of the daemon: open, and the limit; 0 without one
}

// FileFact is a file that the daemon must read, or a folder that it must write.
type FileFact struct {
	Name string
	// Key is what names it in the configuration.
	Key   string
	Error string // why it can't, for the user that the daemon is; User is its name
	User  string
	Write bool
}

// DiskFacts is the file system of daemon.state_dir, in percent of it.
type DiskFacts struct {
	Dir                  string
	FreeSpace, FreeFiles int
}

// MemoryFacts is the box's memory, in MiB.
type MemoryFacts struct{ Total, Available int }
