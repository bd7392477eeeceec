package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"weir/lb"
)

var (
	// Chain names have at most 28 characters (XT_EXTENSION_MAXNAMELEN is 29), and
	// the longest, -SOURCE-RANGES-FIREWALL, takes 23 of them. Names of IPv6 sets go
	// on with "-6-", so a prefix must not end like that itself.
	prefixForm = regexp.MustCompile(`^[A-Z][A-Z0-9-]{0,4}$`)
	prefixTail = regexp.MustCompile(`-6?$`)
	// IFNAMSIZ is 16 with its final zero.
	deviceForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$`)
)

func readKernel(s section) Kernel {
	k := Kernel{
		Mode:          Mode(s.text("mode")),
		NamePrefix:    s.text("name_prefix"),
		Device:        s.text("device"),
		IPTables:      IPTables(s.text("iptables")),
		Families:      s.families(),
		MasqueradeBit: s.integer("masquerade_bit"),
		MasqueradeAll: s.flag("masquerade_all"),
		SloppyTCP:     s.flag("sloppy_tcp"),
		ClusterCIDRs:  s.prefixes("cluster_cidrs"),
		ExcludeCIDRs:  s.prefixes("exclude_cidrs"),
		Ping:          s.flag("ping"),
		SyncPeriod:    s.duration("sync_period"),
		MinSyncPeriod: s.duration("min_sync_period"),
		TCPTimeout:    s.wholeSeconds("tcp_timeout"),
		TCPFinTimeout: s.wholeSeconds("tcp_fin_timeout"),
		UDPTimeout:    s.wholeSeconds("udp_timeout"),
		ManageSysctls: s.flag("manage_sysctls"),
	}
	if !prefixForm.MatchString(k.NamePrefix) || prefixTail.MatchString(k.NamePrefix) {
		s.fail("name_prefix", strconv.Quote(k.NamePrefix)+" can't begin names in the kernel",
			`write 1 to 5 of A-Z, 0-9 and -, a letter first, not "-" or "-6" last`)
	}
	if !deviceForm.MatchString(k.Device) || slices.Contains([]string{"lo", "all", "default"}, k.Device) {
		s.fail("device", strconv.Quote(k.Device)+" can't be the name of a device of weir's own",
			"write 1 to 15 letters, digits and . _ -")
	}
	if k.MinSyncPeriod > k.SyncPeriod {
		s.fail("min_sync_period", fmt.Sprintf("%s is longer than sync_period, which is %s",
			short(k.MinSyncPeriod), short(k.SyncPeriod)), "write at most "+strconv.Quote(short(k.SyncPeriod)))
	}
	if k.SyncPeriod > 5*time.Minute {
		s.warn(Warning, "sync_period", fmt.Sprintf("what the kernel does not announce may stay wrong for %s", short(k.SyncPeriod)),
			`the default is `+s.schema.byPath["kernel.sync_period"].Default)
	}
	k.Pools = s.pools(k)
	k.MasqueradeSource = s.masqueradeSource(k)
	s.readNode(&k)
	return k
}

func (s section) families() []lb.Family {
	var out []lb.Family
	for _, e := range s.elements("families") {
		f := lb.IPv4
		if e.scalar == "ipv6" {
			f = lb.IPv6
		}
		if slices.Contains(out, f) {
			s.failAt(e, "families", e.String()+" is in the list twice", "remove one")
			continue
		}
		out = append(out, f)
	}
	if v := s.get("families"); len(v.list) == 0 {
		s.fail("families", "weir would serve nothing", `write "ipv4", "ipv6" or both`)
	}
	slices.Sort(out)
	return out
}

// wholeSeconds reads a duration that the kernel counts in seconds.
func (s section) wholeSeconds(name string) time.Duration {
	d := s.duration(name)
	if d%time.Second != 0 {
		s.fail(name, short(d)+" is not in whole seconds", "write "+strconv.Quote(short(d.Truncate(time.Second)+time.Second)))
	}
	return d
}

// The widest pools: one that is wider would swallow what the box itself needs.
const (
	widestPool4 = 8
	widestPool6 = 16
)

func (s section) pools(k Kernel) []lb.PoolRoute {
	route := s.text("vip_mode") == "route"
	for _, name := range []string{"route_pools", "route_source"} {
		if !route && len(s.elements(name)) > 0 {
			s.fail(name, `is only used with vip_mode = "route"`, "set that, or remove this")
		}
	}
	sources := s.perFamily("route_source")
	var pools []lb.PoolRoute
	for _, e := range s.elements("route_pools") {
		p, f := parsePrefix(e.scalar.(string))
		if f == nil {
			f = badPool(p, k, pools)
		}
		if f != nil {
			s.failAt(e, "route_pools", f.text, f.fix)
			continue
		}
		pools = append(pools, lb.PoolRoute{Prefix: p, Src: sources[lb.FamilyOf(p.Addr())]})
	}
	if !route {
		return nil
	}
	if len(s.elements("route_pools")) == 0 && !s.bad("route_pools") {
		s.fail("route_pools", `is missing: vip_mode "route" has nothing to route`, `add route_pools = ["192.0.2.0/24"]`)
	}
	return pools
}

func badPool(p netip.Prefix, k Kernel, others []lb.PoolRoute) *fault {
	widest := widestPool4
	if p.Addr().Is6() {
		widest = widestPool6
	}
	if p.Bits() < widest {
		return faultf(fmt.Sprintf("a pool is /%d or smaller", widest), "%q is so wide that this box would talk only to itself", p)
	}
	if f := lb.FamilyOf(p.Addr()); !slices.Contains(k.Families, f) && len(k.Families) > 0 {
		return faultf("remove it, or add the family", "%q is %s, which is not in families", p, f)
	}
	for _, r := range reserved {
		if r.prefix.Overlaps(p) {
			return faultf("choose another range", "%q has addresses that are %s", p, r.what)
		}
	}
	for _, o := range others {
		if o.Prefix.Overlaps(p) {
			return faultf("remove one", "%q and %q overlap", p, o.Prefix)
		}
	}
	for _, x := range k.ExcludeCIDRs {
		if x.Overlaps(p) {
			return faultf("remove one", "%q overlaps %q of exclude_cidrs", p, x)
		}
	}
	return nil
}

// perFamily reads a list of addresses, one of each family.
func (s section) perFamily(name string) map[lb.Family]netip.Addr {
	out := map[lb.Family]netip.Addr{}
	for _, e := range s.elements(name) {
		a, f := parseAddr(e.scalar.(string))
		if f == nil {
			if first, ok := out[lb.FamilyOf(a)]; ok {
				f = faultf("remove one", "%q and %q are of the same family", a, first)
			}
		}
		if f != nil {
			s.failAt(e, name, f.text, f.fix)
			continue
		}
		out[lb.FamilyOf(a)] = a
	}
	return out
}

func readDaemon(s section) Daemon {
	d := Daemon{
		Socket:    s.text("socket"),
		Listen:    s.text("listen"),
		LogFormat: LogFormat(s.text("log_format")),
		OnStop:    OnStop(s.text("on_stop")),
		StateDir:  s.text("state_dir"),

		StopTimeout: s.duration("stop_timeout"),
	}
	// The schema has let pass only names that slog knows.
	_ = d.LogLevel.UnmarshalText([]byte(s.text("log_level")))
	// sun_path has 108 bytes with its final zero.
	if !filepath.IsAbs(d.Socket) || len(d.Socket) > 107 {
		s.fail("socket", strconv.Quote(d.Socket)+" is not an absolute path of at most 107 characters",
			"write one such as "+s.schema.byPath["daemon.socket"].Default)
	}
	if !filepath.IsAbs(d.StateDir) {
		s.fail("state_dir", strconv.Quote(d.StateDir)+" is not an absolute path",
			"write one such as "+s.schema.byPath["daemon.state_dir"].Default)
	}
	if f := badListen(d.Listen); f != nil {
		s.fail("listen", f.text, f.fix)
	}
	return d
}

func badListen(listen string) *fault {
	if listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return faultf("write one such as 127.0.0.1:10266", "%q is not an address and a port", listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return faultf("ports go from 1 to 65535", "%q has %q for a port", listen, port)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return faultf("write the address, or nothing for all", "%q has %q for an address", listen, host)
	}
	return nil
}

func readDefaults(s section) Defaults {
	name := s.text("scheduler")
	return Defaults{
		Scheduler: lb.Scheduler{Name: name, Flags: s.schedulerFlags(name, lb.UsualFlags(name))},
		Drain:     s.duration("drain"),
	}
}

// scheduler gives a table's own scheduler, or the default one. Flags go with
// the scheduler they were written for.
func (s section) scheduler(d lb.Scheduler) lb.Scheduler {
	own := d
	if s.has("scheduler") && !s.bad("scheduler") {
		if name := s.text("scheduler"); name != d.Name {
			own = lb.Scheduler{Name: name, Flags: lb.UsualFlags(name)}
		}
	}
	own.Flags = s.schedulerFlags(own.Name, own.Flags)
	return own
}

// drain gives a table's own drain, or the default one.
func (s section) drain(d Defaults, scheduler lb.Scheduler) time.Duration {
	switch {
	case s.has("drain"):
		return s.duration("drain")
	case scheduler.Name == "dh":
		return 0 // it refuses who hashes to a backend that drains
	}
	return d.Drain
}

// schedulerFlags reads scheduler_flags for a scheduler; absent is for when they
// are not written.
func (s section) schedulerFlags(scheduler string, absent lb.SchedulerFlag) lb.SchedulerFlag {
	if !s.has("scheduler_flags") || s.bad("scheduler") {
		return absent
	}
	var flags lb.SchedulerFlag
	for _, e := range s.elements("scheduler_flags") {
		flag := lb.Fallback
		if e.scalar == "port" {
			flag = lb.WithPort
		}
		if lb.Schedulers[scheduler]&flag == 0 {
			s.failAt(e, "scheduler_flags", fmt.Sprintf("%s has no flags", scheduler), "use sh or mh, or remove the flags")
			return 0
		}
		flags |= flag
	}
	return flags
}
