package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// A box of everything, so that every check applies to it.
const everything = `
[kernel]
vip_mode = "route"
route_pools = ["192.0.2.0/24"]
[[service]]
name = "web"
vips = ["192.0.2.10"]
ports = [80]
backends = ["10.2.0.11"]
source_address = "keep"
[bgp]
asn = 65001
[[bgp.peer]]
name = "tor1"
address = "10.1.0.254"
asn = 65000
bfd = true
[fleet]
name = "edge"
member = "box1"
advertise = "10.1.0.1"
join = ["10.1.0.2"]
insecure_without_key = true
[l2]
interfaces = ["front"]
[[kubernetes]]
name = "prod"
kubeconfig = "/nowhere/kubeconfig"
node_name = "box1"
`

func parse(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := load.Parse("weir.toml", []byte(text), source.Disk{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// checkedVIPs is a Service with checks of VIPs at a backend.
func checkedVIPs(backend string) lb.Service {
	be := lb.Backend{Addr: netip.AddrPortFrom(netip.MustParseAddr(backend), 80), Forward: lb.DirectRouting}
	return lb.Service{CheckVIPs: true, Ports: []lb.Port{{Port: 80, Backends: []lb.Backend{be}}}}
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// healthy are facts in which nothing is wrong.
func healthy(t testing.TB) facts.Facts {
	t.Helper()
	f := facts.Facts{
		Missing: map[facts.Part]string{}, Config: parse(t, everything), ConfigFile: "weir.toml", Now: now, Version: "1.0",
		Running: &status.Status{State: status.OK, Version: "1.0", PID: 7, Kernel: status.Kernel{Mode: "ipvs", Rules: "iptables-nft", LastAudit: now.Add(-time.Second)}},
		Neighbors: routing.Neighbors{ASN: 65001, Neighbors: []routing.Neighbor{
			{Name: "tor1", State: routing.Established, Hold: 9, BFD: &routing.BFD{State: "up"}}}},
		Fleet: status.Members{Members: []status.Member{{Name: "box2", Life: "alive"}}},
		Services: status.Services{Frontends: []status.Frontend{{
			Service: "static/web", Kind: "LoadBalancer", Address: "192.0.2.10", Port: 80, Protocol: "TCP",
			Servers: []status.Server{{Address: "10.2.0.11:80"}},
		}, {Service: "prod/a/b", Kind: lb.NodePort.String(), Address: "10.1.0.1", Port: 30080, Protocol: "TCP"}}},
		Kernel:      facts.Kernel{Release: "6.1.0-1-amd64", IPVS: true, IPVSBuckets: 4096, IPVSConns: 100, Modules: map[string]facts.ModuleState{}},
		Sysctls:     map[string]string{"net.bridge.bridge-nf-call-iptables": "1", "net.ipv4.vs.conn_reuse_mode": "1"},
		Conntrack:   facts.ConntrackFacts{Count: 1000, Max: 262144, Buckets: 65536},
		Sockets:     []facts.Socket{{Proto: lb.TCP, Addr: netip.MustParseAddrPort("0.0.0.0:179"), PID: 7, Process: "weir"}, {Proto: lb.TCP, Addr: netip.MustParseAddrPort("0.0.0.0:80"), PID: 8, Process: "nginx"}},
		Network:     facts.NetworkFacts{Uplinks: []string{"front"}, Links: []facts.Link{link("back", "10.2.0.1/24"), link("cni0", "10.3.0.1/24"), link("front", "10.1.0.1/24"), link("kube-ipvs0", "192.0.2.10/32")}},
		Ways:        []facts.Way{{Backend: netip.MustParseAddr("10.2.0.11"), Interface: "back", MTU: 1500, Keep: true, Probed: true, Small: true, Large: true}},
		Speakers:    []facts.Answer{{Name: "tor1", Addr: netip.MustParseAddrPort("10.1.0.254:179"), Asked: true}},
		Members:     []facts.Answer{{Name: "box2", Addr: netip.MustParseAddrPort("10.1.0.2:7946"), Asked: true}},
		APIs:        []facts.API{{Cluster: "prod", URL: "https://10.9.0.1:6443", HasDate: true, Skew: time.Second}},
		Clock:       facts.ClockFacts{Synchronized: true},
		System:      facts.SystemFacts{Booted: true, Enabled: "enabled", Active: "active", Networkd: true, NetworkdKeeps: true, OpenFiles: 50, Most: 1000},
		Files:       []facts.FileFact{{Name: "/etc/weir/weir.toml", Key: "the configuration", User: "weir"}},
		Disk:        facts.DiskFacts{Dir: "/var/lib/weir", FreeSpace: 50, FreeFiles: 90},
		Memory:      facts.MemoryFacts{Total: 2000, Available: 1000},
		Tables:      []linux.Tables{tables(linux.Legacy, weirRules)},
		SysctlFiles: []facts.SysctlLine{{File: "/etc/sysctl.d/a.conf", Name: "net.ipv4.ip_forward", Value: "1", Line: 1}},
	}
	f.Network.Links[1].Kind = "bridge"
	for _, m := range linux.Modules(linux.Config{Decapsulates: true}, []string{"rr", "wrr", "mh", "wlc"}) {
		f.Kernel.Modules[m] = facts.Loaded
	}
	for _, s := range (box{f}).neededSysctls() {
		f.Sysctls[s.Name] = s.Value
	}
	return f
}

func link(name, addr string) facts.Link {
	return facts.Link{Name: name, MTU: 1500, Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}
}

// weirRules is what weir's part of the filter table is like.
const weirRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -m comment --comment "weir: access to service addresses" -j KUBE-IPVS-FILTER
-A FORWARD -m comment --comment "weir: replies of backends" -j KUBE-FORWARD
-A KUBE-IPVS-FILTER -m set --match-set KUBE-IPVS-PORTS dst,dst -j ACCEPT
-A KUBE-FORWARD -m connmark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
`

func tables(b linux.Backend, text string) linux.Tables {
	return linux.Tables{Backend: b, Family: lb.IPv4, Chains: linux.ParseTables(text)}
}

// nfTable is a table of nf_tables with a base chain for what comes in.
func nfTable(family, name, base, rules string) facts.NFTable {
	t := facts.NFTable{
		Family: family, Name: name, Hooks: []facts.NFHook{{Hook: "INPUT", Chain: base, Type: "filter"}},
		Rules:   linux.Tables{Chains: linux.ParseTables("*filter\n" + rules + "COMMIT\n")},
		Numbers: map[string][]int{},
	}
	for _, c := range t.Rules.Chains {
		for i := range c.Rules {
			t.Numbers[c.Name] = append(t.Numbers[c.Name], i+1)
		}
	}
	return t
}

// preroutingTable is a table with base chain pre, which packets meet before their routes are known.
func preroutingTable(priority int, rules string) facts.NFTable {
	t := nfTable("inet", "mine", "pre", rules)
	t.Hooks[0].Hook, t.Hooks[0].Priority = "PREROUTING", priority
	return t
}

// rawOfNFT is the line of iptables-nft-save about a table that only nft can print.
const rawOfNFT = "# Table `raw' is incompatible, use 'nft' tool.\n"

// ofIPTables is a table with a name and a chain as iptables-nft has them.
func ofIPTables(name string, priority int, rules string) facts.NFTable {
	t := nfTable("ip", name, "PREROUTING", rules)
	t.Hooks[0].Hook, t.Hooks[0].Priority = "PREROUTING", priority
	return t
}

// A table that iptables-nft-save prints is judged as one of iptables, any other one as a table of nft.
func TestEachTableIsJudgedOnce(t *testing.T) {
	for _, name := range []string{"raw", "mangle"} {
		drops := ofIPTables(name, priorities[name], ":PREROUTING ACCEPT\n-A PREROUTING -p tcp --dports 80 -j DROP\n")
		later, other, sets := drops, drops, drops
		later.Hooks = []facts.NFHook{{Hook: "PREROUTING", Chain: "PREROUTING", Type: "filter", Priority: priorities[name] + 1}}
		other.Hooks = []facts.NFHook{{Hook: "PREROUTING", Chain: "PREROUTING", Type: "route", Priority: priorities[name]}}
		sets.Sets = true
		empty := "*" + name + "\n:PREROUTING ACCEPT [0:0]\n"
		printed := empty + "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n"
		for _, tt := range []struct {
			saved, by string
			backend   linux.Backend
			drops     facts.NFTable
		}{
			{printed, "firewall", linux.NFT, drops},
			{strings.Replace(rawOfNFT, "raw", name, 1), "nftables", linux.NFT, drops},
			{"", "nftables", linux.Legacy, drops},
			{empty + "COMMIT\n", "nftables", linux.NFT, later}, // an empty chain in place of that one
			{empty + "COMMIT\n", "nftables", linux.NFT, other},
			{empty + "-A PREROUTING -p tcp -j ACCEPT\nCOMMIT\n", "nftables", linux.NFT, sets}, // without a set of ports
			{empty + "-A PREROUTING -j DROP\nCOMMIT\n", "nftables", linux.NFT, sets},
		} {
			f := healthy(t)
			f.Tables = []linux.Tables{tables(tt.backend, tt.saved+weirRules)}
			f.NFTables = []facts.NFTable{tt.drops}
			var got []string
			for _, x := range Judge(f, "firewall", "nftables").Findings {
				if x.Severity != Passed {
					got = append(got, x.ID)
				}
			}
			if !slices.Equal(got, []string{tt.by}) {
				t.Errorf("table %s, %q: reported by %v; want %s", name, tt.saved, got, tt.by)
			}
		}
	}
}

func TestNothingIsFoundOfAHealthyBox(t *testing.T) {
	r := Judge(healthy(t))
	if !r.OK() || r.Unknown > 0 || r.Passed < len(Checks())-1 { // conn-reuse is only for old kernels
		t.Errorf("%s: %+v", r.Line(), r.Findings)
	}
	for _, x := range r.Findings {
		if x.Severity != Passed {
			t.Errorf("%+v", x)
		}
	}
}

// ill is a box with one thing wrong, and the expected findings.
type ill struct {
	check    string
	severity Severity
	what     string // a part of it
	command  string // a part of it; empty: there is none
	with     func(*facts.Facts)
}

var ills = slices.Concat(daemonIlls, kernelIlls, firewallIlls, networkIlls, peerIlls)

var daemonIlls = []ill{
	{"config", Error, "weir.toml:3: kernel.modus: there is no such key", "", func(f *facts.Facts) {
		f.Config, f.Missing[facts.Configuration] = nil, "invalid"
		f.Problems = []source.Problem{{Severity: source.Error, File: "weir.toml", Line: 3, Key: "kernel.modus", Text: "there is no such key", Suggestion: "did you mean mode?"}}
	}},
	{"config", Warning, "valid, and odd", "", func(f *facts.Facts) {
		f.Problems = []source.Problem{{Severity: source.Warning, Text: "valid, and odd"}}
	}},
	{"running", Error, "weir is not running", "systemctl start weir", notThere},
	{"running", Error, "systemd reports that it failed", "systemctl start weir", func(f *facts.Facts) { notThere(f); f.System.Active = "failed" }},
	{"running", Error, "weir is not running", "", func(f *facts.Facts) { notThere(f); f.System = facts.SystemFacts{} }},
	{"running", Info, "there is nothing to serve yet", "", func(f *facts.Facts) { notThere(f); f.Config = &config.Config{} }},
	{"running", Unknown, "did not answer: no access", "", func(f *facts.Facts) { f.Running, f.NoAccess, f.Missing[facts.Daemon] = nil, true, "no access" }},
	{"running", Warning, "did not answer: it takes longer than 4s", "systemctl restart weir", func(f *facts.Facts) { f.Running, f.Missing[facts.Daemon] = nil, "it takes longer than 4s" }},
	{"running", Error, "weir is not running", "", func(f *facts.Facts) {
		notThere(f)
		f.System, f.Missing[facts.System] = facts.SystemFacts{}, "systemctl failed"
	}},
	{"status", Warning, "3 of 4 backends are down", "", func(f *facts.Facts) {
		f.Running.State, f.Running.Problems = status.Degraded, []status.Problem{{Text: "3 of 4 backends are down"}}
	}},
	{"status", Error, "the kernel can't be read", "", func(f *facts.Facts) {
		f.Running.State, f.Running.Problems = status.Failed, []status.Problem{{Text: "the kernel can't be read"}}
	}},
	{"audit", Error, "was 1h0m0s ago", "systemctl restart weir", func(f *facts.Facts) { f.Running.Kernel.LastAudit = now.Add(-time.Hour) }},
	{"version", Warning, "version 0.9 is running, and 1.0 is installed", "systemctl restart weir", func(f *facts.Facts) { f.Running.Version = "0.9" }},
	{"unit", Warning, "not enabled", "systemctl enable weir", func(f *facts.Facts) { f.System.Enabled = "disabled" }},
	{"unit", Warning, "masked", "systemctl unmask weir && systemctl enable weir", func(f *facts.Facts) { f.System.Enabled = "masked" }},
	{"files", Error, "(user weir) can't read /root/key (fleet.keys): mode 0600, owner 0:0", "chown weir /root/key", func(f *facts.Facts) {
		f.Files = []facts.FileFact{{Name: "/root/key", Key: "fleet.keys", User: "weir", Error: "mode 0600, owner 0:0"}}
	}},
	{"files", Error, "can't write to /var/lib/weir", "install -d -o weir -m 0750 /var/lib/weir", func(f *facts.Facts) {
		f.Files = []facts.FileFact{{Name: "/var/lib/weir", Key: "daemon.state_dir", User: "weir", Error: "its file system is read-only", Write: true}}
	}},
	{"files", Error, "there is no such file", "", func(f *facts.Facts) {
		f.Files = []facts.FileFact{{Name: "/x/kubeconfig", Key: "kubernetes.prod.kubeconfig", User: "weir", Error: facts.NoFile}}
	}},
	{"files", Error, "(the configuration)", "chmod a+r /etc/weir/a.toml && chmod a+x /etc/weir", func(f *facts.Facts) {
		f.Files = []facts.FileFact{{Name: "/etc/weir/a.toml", Key: "the configuration", User: "weir", Error: "mode 0600, owner 0:0"}}
	}},
	{"disk", Warning, "3% of the space", "", func(f *facts.Facts) { f.Disk.FreeSpace = 3 }},
	{"disk", Error, "0% of the inodes", "", func(f *facts.Facts) { f.Disk.FreeFiles = 0 }},
	{"open-files", Warning, "900 files and connections open, of at most 1000", "LimitNOFILE", func(f *facts.Facts) { f.System.OpenFiles = 900 }},
	{"memory", Warning, "90 of 2000 MiB", "", func(f *facts.Facts) { f.Memory.Available = 90 }},
	{"clock", Warning, "is not synchronized", "timedatectl set-ntp true", func(f *facts.Facts) { f.Clock.Synchronized = false }},
	{"clock", Info, "is not synchronized", "timedatectl set-ntp true", func(f *facts.Facts) { f.Clock.Synchronized, f.APIs = false, nil }},
	{"clock-skew", Warning, "1m0s behind that of cluster prod", "timedatectl", func(f *facts.Facts) { f.APIs[0].Skew = -time.Minute }},
	{"clock-skew", Error, "10m0s ahead of", "timedatectl", func(f *facts.Facts) { f.APIs[0].Skew = 10 * time.Minute }},
}

func notThere(f *facts.Facts) {
	f.Running, f.NotRunning, f.Missing[facts.Daemon] = nil, "weir is not running", "weir is not running"
}

const lacksNumgen = "support for random numbers (numgen) in nf_tables is missing: boot Linux 5.6 or later with CONFIG_NFT_NUMGEN"

var kernelIlls = []ill{
	{"kernel", Error, "older than 4.18", "", func(f *facts.Facts) { f.Kernel.Release = "3.10.0-1160.el7" }},
	{"kernel", Warning, "older than 5.9", "", func(f *facts.Facts) { f.Kernel.Release = "4.19.0-27-amd64" }},
	{"ipvs", Warning, "not loaded", "modprobe ip_vs && echo ip_vs >/etc/modules-load.d/weir-ip_vs.conf", func(f *facts.Facts) { f.Kernel.IPVS, f.Kernel.Modules["ip_vs"] = false, facts.Loadable }},
	{"ipvs", Warning, "fallback to mode netfilter", "", func(f *facts.Facts) { f.Kernel.IPVS, f.Kernel.Modules["ip_vs"] = false, facts.Absent }},
	{"ipvs", Error, "has no IPVS", "", func(f *facts.Facts) {
		f.Kernel.IPVS, f.Kernel.Modules["ip_vs"], f.Config.Kernel.Mode = false, facts.Absent, config.ModeIPVS
	}},
	{"modules", Error, "lacks ip_vs_mh", "modprobe -a ip_vs_mh", func(f *facts.Facts) {
		f.Config.Services[0].Scheduler.Name, f.Kernel.Modules["ip_vs_mh"] = "mh", facts.Absent
	}},
	{"modules", Error, "lacks xt_set", "modprobe -a xt_set", func(f *facts.Facts) { f.Kernel.Modules["xt_set"] = facts.Absent }},
	{"modules", Error, "lacks xt_TCPMSS", "modprobe -a xt_TCPMSS", func(f *facts.Facts) {
		f.Config.Kernel.DecapsulateFrom, f.Kernel.Modules["xt_TCPMSS"] = []netip.Addr{netip.MustParseAddr("10.1.0.9")}, facts.Absent
	}},
	{"modules", Unknown, "there is no /lib/modules/6.1.0-1-amd64", "", func(f *facts.Facts) { notThere(f); f.Kernel.Modules["xt_set"] = facts.Hidden }},
	{"rules", Passed, "iptables and ipset have the rules, not nftables: " + lacksNumgen, "", func(f *facts.Facts) { f.Running.Kernel.IPTablesReason = lacksNumgen }},
	{"rules", Passed, "weir selects iptables and ipset for its rules, not nftables: " + lacksNumgen, "", func(f *facts.Facts) { notThere(f); f.Kernel.Refusal = lacksNumgen }},
	{"rules", Error, "the kernel refuses weir's rules in nftables: " + lacksNumgen, "", func(f *facts.Facts) {
		f.Config.Kernel.Rules, f.Kernel.Refusal = config.RulesNFTables, lacksNumgen
	}},
	// A running weir has selected nftables before the reason came, or needs none: the configuration selects iptables.
	{"rules", Passed, "in nftables, or in iptables as configured", "", func(f *facts.Facts) { f.Kernel.Refusal = lacksNumgen }},
	{"rules", Passed, "in nftables, or in iptables as configured", "", func(f *facts.Facts) {
		notThere(f)
		f.Config.Kernel.Rules, f.Kernel.Refusal = config.RulesIPTables, lacksNumgen
	}},
	{"rules", Unknown, "can't be checked: only root may try", "", func(f *facts.Facts) { notThere(f); f.Kernel.Untried = true }},
	{"rules", Unknown, "can't be checked: only root may try", "", func(f *facts.Facts) {
		notThere(f)
		f.Config.Kernel.Rules, f.Kernel.Untried = config.RulesNFTables, true
	}},
	{"rules", Passed, "in nftables, or in iptables as configured", "", func(f *facts.Facts) { f.Kernel.Untried = true }}, // the daemon has tried
	{"rules", Passed, "in nftables, or in iptables as configured", "", func(f *facts.Facts) {
		notThere(f)
		f.Config.Kernel.Rules, f.Kernel.Untried = config.RulesIPTables, true
	}},
	{"ipvs-table", Warning, "100000 connections in 4096 buckets", "conn_tab_bits=20", func(f *facts.Facts) { f.Kernel.IPVSConns = 100000 }},
	{"conntrack-room", Warning, "has 90 of at most 100 connections (90%)", "nf_conntrack_max=262144", func(f *facts.Facts) { f.Conntrack.Count, f.Conntrack.Max = 90, 100 }},
	{"conntrack-room", Error, "(99%)", "nf_conntrack_max=1048544", func(f *facts.Facts) { f.Conntrack.Count = 262136 }},
	{"conntrack-drops", Error, "dropped 5 packets in one second", "nf_conntrack_max=524288", func(f *facts.Facts) { f.Conntrack.Growing, f.Conntrack.Dropped = 5, 9 }},
	{"conntrack-drops", Info, "9 packets since boot", "", func(f *facts.Facts) { f.Conntrack.Dropped = 9 }},
	{"conntrack-buckets", Warning, "64 buckets for 1000", "nf_conntrack_buckets=500", func(f *facts.Facts) { f.Conntrack.Buckets = 64 }},
	{"sysctl", Error, "net.ipv4.ip_forward is 0, and must be 1", "sysctl -w net.ipv4.ip_forward=1", func(f *facts.Facts) { f.Sysctls["net.ipv4.ip_forward"] = "0" }},
	{"sysctl", Error, "net.ipv4.conf.front.arp_ignore is 0", "sysctl -w net.ipv4.conf.front.arp_ignore=1", func(f *facts.Facts) { f.Sysctls["net.ipv4.conf.front.arp_ignore"] = "0" }},
	{"sysctl", Error, "net.ipv4.conf.all.accept_local is 0, and must be 1", "sysctl -w net.ipv4.conf.all.accept_local=1", func(f *facts.Facts) {
		f.Config.Services = append(f.Config.Services, checkedVIPs("10.2.0.11"))
		f.Sysctls["net.ipv4.conf.all.accept_local"] = "0"
	}},
	{"sysctl", Info, "net.ipv4.conf.all.accept_local is 1, and no check of a VIP needs it", "sysctl -w net.ipv4.conf.all.accept_local=0", func(f *facts.Facts) {
		f.Config.Services = append(f.Config.Services, checkedVIPs("fd00::1"))
		f.Sysctls["net.ipv4.conf.all.accept_local"] = "1"
	}},
	{"sysctl", Info, "net.ipv4.ip_forward is 0", "", func(f *facts.Facts) { notThere(f); f.Sysctls["net.ipv4.ip_forward"] = "0" }},
	{"sysctl-file", Warning, "/etc/sysctl.d/99.conf:2 sets net.ipv4.ip_forward to 0, and weir needs 1", "sed -i '2s/^/# /' /etc/sysctl.d/99.conf", func(f *facts.Facts) {
		f.SysctlFiles = append(f.SysctlFiles, facts.SysctlLine{File: "/etc/sysctl.d/99.conf", Name: "net.ipv4.ip_forward", Value: "0", Line: 2})
	}},
	{"conn-reuse", Warning, "is not 0", "sysctl -w net.ipv4.vs.conn_reuse_mode=0", func(f *facts.Facts) { f.Kernel.Release = "5.4.0-150-generic" }},
	{"rp-filter", Warning, "strict on front, one of several uplinks (back, front)", "sysctl -w net.ipv4.conf.front.rp_filter=2", func(f *facts.Facts) {
		f.Network.Uplinks, f.Sysctls["net.ipv4.conf.front.rp_filter"] = []string{"back", "front"}, "1"
	}},
	{"rp-filter", Warning, "checks of VIPs get no replies there", "sysctl -w net.ipv4.conf.back.rp_filter=2", func(f *facts.Facts) {
		f.Config.Services = append(f.Config.Services, checkedVIPs("10.2.0.11"))
		f.Sysctls["net.ipv4.conf.all.accept_local"], f.Sysctls["net.ipv4.conf.back.rp_filter"] = "1", "1"
	}},
	{"rp-filter", Warning, "has dropped 12 packets since boot, 3 in the last second", "rp_filter=2", func(f *facts.Facts) {
		f.Sysctls["net.ipv4.conf.all.rp_filter"], f.Network.RPFiltered, f.Network.RPGrowing = "1", 12, 3
	}},
	{"rp-filter", Info, "has dropped 12 packets since boot, 0 in the last second", "rp_filter=2", func(f *facts.Facts) {
		f.Sysctls["net.ipv4.conf.all.rp_filter"], f.Network.RPFiltered = "1", 12
	}},
	{"route-localnet", Warning, "net.ipv4.conf.front.route_localnet is 1", "route_localnet=0", func(f *facts.Facts) { f.Sysctls["net.ipv4.conf.front.route_localnet"] = "1" }},
	{"accept-ra", Error, "router advertisements on front", "sysctl -w net.ipv6.conf.front.accept_ra=2", func(f *facts.Facts) {
		f.Network.DefaultByRA, f.Sysctls["net.ipv6.conf.front.accept_ra"] = "front", "1"
	}},
	{"bridge-netfilter", Error, "is 0", "bridge-nf-call-iptables=1", func(f *facts.Facts) { f.Sysctls["net.bridge.bridge-nf-call-iptables"] = "0" }},
}

// docker is what Docker's rules are like, which know its own interface only.
var docker = []linux.Tables{tables(linux.NFT, "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"+
	"-A FORWARD -i docker0 ! -o docker0 -j ACCEPT\n-A FORWARD -i docker0 -o docker0 -j ACCEPT\nCOMMIT\n")}

// dropsInput is a firewall that accepts no client.
const dropsInput = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n"

// withMail adds a Service with the VIP of the first one, after it.
func withMail(f *facts.Facts) {
	mail := f.Services.Frontends[0]
	mail.Service, mail.Port, mail.Servers = "static/mail", 25, []status.Server{{Address: "10.2.0.11:25"}}
	f.Services.Frontends = slices.Insert(f.Services.Frontends, 1, mail)
}

var firewallIlls = []ill{
	{"iptables-mixed", Warning, "4 rules in iptables-legacy and 1 in iptables-nft", "", func(f *facts.Facts) {
		f.Tables = append(f.Tables, tables(linux.NFT, "*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"))
	}},
	{"iptables-mixed", Error, "weir's own are in both", "", func(f *facts.Facts) { f.Tables = append(f.Tables, tables(linux.NFT, weirRules)) }},
	{"kube-proxy", Error, "kube-proxy is running as process 42", "", func(f *facts.Facts) { f.Processes = []facts.Process{{PID: 42, Name: "kube-proxy"}} }},
	{"kube-proxy", Info, "keeps its objects", "", func(f *facts.Facts) {
		f.Processes, f.Config.Kernel.NamePrefix = []facts.Process{{PID: 42, Name: "kube-proxy"}}, "WEIR"
	}},
	{"kube-proxy", Error, "KUBE-PROXY-CANARY in table nat", "iptables-legacy -t nat -D OUTPUT -j KUBE-PROXY-CANARY && iptables-legacy -t nat -F KUBE-PROXY-CANARY && iptables-legacy -t nat -X KUBE-PROXY-CANARY", func(f *facts.Facts) {
		f.Tables[0].Chains = append(f.Tables[0].Chains, linux.ParseTables("*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-PROXY-CANARY - [0:0]\n-A OUTPUT -j KUBE-PROXY-CANARY\nCOMMIT\n")...)
	}},
	{"foreign-servers", Error, "kube-router", "", func(f *facts.Facts) { f.Processes = []facts.Process{{PID: 42, Name: "kube-router"}} }},
	{"foreign-servers", Info, "keepalived", "", func(f *facts.Facts) { f.Processes = []facts.Process{{PID: 42, Name: "keepalived"}} }},
	{"nftables", Info, "chain guard of nf_tables table inet fence may drop clients of static/web", "", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{nfTable("inet", "fence", "guard", ":guard DROP\n-A guard --unknown -j ACCEPT\n-A guard --ctstate ESTABLISHED -j ACCEPT\n")}
	}},
	{"nftables", Error, "chain filter_INPUT of nf_tables table inet firewalld drops clients of static/web, connections of BGP peer tor1, BFD of peer tor1, gossip of member box2 and 1 more: rule 1 of chain filter_IN_public drops it",
		`firewall-cmd --permanent --zone=public --add-port=80/tcp && firewall-cmd --permanent --zone=public --add-rich-rule='rule family="ipv4" source address="10.1.0.254" port port="179" protocol="tcp" accept' ` +
			`--add-rich-rule='rule family="ipv4" source address="10.1.0.254" port port="3784" protocol="udp" accept' ` +
			`--add-rich-rule='rule family="ipv4" source address="10.1.0.2" port port="7946" protocol="udp" accept' ` +
			`--add-rich-rule='rule family="ipv4" source address="10.1.0.2" port port="7946" protocol="tcp" accept' && firewall-cmd --reload`,
		func(f *facts.Facts) {
			f.NFTables = []facts.NFTable{nfTable("inet", "firewalld", "filter_INPUT", ":filter_INPUT ACCEPT\n:zones -\n:filter_IN_public -\n"+
				"-A filter_INPUT --ctstate ESTABLISHED -j ACCEPT\n-A filter_INPUT -p tcp --dports 30000:32767 -j ACCEPT\n-A filter_INPUT -j zones\n-A zones -g filter_IN_public\n-A filter_IN_public -j REJECT\n")}
		}},
	{"nftables", Error, "chain in of nf_tables table ip mine drops clients of static/web, clients of prod/a/b: rule 7 of chain in drops it", "tcp dport { 80, 30080 } accept", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{nfTable("ip", "mine", "in", ":in ACCEPT\n-A in -i lo -j ACCEPT\n-A in -p tcp --dports 80,30080 -j DROP\n")}
		f.NFTables[0].Numbers["in"] = []int{2, 7}
	}},
	{"nftables", Error, "chain in of nf_tables table ip mine drops clients of static/web, clients of prod/a/b: the policy of chain in is DROP",
		"nft insert rule ip mine in tcp dport { 80, 30080 } accept", func(f *facts.Facts) {
			f.NFTables = []facts.NFTable{nfTable("ip", "mine", "in", ":in DROP\n-A in --ctstate ESTABLISHED -j ACCEPT\n-A in -p tcp,udp --dports 179,3784,7946 -j ACCEPT\n")}
		}},
	{"nftables", Error, "chain INPUT of nf_tables table ip filter drops clients of static/web", "nft insert rule ip filter INPUT", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{nfTable("ip", "filter", "INPUT", ":INPUT DROP\n")} // the rules of iptables are legacy ones
	}},
	{"nftables", Passed, "no table of nf_tables drops", "", func(f *facts.Facts) {
		f.Tables = []linux.Tables{tables(linux.NFT, weirRules)}
		f.NFTables = []facts.NFTable{nfTable("ip", "filter", "INPUT", ":INPUT DROP\n")}
	}},
	{"nftables", Error, "chain PREROUTING of nf_tables table ip raw drops clients of static/web, clients of prod/a/b, replies of backend 10.2.0.11", "", func(f *facts.Facts) {
		f.Tables = []linux.Tables{tables(linux.NFT, rawOfNFT+weirRules)}
		f.NFTables = []facts.NFTable{ofIPTables("raw", -300, ":PREROUTING DROP\n-A PREROUTING -p tcp --dports 22 -j ACCEPT\n")}
	}},
	{"nftables", Error, "chain PREROUTING of nf_tables table ip nat drops clients of static/web: rule 1 of chain PREROUTING", "nft insert rule ip nat PREROUTING tcp dport 80 accept", func(f *facts.Facts) {
		f.Tables = []linux.Tables{tables(linux.NFT, "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"+weirRules)} // an empty chain in place of that one
		f.NFTables = []facts.NFTable{ofIPTables("nat", -100, ":PREROUTING ACCEPT\n-A PREROUTING -p tcp --dports 80 -j DROP\n")}
	}},
	{"nftables", Unknown, "chain PREROUTING of nf_tables table ip raw can't be checked: the program nft is missing", "", func(f *facts.Facts) {
		f.Tables = []linux.Tables{tables(linux.NFT, rawOfNFT+weirRules)}
		raw := facts.NFTable{Family: "ip", Name: "raw", Unread: true, Hooks: []facts.NFHook{{Hook: "PREROUTING", Chain: "PREROUTING", Type: "filter", Priority: -300}}}
		filter := facts.NFTable{Family: "ip", Name: "filter", Unread: true, Hooks: []facts.NFHook{{Hook: "INPUT", Chain: "INPUT", Type: "filter"}}}
		f.NFTables = []facts.NFTable{filter, raw}
	}},
	{"nftables", Error, "chain in of nf_tables table ip mine drops probes of healthCheckNodePort 32000: the policy",
		"nft insert rule ip mine in tcp dport 32000 accept", func(f *facts.Facts) {
			f.Sockets = append(f.Sockets, facts.Socket{Proto: lb.TCP, Addr: netip.MustParseAddrPort("10.1.0.1:32000"), PID: 7, Process: "weir"},
				facts.Socket{Proto: lb.TCP, Addr: netip.MustParseAddrPort("10.1.0.1:32001"), PID: 8, Process: "nginx"},
				// The running process has another metrics_listen than the file.
				facts.Socket{Proto: lb.TCP, Addr: netip.MustParseAddrPort("10.1.0.1:9999"), PID: 7, Process: "weir"})
			f.Services.Frontends[1].HealthCheckNodePort = 32000
			f.NFTables = []facts.NFTable{nfTable("ip", "mine", "in", ":in DROP\n-A in --ctstate ESTABLISHED -j ACCEPT\n-A in -p tcp,udp --dports 80,179,3784,7946,30080 -j ACCEPT\n")}
		}},
	{"nftables", Error, "chain fw of nf_tables table inet mine drops replies of backend 10.2.0.11",
		"nft insert rule inet mine fw ct state established,related accept", func(f *facts.Facts) {
			f.NFTables = []facts.NFTable{nfTable("inet", "mine", "fw", ":fw DROP\n")}
			f.NFTables[0].Hooks[0].Hook = "FORWARD"
		}},
	{"nftables", Error, "chain fw of nf_tables table inet mine drops clients of static/web: the policy",
		"nft insert rule inet mine fw ct status dnat accept", func(f *facts.Facts) {
			f.Running.Kernel.Mode = "netfilter"
			f.NFTables = []facts.NFTable{nfTable("inet", "mine", "fw", ":fw DROP\n-A fw --ctstate ESTABLISHED,RELATED -j ACCEPT\n")}
			f.NFTables[0].Hooks[0].Hook = "FORWARD"
		}},
	{"nftables", Error, "chain out of nf_tables table inet mine drops clients of static/web: the policy of chain out is DROP",
		"nft insert rule inet mine out tcp dport 8080 accept", func(f *facts.Facts) {
			f.Services.Frontends[0].Servers[0].Address = "10.2.0.11:8080"
			f.NFTables = []facts.NFTable{nfTable("inet", "mine", "out", ":out DROP\n-A out -o lo -j ACCEPT\n-A out --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A out -o front -j ACCEPT\n")}
			f.NFTables[0].Hooks[0].Hook = "OUTPUT"
		}},
	{"nftables", Error, "chain out of nf_tables table inet mine drops clients of static/web: the policy of chain out is DROP",
		"nft insert rule inet mine out tcp dport 80 accept", func(f *facts.Facts) {
			f.Sysctls["net.ipv4.vs.conntrack"] = "0"
			f.NFTables = []facts.NFTable{nfTable("inet", "mine", "out", ":out DROP\n-A out --ctstate ESTABLISHED,RELATED,NEW -j ACCEPT\n")}
			f.NFTables[0].Hooks[0].Hook = "OUTPUT"
		}},
	{"nftables", Passed, "no table of nf_tables drops", "", func(f *facts.Facts) {
		f.Sysctls["net.ipv4.vs.conntrack"] = "0"
		f.NFTables = []facts.NFTable{nfTable("inet", "mine", "out", ":out ACCEPT\n-A out --ctstate INVALID,NEW -j DROP\n")}
		f.NFTables[0].Hooks[0].Hook = "OUTPUT"
	}},
	{"nftables", Error, "chain out of nf_tables table inet mine drops clients of static/web", // IPVS sends packets to the VIP
		"nft insert rule inet mine out tcp dport 80 accept", func(f *facts.Facts) {
			f.Services.Frontends[0].Servers[0] = status.Server{Address: "10.2.0.11:80", Forward: "Route"}
			f.NFTables = []facts.NFTable{nfTable("inet", "mine", "out", ":out ACCEPT\n-A out -d 192.0.2.10 -j DROP\n")}
			f.NFTables[0].Hooks[0].Hook = "OUTPUT"
		}},
	{"nftables", Error, "chain out of nf_tables table inet firewalld drops clients of web", "", func(f *facts.Facts) {
		f.Running, f.NotRunning = nil, "it is not running" // the configuration has the backends
		f.NFTables = []facts.NFTable{nfTable("inet", "firewalld", "out", ":out DROP\n")}
		f.NFTables[0].Hooks[0].Hook = "OUTPUT"
	}},
	{"nftables", Passed, "no table of nf_tables drops", "", func(f *facts.Facts) { // no other host gets the packets
		f.Ways[0].Local = true
		f.NFTables = []facts.NFTable{nfTable("inet", "mine", "out", ":out DROP\n")}
		f.NFTables[0].Hooks[0].Hook = "OUTPUT"
	}},
	{"nftables", Error, "chain pre of nf_tables table inet mine drops clients of static/web: rule 1 of chain pre drops it", "nft insert rule inet mine pre tcp dport 80 accept", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{preroutingTable(-300, ":pre ACCEPT\n-A pre -p tcp --dports 80 -j DROP\n")}
	}},
	// Before conntrack no rule knows the state of a packet.
	{"nftables", Info, "chain pre of nf_tables table inet mine may drop clients of static/web", "", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{preroutingTable(-300, ":pre DROP\n-A pre --ctstate NEW,ESTABLISHED -j ACCEPT\n")}
	}},
	{"nftables", Passed, "no table of nf_tables drops", "", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{preroutingTable(-199, ":pre DROP\n-A pre --ctstate NEW,ESTABLISHED -j ACCEPT\n")}
	}},
	{"nftables", Error, "chain pre of nf_tables table inet mine drops replies of backend 10.2.0.11: rule 1", "", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{preroutingTable(-200, ":pre ACCEPT\n-A pre -i back -j DROP\n")}
	}},
	{"nftables", Error, "chain pre of nf_tables table inet mine drops replies of backend 10.2.0.11: rule 1", "nft insert rule inet mine pre ct state established,related accept", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{preroutingTable(-199, ":pre ACCEPT\n-A pre -i back -j DROP\n")}
	}},
	{"nftables", Error, "chain out of nf_tables table inet mine drops clients of static/web: rule 1", "tcp dport 80 accept", func(f *facts.Facts) { // IPVS keeps the state
		f.NFTables = []facts.NFTable{nfTable("inet", "mine", "out", ":out ACCEPT\n-A out --ctstate NEW -j DROP\n")}
		f.NFTables[0].Hooks[0] = facts.NFHook{Hook: "OUTPUT", Chain: "out", Priority: -300}
	}},
	{"nftables", Info, "chain pre of nf_tables table inet mine may drop clients of static/web", "", func(f *facts.Facts) { // a VIP is local
		f.NFTables = []facts.NFTable{preroutingTable(-150, ":pre DROP\n-A pre --dst-type LOCAL -j ACCEPT\n")}
	}},
	// In mode netfilter weir's chain gives packets another destination between the priorities of these two.
	{"nftables", Error, "chain pre of nf_tables table inet mine drops clients of static/web: rule 1", "nft insert rule inet mine pre tcp dport 80 accept", func(f *facts.Facts) {
		f.Running.Kernel.Mode, f.Services.Frontends[0].Servers[0].Address = "netfilter", "10.2.0.11:8080"
		f.NFTables = []facts.NFTable{preroutingTable(-150, ":pre ACCEPT\n-A pre -p tcp --dports 80 -j DROP\n")}
	}},
	{"nftables", Error, "chain pre of nf_tables table inet mine drops clients of static/web: rule 1", "nft insert rule inet mine pre ct status dnat accept", func(f *facts.Facts) {
		f.Running.Kernel.Mode, f.Services.Frontends[0].Servers[0].Address = "netfilter", "10.2.0.11:8080"
		f.NFTables = []facts.NFTable{preroutingTable(0, ":pre ACCEPT\n-A pre -p tcp --dports 8080 -j DROP\n")}
	}},
	{"nftables", Passed, "no table of nf_tables drops", "", func(f *facts.Facts) {
		f.Running.Kernel.Mode, f.Services.Frontends[0].Servers[0].Address = "netfilter", "10.2.0.11:8080"
		f.NFTables = []facts.NFTable{preroutingTable(0, ":pre ACCEPT\n-A pre -p tcp --dports 80 -j DROP\n")}
	}},
	{"nftables", Unknown, "chain in of nf_tables table inet mine can't be checked: the program nft is missing", "", func(f *facts.Facts) {
		f.NFTables = []facts.NFTable{{Family: "inet", Name: "mine", Unread: true, Hooks: []facts.NFHook{{Hook: "INPUT", Chain: "in"}}}}
	}},
	{"firewall", Error, "the firewall drops clients of static/web, clients of prod/a/b: the policy of chain OUTPUT",
		"iptables-legacy -A OUTPUT -p tcp -m multiport --dports 80,8080 -j ACCEPT; iptables-legacy -A OUTPUT -p udp --dport 53 -j ACCEPT", func(f *facts.Facts) {
			f.Services.Frontends[0].Servers = append(f.Services.Frontends[0].Servers, status.Server{Address: "10.2.0.11:8080"})
			f.Services.Frontends[1].Protocol, f.Services.Frontends[1].Servers = "UDP", []status.Server{{Address: "10.2.0.11:53"}}
			f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "OUTPUT ACCEPT", "OUTPUT DROP", 1))
		}},
	{"firewall", Error, "clients of static/web: the policy of chain OUTPUT", "ufw allow out proto tcp to any port 80", func(f *facts.Facts) {
		f.Sysctls["net.ipv4.vs.conntrack"] = "0"
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "OUTPUT ACCEPT [0:0]", "OUTPUT DROP [0:0]\n:ufw-user-input - [0:0]", 1))
	}},
	{"firewall", Error, "clients of static/web: the policy of chain OUTPUT", "iptables-legacy -A OUTPUT -p tcp --dport 80 -j ACCEPT", func(f *facts.Facts) {
		f.Running.Kernel.Rules = linux.NFTables.Name() // with iptables a restart does not help either
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "OUTPUT ACCEPT", "OUTPUT DROP", 1))
	}},
	{"firewall", Error, "clients of static/web: the policy of chain FORWARD", "iptables-legacy -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT", func(f *facts.Facts) {
		f.Running.Kernel.Mode, f.Running.Kernel.Rules, f.Config.Kernel.Rules = "netfilter", linux.NFTables.Name(), config.RulesNFTables
		f.Tables[0].Chains = linux.ParseTables("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n")
	}},
	{"firewall", Error, "the firewall drops clients of static/web, clients of prod/a/b: the policy of chain INPUT", "systemctl restart weir", func(f *facts.Facts) {
		f.Running.Kernel.Rules = linux.NFTables.Name()
		f.Tables[0].Chains = linux.ParseTables("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n")
	}},
	// weir's rules accept nothing in a table where they are not: each Service needs a rule of its own.
	{"firewall", Error, "the firewall drops clients of static/web, clients of static/mail, clients of prod/a/b: the policy of chain INPUT",
		"iptables-legacy -A INPUT -d 192.0.2.10 -p tcp -m multiport --dports 80,25 -j ACCEPT; iptables-legacy -A INPUT -d 10.1.0.1 -p tcp --dport 30080 -j ACCEPT", func(f *facts.Facts) {
			f.Running.Kernel.Rules, f.Config.Kernel.Rules = linux.NFTables.Name(), config.RulesNFTables
			f.Kernel.NFTables = true
			withMail(f)
			f.Tables[0].Chains = linux.ParseTables(dropsInput)
		}},
	{"firewall", Error, "the firewall drops clients of static/web, clients of static/mail, clients of prod/a/b: the policy of chain INPUT",
		"iptables-legacy -A INPUT -d 192.0.2.10 -p tcp -m multiport --dports 80,25 -j ACCEPT; iptables-legacy -A INPUT -d 10.1.0.1 -p tcp --dport 30080 -j ACCEPT", func(f *facts.Facts) {
			withMail(f)
			f.Tables = []linux.Tables{tables(linux.NFT, weirRules), tables(linux.Legacy, dropsInput)}
		}},
	{"firewall", Error, "clients of static/web: rule 2 of chain INPUT drops it", "iptables-legacy -I INPUT 2 -d 192.0.2.10 -p tcp --dport 80 -j ACCEPT", func(f *facts.Facts) {
		f.Running.Kernel.Rules, f.Kernel.NFTables = linux.NFTables.Name(), true // a restart selects nftables
		f.Tables[0].Chains = linux.ParseTables("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n")
	}},
	{"firewall", Error, "clients of static/web, clients of static/mail: rule 1 of chain LOGDROP drops it", "iptables-legacy -I OUTPUT 2 -p tcp -m multiport --dports 80,25 -j ACCEPT", func(f *facts.Facts) {
		withMail(f)
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "-A FORWARD", ":LOGDROP - [0:0]\n-A OUTPUT -o lo -j ACCEPT\n-A OUTPUT -p tcp -m tcp --dport 25 -j LOGDROP\n"+
			"-A OUTPUT -o lo -j ACCEPT\n-A OUTPUT -p tcp -m tcp --dport 80 -j LOGDROP\n-A LOGDROP -j DROP\n-A FORWARD", 1))
	}},
	// ufw has no rules for SCTP.
	{"firewall", Error, "clients of static/web: the policy of chain OUTPUT", "iptables-legacy -A OUTPUT -p sctp --dport 80 -j ACCEPT", func(f *facts.Facts) {
		f.Services.Frontends[0].Protocol = "SCTP"
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "OUTPUT ACCEPT [0:0]", "OUTPUT DROP [0:0]\n:ufw-user-input - [0:0]", 1))
	}},
	{"firewall", Error, "replies of backend 10.2.0.11: the policy of chain FORWARD", "iptables-legacy -A FORWARD -m conntrack", func(f *facts.Facts) {
		f.Running.Kernel.Rules, f.Config.Kernel.Rules = linux.NFTables.Name(), config.RulesNFTables
		f.Tables[0].Chains = linux.ParseTables("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n")
	}},
	{"firewall", Error, "replies of backend 10.2.0.11: the policy of chain FORWARD", "systemctl restart weir", func(f *facts.Facts) {
		f.Running.Kernel.Rules, f.Tables = linux.NFTables.Name(), docker
	}},
	{"firewall", Error, "clients of static/web: the policy of chain FORWARD", "systemctl restart weir", func(f *facts.Facts) {
		f.Running.Kernel.Mode, f.Running.Kernel.Rules, f.Tables = "netfilter", linux.NFTables.Name(), docker
	}},
	{"firewall", Error, "replies of backend 10.2.0.11: the policy of chain FORWARD is DROP (iptables-nft)", "systemctl restart weir", func(f *facts.Facts) {
		f.Running.Kernel.Rules = linux.NFTables.Name()
		f.Tables = []linux.Tables{tables(linux.Legacy, "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"), docker[0]}
	}},
	{"firewall", Error, "clients of static/web: rule 1 of chain PREROUTING in table raw drops it (iptables-legacy)", "iptables-legacy -t raw -I PREROUTING 1 -d 192.0.2.10 -p tcp --dport 80 -j ACCEPT", func(f *facts.Facts) {
		f.Running.Kernel.Rules = linux.NFTables.Name() // with iptables a restart does not help either
		f.Tables[0].Chains = linux.ParseTables("*raw\n:PREROUTING ACCEPT [0:0]\n:ufw-user-input - [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n")
	}},
	{"firewall", Error, "replies of backend 10.2.0.11: the policy of chain PREROUTING in table raw is DROP", "", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables("*raw\n:PREROUTING DROP [0:0]\nCOMMIT\n")
	}},
	{"firewall", Error, "the firewall drops clients of web: rule 1 of chain PREROUTING in table raw", "iptables-legacy -t raw -I PREROUTING 1 -d 192.0.2.10 -p tcp --dport 80 -j ACCEPT", func(f *facts.Facts) {
		notThere(f) // its start helps in table filter only
		f.Tables[0].Chains = linux.ParseTables("*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n" + dropsInput)
	}},
	{"firewall", Passed, "no rule drops clients", "", func(f *facts.Facts) { // a chain with that name, and without a jump
		f.Tables[0].Chains = linux.ParseTables("*raw\n:FORWARD - [0:0]\n-A FORWARD -j DROP\nCOMMIT\n")
	}},
	{"firewall", Error, "replies of backend 10.2.0.11: rule 1 of chain MINE in table mangle", "iptables-legacy -t mangle -I FORWARD 1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables("*mangle\n:FORWARD ACCEPT [0:0]\n:MINE - [0:0]\n-A FORWARD -i back -j MINE\n-A MINE -j DROP\nCOMMIT\n*filter\n:MINE - [0:0]\nCOMMIT\n")
	}},
	{"firewall", Error, "clients of static/web: rule 1 of chain INPUT in table security drops it", "iptables-legacy -t security -I INPUT 1 -d 192.0.2.10 -p tcp --dport 80 -j ACCEPT", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables("*security\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n" + weirRules)
	}},
	{"firewall", Unknown, "table filter of iptables-legacy has policy DROP in FORWARD, and can't be checked: the program iptables-legacy-save is missing", "", func(f *facts.Facts) {
		f.Tables = []linux.Tables{{Backend: linux.Legacy, Family: lb.IPv4, Unread: "has policy DROP in FORWARD"}}
	}},
	{"firewall", Error, "gossip of member box2: the policy of chain INPUT", "ufw allow proto udp from 10.1.0.2 to any port 7946", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "INPUT ACCEPT [0:0]", "INPUT DROP [0:0]\n:ufw-user-input - [0:0]", 1))
	}},
	{"firewall", Error, "replies of backend 10.2.0.11: rule 1 of chain FORWARD", "iptables-legacy -I FORWARD 1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "-A FORWARD", "-A FORWARD -j DROP\n-A FORWARD", 1))
	}},
	{"firewall", Error, "connections of BGP peer tor1: the policy of chain INPUT", "iptables-legacy -A INPUT -s 10.1.0.254 -p tcp --dport 179 -j ACCEPT", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "INPUT ACCEPT", "INPUT DROP", 1))
	}},
	{"firewall", Error, "gossip of member box2: rule 1 of chain MINE", "iptables-legacy -I INPUT 2 -s 10.1.0.2 -p udp --dport 7946 -j ACCEPT", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "-A FORWARD", ":MINE - [0:0]\n-A INPUT -s 10.1.0.0/24 -j MINE\n-A MINE -p udp -m multiport --dports 53,7946:7950 -j REJECT\n-A FORWARD", 1))
	}},
	{"firewall", Error, "BFD of peer tor1", "-p udp --dport 3784 -j ACCEPT", func(f *facts.Facts) {
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "-A FORWARD", "-A INPUT ! -s 10.9.0.0/16 -p udp -m udp --dport 3784 -j DROP\n-A FORWARD", 1))
	}},
	{"firewall", Error, "BFD of backend 10.2.0.11", "-s 10.2.0.11 -p udp --dport 3784 -j ACCEPT", func(f *facts.Facts) {
		f.Config.Checks = []health.Group{{Check: health.Check{Kind: health.BFD}, Ports: []lb.Port{{Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.2.0.11:80")}}}}}}
		f.Tables[0].Chains = linux.ParseTables(strings.Replace(weirRules, "-A FORWARD", "-A INPUT -s 10.2.0.0/16 -p udp -j DROP\n-A FORWARD", 1))
	}},
	{"port-vip", Warning, "nginx, process 8, listens on 192.0.2.10:80 of static/web", "", func(f *facts.Facts) { f.Sockets[1].Addr = netip.MustParseAddrPort("192.0.2.10:80") }},
	{"port-vip", Warning, "port 30080, a node port of prod/a/b", "", func(f *facts.Facts) { f.Sockets[1].Addr = netip.MustParseAddrPort("[::]:30080") }},
	{"port-own", Error, "bird, process 9, has tcp port 179 of bgp.listen_port", "", func(f *facts.Facts) {
		f.Sockets = append(f.Sockets, facts.Socket{Proto: lb.TCP, Addr: netip.MustParseAddrPort("0.0.0.0:179"), PID: 9, Process: "bird"})
	}},
	{"port-own", Error, "has udp port 7946 of fleet.bind", "", func(f *facts.Facts) {
		f.Sockets = append(f.Sockets, facts.Socket{Proto: lb.UDP, Addr: netip.MustParseAddrPort("[::]:7946"), PID: 9, Process: "consul"})
	}},
}

var networkIlls = []ill{
	{"link", Error, "interface front is down", "ip link set dev front up", func(f *facts.Facts) { f.Network.Links[2].Up = false }},
	{"link", Error, "there is no interface front", "", func(f *facts.Facts) { f.Network.Links = f.Network.Links[:2] }},
	{"route", Error, "no route to 10.2.0.11: no route", "", func(f *facts.Facts) { f.Ways[0].Error = "no route" }},
	{"mtu", Warning, "backends behind back have an MTU of 1400, and clients on front have 1500", "ip link set dev back mtu 1500", func(f *facts.Facts) { f.Network.Links[0].MTU = 1400 }},
	{"mtu", Info, "backends behind back have an MTU of 1450", "--set-mss 1410", func(f *facts.Facts) { f.Network.Links[0].MTU, f.Network.Links[0].Kind = 1450, "vxlan" }},
	{"path-mtu", Error, "10.2.0.11 answers a small ping, but none of 1500 bytes", "ip route add 10.2.0.11 dev back mtu 1400", func(f *facts.Facts) { f.Ways[0].Large = false }},
	{"return-path", Info, "10.2.0.11 are behind a router", "", func(f *facts.Facts) { f.Ways[0].Gateway = netip.MustParseAddr("10.2.0.254") }},
	{"direct-path", Error, "10.2.0.11 are behind a router, and forward is", "", func(f *facts.Facts) {
		f.Ways[0].Gateway, f.Ways[0].Keep, f.Ways[0].Direct = netip.MustParseAddr("10.2.0.254"), false, true
	}},
	{"neighbor", Warning, "backend 10.2.0.11 does not answer", "", func(f *facts.Facts) {
		f.Network.Neighbors = []facts.Neighbor{{Addr: netip.MustParseAddr("10.2.0.11"), Interface: "back"}}
	}},
	{"vip-duplicate", Warning, "VIP 192.0.2.10 is also an address of back", "", func(f *facts.Facts) {
		f.Network.Links[0].Addrs = append(f.Network.Links[0].Addrs, netip.MustParsePrefix("192.0.2.10/32"))
	}},
	{"lro", Warning, "on front", "ethtool -K front lro off", func(f *facts.Facts) { f.Network.Links[2].LRO = true }},
	{"drops", Warning, "front has lost 7 packets", "", func(f *facts.Facts) { f.Network.Links[2].Dropped = 7 }},
	{"drops", Warning, "dropped 3 packets", "netdev_max_backlog", func(f *facts.Facts) { f.Network.SoftDrops = 3 }},
	{"networkd", Warning, "systemd-networkd may delete", "ManageForeignRoutes=no", func(f *facts.Facts) { f.System.NetworkdKeeps = false }},
}

var peerIlls = []ill{
	{"bgp-peer", Error, "refuses TCP port 179; the session is Active (closed)", "", func(f *facts.Facts) {
		f.Neighbors.Neighbors[0].State, f.Neighbors.Neighbors[0].Down = "Active", "closed"
		f.Speakers[0].Refused, f.Speakers[0].Error = true, "refuses the connection"
	}},
	{"bgp-peer", Error, "can't be reached on TCP port 179: it does not answer", "", func(f *facts.Facts) {
		f.Neighbors.Neighbors[0].State, f.Speakers[0].Error = "Active", "does not answer"
	}},
	{"bgp-peer", Error, "accepts connections, and the session is OpenSent (bad AS)", "", func(f *facts.Facts) {
		f.Neighbors.Neighbors[0].State, f.Neighbors.Neighbors[0].Down = "OpenSent", "bad AS"
	}},
	{"bgp-peer", Error, "tor1 (10.1.0.254): the session is Active", "", func(f *facts.Facts) { f.Neighbors.Neighbors[0].State, f.Speakers[0].Asked = "Active", false }},
	{"bgp-peer", Warning, "no IPv6", "", func(f *facts.Facts) { f.Neighbors.Neighbors[0].Problem = "no IPv6" }},
	{"bgp-peer", Warning, "does not answer", "", func(f *facts.Facts) {
		notThere(f)
		f.Neighbors = routing.Neighbors{}
		f.Speakers[0].Error = "does not answer"
	}},
	{"bfd", Warning, "BFD with peer tor1 is down: a dead peer is detected only after 9 s", "", func(f *facts.Facts) { f.Neighbors.Neighbors[0].BFD.State = "down" }},
	{"member", Error, "box2 refuses TCP port 7946", "", func(f *facts.Facts) { f.Members[0].Refused, f.Members[0].Error = true, "refuses" }},
	{"member", Error, "box2 can't be reached on TCP port 7946: it does not answer", "", func(f *facts.Facts) { f.Members[0].Error = "does not answer" }},
	{"member", Error, "does not answer over UDP", "", func(f *facts.Facts) { f.Fleet.Members[0].Suspect = true }},
	{"member", Error, "not in the fleet: port taken", "", func(f *facts.Facts) { f.Fleet.Error = "port taken" }},
	{"member", Warning, "can't join box3: no such host", "", func(f *facts.Facts) { f.Fleet.UnreachableNames = map[string]string{"box3": "no such host"} }},
	{"member", Warning, "4 messages since the start of weir could not be decrypted", "", func(f *facts.Facts) { f.Fleet.Counters.Refused = 4 }},
	{"member", Error, "since the start of weir a second box had the name", "", func(f *facts.Facts) { f.Fleet.Counters.Conflicts = 1 }},
	{"api-server", Error, "cluster prod (https://10.9.0.1:6443): connection refused", "", func(f *facts.Facts) { f.APIs[0].Error = "connection refused" }},
	{"cluster-ranges", Error, "cluster prod: no endpoint is used, because its Nodes have no pod CIDRs", "", func(f *facts.Facts) {
		f.Running.Clusters = []status.Cluster{{Name: "prod", Missing: map[string][]string{"endpoint_ranges": {"10.200.0.0/16", "fd00::/64"}}}}
	}},
	{"cluster-ranges", Warning, "cluster prod: LoadBalancer addresses of another controller are not served", "", func(f *facts.Facts) {
		f.Running.Clusters = []status.Cluster{{Name: "prod", Missing: map[string][]string{"load_balancer_ranges": {"198.51.100.0/24"}}}}
	}},
}

// The fix of missing ranges is a line to paste.
func TestMissingRangesArePrinted(t *testing.T) {
	f := healthy(t)
	f.Running.Clusters = []status.Cluster{{Name: "prod", Missing: map[string][]string{"endpoint_ranges": {"10.200.0.0/16", "fd00::/64"}}}}
	const want = `if these ranges are right, add to its [[kubernetes]] and reload: endpoint_ranges = ["10.200.0.0/16", "fd00::/64"]`
	if got := missingRanges(box{f}); len(got) != 1 || got[0].Fix != want {
		t.Errorf("%+v", got)
	}
}

func TestEachIllIsFoundWithItsFix(t *testing.T) {
	seen := map[string]bool{}
	for i, tt := range ills {
		seen[tt.check] = true
		t.Run(fmt.Sprintf("%d %s", i, tt.check), func(t *testing.T) {
			f := healthy(t)
			tt.with(&f)
			r := Judge(f)
			i := slices.IndexFunc(r.Findings, func(x Finding) bool { return x.ID == tt.check && strings.Contains(x.Text, tt.what) })
			if i < 0 {
				t.Fatalf("no %s %q among %+v", tt.check, tt.what, r.Findings)
			}
			x := r.Findings[i]
			if x.Severity != tt.severity || !strings.Contains(x.Command, tt.command) || tt.command == "" && x.Command != "" {
				t.Errorf("want %s with %q: %+v", tt.severity, tt.command, x)
			}
			if (x.Severity == Error || x.Severity == Warning) && (x.Fix == "" || x.Reason == "" || r.OK()) {
				t.Errorf("no fix, no reason, or no problems: %+v", x)
			}
		})
	}
	for _, c := range Checks() {
		if !seen[c.ID] {
			t.Errorf("nothing is ever found by %s", c.ID)
		}
	}
}

// What can't be checked is unknown, and neither fine nor wrong; and a box of which
// nothing is known at all is judged without a panic.
func TestMissingFactsAreUnknown(t *testing.T) {
	f := healthy(t)
	f.Missing[facts.Rules], f.Missing[facts.NFRules] = "only root may read them", "only root may read them"
	r := Judge(f)
	for _, x := range r.Findings {
		rules := slices.Contains([]string{"iptables-mixed", "kube-proxy", "firewall", "nftables"}, x.ID)
		if (x.Severity == Unknown) != rules {
			t.Errorf("%+v", x)
		}
	}
	if !strings.HasSuffix(r.Line(), "checks passed, 4 could not be checked (--all lists them)") {
		t.Errorf("it says %q", r.Line())
	}
	nothing := facts.Facts{Missing: map[facts.Part]string{}}
	for _, c := range Checks() {
		for _, p := range c.needs {
			nothing.Missing[p] = "it is night"
		}
	}
	nothing.NoAccess, nothing.Missing[facts.Daemon] = true, "it is night"
	if r := Judge(nothing); r.Errors+r.Warnings > 0 || r.Unknown == 0 {
		t.Errorf("%+v", r)
	}
}

// Without a daemon there are no sessions that could be judged.
func TestSessionsOfNoDaemonAreNotFine(t *testing.T) {
	f := healthy(t)
	notThere(&f)
	f.Neighbors = routing.Neighbors{}
	if r := Judge(f, "bfd"); len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
	}
}

func TestOnlyTheChecksThatAreAskedFor(t *testing.T) {
	r := Judge(healthy(t), "lro", "mtu")
	if r.Passed != 2 || len(r.Findings) != 2 {
		t.Errorf("%+v", r)
	}
}

// Whatever is worth a word is shown with what helps, and with why it matters to one of
// its severity.
func TestTableHasFixesOfEverySeverity(t *testing.T) {
	for _, tt := range []struct {
		check string
		with  func(f *facts.Facts)
		want  string
	}{
		{"clock", func(f *facts.Facts) { f.Clock.Synchronized, f.APIs = false, nil }, `no problems: 1 check passed
kernel: mode ipvs, rules in iptables-nft

info  clock  the clock of this box is not synchronized; times in logs will differ from other hosts
  fix: enable a time service
  run: timedatectl set-ntp true
`},
		{"config", func(f *facts.Facts) {
			f.Problems = []source.Problem{{Severity: source.Warning, File: "weir.toml", Line: 3, Text: "it is odd", Suggestion: "remove it"}}
		}, `0 checks passed, 1 warning, 0 errors
kernel: mode ipvs, rules in iptables-nft

warning  config  weir.toml:3: it is odd
  reason: weir runs with it, but it is probably a mistake
  fix: remove it
`},
		{"clock-skew", func(f *facts.Facts) { f.APIs[0].HasDate, f.APIs[0].Skew = true, time.Minute }, `0 checks passed, 1 warning, 0 errors
kernel: mode ipvs, rules in iptables-nft

warning  clock-skew  the clock of this box is 1m0s ahead of that of cluster prod
  reason: certificates and tokens fail from a difference of 5m0s on
  fix: find the wrong one, and enable its time service
  run: timedatectl set-ntp true
`},
		// Rules in iptables need no word: the second line has their owner, and --all the reason.
		{"rules", func(f *facts.Facts) { f.Running.Kernel.IPTablesReason = lacksNumgen }, `no problems: 1 check passed
kernel: mode ipvs, rules in iptables-nft
`},
	} {
		f := healthy(t)
		tt.with(&f)
		var got strings.Builder
		Judge(f, tt.check).Table(&got, now)
		if got.String() != tt.want {
			t.Errorf("%s:\n%s", tt.check, got.String())
		}
	}
}

// The table with --all ends with its last line, also if no check has passed.
func TestTheWholeTableEndsWithALine(t *testing.T) {
	f := healthy(t)
	f.Network.Links[2].LRO = true
	for _, only := range [][]string{{"lro"}, {"lro", "mtu"}, {"mtu"}} {
		var got strings.Builder
		r := Judge(f, only...)
		r.All = true
		r.Table(&got, now)
		if passed := strings.Contains(got.String(), "ok  mtu"); passed != slices.Contains(only, "mtu") || strings.HasSuffix(got.String(), "\n\n") {
			t.Errorf("%v: %q", only, got.String())
		}
	}
}

func TestServedIsTheDaemonsWordOrTheConfiguration(t *testing.T) {
	f := healthy(t)
	f.Services.Frontends[0].Servers = append(f.Services.Frontends[0].Servers, status.Server{Address: "10.2.0.99:80"})
	if s := facts.ServedBy(&f); len(s.Backends) != 2 || len(s.VIPs) != 1 || len(s.NodePorts) != 1 || !s.Keep[netip.MustParseAddr("10.2.0.11")] {
		t.Errorf("by the daemon: %+v", s)
	}
	notThere(&f)
	if s := facts.ServedBy(&f); len(s.Backends) != 1 || len(s.VIPs) != 1 || len(s.Frontends) != 1 || s.Frontends[0].Proto != "tcp" {
		t.Errorf("by the configuration: %+v", s)
	}
}

// TestStrictInterfacesWithoutCheckedBackends shows that only interfaces to IPv4 backends with checks of
// VIPs need a loose rp_filter.
func TestStrictInterfacesWithoutCheckedBackends(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		backend, link string
		want          int
	}{{"10.2.0.11", "back", 1}, {"10.2.0.11", "cni0", 0}, {"10.9.0.1", "back", 0}, {"fd00::1", "back", 0}} {
		f := healthy(t)
		f.Config.Services = append(f.Config.Services, checkedVIPs(tt.backend))
		f.Sysctls["net.ipv4.conf."+tt.link+".rp_filter"] = "1"
		if got := rpFilter(box{Facts: f}); len(got) != tt.want {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}
