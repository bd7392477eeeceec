// Package facts holds the facts about a box that weir doctor judges. It never gathers or
// judges them.
package facts

import (
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/lb"
	"weir/lb/linux"
)

// Part is a part of Facts that is gathered or missing as a whole. Its name is used in
// sentences.
type Part string

// The parts.
const (
	Configuration Part = "the configuration"
	Daemon        Part = "the daemon"
	Modules       Part = "the kernel's modules"
	Sysctls       Part = "the kernel's parameters"
	SysctlFiles   Part = "the files of sysctl.d"
	Conntrack     Part = "conntrack"
	ConntrackStat Part = "the statistics of conntrack"
	Rules         Part = "the firewall's rules"
	NFRules       Part = "the tables of nf_tables"
	Sockets       Part = "the sockets of this box"
	Processes     Part = "the processes of this box"
	Network       Part = "links and addresses"
	Ways          Part = "the routes to backends"
	Speakers      Part = "BGP peers"
	Members       Part = "members"
	APIs          Part = "API servers"
	Clock         Part = "the clock"
	System        Part = "the unit"
	Files         Part = "files"
)

// NoFile is the error of a missing file.
const NoFile = "there is no such file"

// Unit is the name of weir's unit and process.
const Unit = "weir"

// Facts are the known facts of a box. A part that is Missing has no meaning.
type Facts struct {
	// Missing are the reasons why parts could not be gathered.
	Missing map[Part]string

	// Config is nil if it is not valid: see Problems. ConfigFile is its name.
	Config     *config.Config
	ConfigFile string
	Problems   []source.Problem

	// Running is the Status of the daemon; nil with the reason NotRunning, with NoAccess if another user may
	// ask for it, or if the daemon hangs.
	Running    *status.Status
	NotRunning string
	NoAccess   bool
	Neighbors  routing.Neighbors
	Fleet      status.Members
	Services   status.Services
	Now        time.Time
	// Version is the version of this program; empty if not known.
	Version string

	Kernel      Kernel
	Sysctls     map[string]string // by name as in sysctl(8)
	SysctlFiles []SysctlLine
	Conntrack   ConntrackFacts
	Tables      []linux.Tables
	NFTables    []NFTable
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

// Kernel is the running kernel with the modules that weir needs, by name.
type Kernel struct {
	Release string
	Modules map[string]ModuleState
	// IPVS is set if IPVS is loaded.
	IPVS bool
	// NFTables is set if it can do all that weir needs of nf_tables.
	NFTables bool
	// Refusal is why nftables can't have the rules, or must not with rules = "auto"; empty if that is not known.
	Refusal string
	// Untried is set if the kernel did not examine the rules: only root may ask for that.
	Untried bool
	// IPVSBuckets is the size of the connection table of IPVS, IPVSConns its entries.
	IPVSBuckets, IPVSConns int
}

// ModuleState is the state of a module.
type ModuleState string

// The states of a module.
const (
	Loaded   ModuleState = "loaded" // or built in
	Loadable ModuleState = "loadable"
	Absent   ModuleState = "absent"
	// Hidden: not loaded, and the list of modules is missing.
	Hidden ModuleState = "hidden"
)

// SysctlLine is one parameter in a file that is read at boot.
type SysctlLine struct {
	File, Name, Value string
	Line              int
}

// ConntrackFacts is the use of the connection table. Dropped counts since boot, Growing
// in the last second.
type ConntrackFacts struct {
	Count, Max, Buckets int
	Dropped, Growing    uint64
}

// NFTable is a table of nf_tables that another program than weir has made, or iptables-nft.
type NFTable struct {
	Family, Name string // "inet", "firewalld"
	// Hooks are the base chains that packets of the box meet, by the name of the chain in iptables:
	// PREROUTING, INPUT, FORWARD or OUTPUT.
	Hooks []NFHook
	// Sets is set if its rules have sets. Those of iptables have none, and iptables-nft-save leaves them out.
	Sets bool
	// Unread is set if its rules are not known, for lack of the program nft.
	Unread bool
	// Rules are all chains. They have the words of iptables, so that both are followed in the same way:
	// their table is "filter", and a match without such words is NoWords.
	Rules linux.Tables
	// Numbers has the number of each of the Rules, by chain. nft counts its own rules, and one of them may
	// have several Rules or none.
	Numbers map[string][]int
}

// NFHook is a base chain at a hook.
type NFHook struct {
	Hook, Chain string
	Type        string // "filter", "route"
	Priority    int    // those of lower ones come first
}

// Stateless reports whether packets meet the chain before conntrack knows their state: NF_IP_PRI_CONNTRACK in
// include/uapi/linux/netfilter_ipv4.h. Those of IPVS come to OUTPUT with the state of PREROUTING.
func (h NFHook) Stateless() bool { return h.Hook == "PREROUTING" && h.Priority <= -200 }

// NoWords is an option of a rule that stands for a match that weir doctor can't follow.
const NoWords = "--unknown"

// String is the name of the table in the commands of nft.
func (t NFTable) String() string { return t.Family + " " + t.Name }

// Has reports whether packets of a family meet the table.
func (t NFTable) Has(f lb.Family) bool {
	return t.Family == "inet" || (t.Family == "ip") == (f == lb.IPv4)
}

// savedPriorities are those of the chains that iptables-nft-save prints. For another one with the name of such a chain
// it prints an empty chain.
var savedPriorities = map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 150}

// SavedByIPTables reports whether a chain is among the rules of iptables, which has its own check. One that
// iptables-nft-save can't print is not, nor is any without iptables.
func (t NFTable) SavedByIPTables(h NFHook, of []linux.Tables) bool {
	kind := "filter"
	if t.Name == "mangle" && h.Hook == "OUTPUT" {
		kind = "route"
	}
	if priority, ok := savedPriorities[t.Name]; !ok || h.Priority != priority || h.Type != kind || h.Chain != h.Hook {
		return false
	}
	return slices.ContainsFunc(of, func(x linux.Tables) bool {
		_, saved := x.Find(t.Name, h.Chain)
		return saved && !t.Sets && t.isOf(x)
	})
}

// isOf reports whether iptables-nft-save prints the table, or tries to, among x.
func (t NFTable) isOf(x linux.Tables) bool {
	return x.Backend == linux.NFT && t.Family != "inet" && t.Has(x.Family)
}

// Misprinted reports whether the table is the one of x with that name, and iptables-nft-save prints it without its sets.
func (t NFTable) Misprinted(x linux.Tables, name string) bool {
	return t.Sets && t.Name == name && t.isOf(x)
}

// Socket is a listening socket. PID and Process are zero if they are not known.
type Socket struct {
	Proto   lb.Protocol
	Addr    netip.AddrPort
	PID     int
	Process string
}

// Process is a related program: kube-proxy, keepalived, kube-router.
type Process struct {
	PID  int
	Name string
}

// NetworkFacts are links, addresses and default routes.
type NetworkFacts struct {
	Links []Link
	// Neighbors are the neighbors that do not answer.
	Neighbors []Neighbor
	// Uplinks are the interfaces of BGP peers, of the default gateway and of [l2].
	Uplinks []string
	// DefaultByRA is the interface of an IPv6 default route from router advertisements.
	DefaultByRA string
	// SoftDrops are packets dropped by processors in the last second.
	SoftDrops uint64
	// RPFiltered are packets dropped by rp_filter since boot, RPGrowing in the last second.
	RPFiltered, RPGrowing uint64
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

// Way is the route to a backend.
type Way struct {
	Backend   netip.Addr
	Interface string
	Gateway   netip.Addr // zero: on the link itself
	MTU       int        // of the route, or else of the interface
	// Local is set for an address of this box; Error is the reason without a route.
	Local bool
	Error string
	// Keep is set if it sees addresses of clients, so that replies must return here. Direct is set
	// if it gets packets to the VIP unchanged, by its link address.
	Keep, Direct bool
	// Small and Large are set if it answered a small echo request, and one of the size of
	// MTU that must not be fragmented; Probed, if it was probed.
	Probed, Small, Large bool
}

// Answer is the result of a TCP connection to a host.
type Answer struct {
	Name string
	Addr netip.AddrPort
	// Interface is the interface of its route; empty if not known.
	Interface string
	// Error is empty on success; Refused is set if the host refused it.
	Error   string
	Refused bool
	// Asked is set if it was tried; passive peers are not tried.
	Asked bool
}

// API is an API server. Skew is the lead of this box's clock.
type API struct {
	Cluster, URL, Error string
	Skew                time.Duration
	HasDate             bool
}

// ClockFacts is the state of the clock.
type ClockFacts struct{ Synchronized bool }

// SystemFacts is the state of weir's unit in systemd. Booted is false where systemd is
// not PID 1.
type SystemFacts struct {
	Booted          bool
	Enabled, Active string // as in systemctl is-enabled and is-active
	Networkd        bool   // systemd-networkd is running
	NetworkdKeeps   bool   // and keeps foreign routes
	OpenFiles, Most int    // of the daemon: open, and the limit; 0 without one
}

// FileFact is a file that the daemon must read, or a folder that it must write.
type FileFact struct {
	Name string
	// Key is its key in the configuration.
	Key   string
	Error string // for the user of the daemon; User is its name
	User  string
	Write bool
}

// DiskFacts is the file system of daemon.state_dir, in percent of it.
type DiskFacts struct {
	Dir                  string
	FreeSpace, FreeFiles int
}

// MemoryFacts is the memory of the box, in MiB.
type MemoryFacts struct{ Total, Available int }
