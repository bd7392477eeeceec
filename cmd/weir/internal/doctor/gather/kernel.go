package gather

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/kernelmode"
	"weir/lb"
	"weir/lb/linux"
)

// kernel reads the version of the kernel and the state of all modules that may be needed.
func (g gatherer) kernel(ctx context.Context) (func(*facts.Facts), error) {
	release, err := g.read("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	k := facts.Kernel{Release: release, Modules: map[string]facts.ModuleState{}}
	loadable := g.loadable(release)
	schedulers := slices.Sorted(maps.Keys(lb.Schedulers))
	all := append(linux.Modules(linux.Config{Decapsulates: true}, schedulers), linux.Modules(linux.Config{Backend: linux.NFTables}, nil)...)
	for _, m := range all {
		switch {
		case g.loaded(m), loadable[m] == facts.Loaded:
			k.Modules[m] = facts.Loaded
		case loadable[m] == facts.Loadable:
			k.Modules[m] = facts.Loadable
		case len(loadable) == 0:
			k.Modules[m] = facts.Hidden
		default:
			k.Modules[m] = facts.Absent
		}
	}
	trial := linux.DefaultConfig()
	trial.Families = []lb.Family{lb.IPv4}
	if g.cfg != nil { // as the daemon tries it
		trial = kernelmode.KernelConfig(g.cfg, kernelmode.Of(g.cfg), kernelmode.Node{}, nil)
	}
	if k.NFTables, err = linux.SelectNFTables(ctx, trial); g.cfg != nil && g.cfg.Kernel.Rules == config.RulesNFTables {
		err = linux.TryNFTables(ctx, trial)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, unix.EPERM):
		k.Untried = true
	case err != nil:
		k.Refusal = err.Error()
	}
	table, err := os.Open(g.path("/proc/net/ip_vs"))
	if k.IPVS = err == nil; k.IPVS {
		defer table.Close()
		if k.IPVSBuckets, k.IPVSConns, err = parseIPVS(bufio.NewScanner(table)); err != nil {
			return nil, err
		}
		k.Modules["ip_vs"] = facts.Loaded
	}
	return func(f *facts.Facts) { f.Kernel = k }, nil
}

// loaded reports whether a module is present: built in, it has a folder only if it has
// parameters.
func (g host) loaded(module string) bool {
	_, err := os.Stat(g.path("/sys/module/" + module))
	return err == nil
}

// loadable reads the lists that depmod and the kernel's build have made.
func (g host) loadable(release string) map[string]facts.ModuleState {
	out := map[string]facts.ModuleState{}
	for _, list := range []struct {
		file  string
		state facts.ModuleState
	}{{"modules.dep", facts.Loadable}, {"modules.builtin", facts.Loaded}} {
		text, err := g.read(filepath.Join("/lib/modules", release, list.file))
		if err != nil {
			continue // as in containers
		}
		for line := range strings.Lines(text) {
			file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			name, _, _ := strings.Cut(filepath.Base(file), ".ko")
			out[strings.ReplaceAll(name, "-", "_")] = list.state
		}
	}
	return out
}

// parseIPVS reads the head of /proc/net/ip_vs, and adds up the connections below.
func parseIPVS(lines *bufio.Scanner) (buckets, conns int, err error) {
	for lines.Scan() {
		line := lines.Text()
		if _, size, ok := strings.Cut(line, "(size="); ok {
			buckets, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(size), ")")) // 0 is not known
			continue
		}
		// -> address forward weight active inactive
		fields := strings.Fields(line)
		if len(fields) != 6 || fields[0] != "->" || fields[1] == "RemoteAddress:Port" {
			continue
		}
		for _, text := range fields[4:] {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > 1<<31 {
				return 0, 0, fmt.Errorf("/proc/net/ip_vs: invalid number of connections %q", text)
			}
			conns += n
		}
	}
	return buckets, conns, lines.Err()
}

// sysctls reads the parameters of the checks, of each interface, and of the
// configuration.
func (g gatherer) sysctls(context.Context) (func(*facts.Facts), error) {
	out := map[string]string{}
	patterns := []string{
		"net/ipv4/ip_forward", "net/ipv4/vs/*", "net/ipv6/conf/all/forwarding",
		"net/ipv4/conf/*/rp_filter", "net/ipv4/conf/*/arp_ignore", "net/ipv4/conf/*/arp_announce",
		"net/ipv4/conf/*/route_localnet", "net/ipv4/conf/all/accept_local", "net/ipv6/conf/*/accept_ra",
		"net/bridge/bridge-nf-call-iptables", "net/netfilter/nf_conntrack_tcp_*",
	}
	if g.cfg != nil {
		for _, s := range g.cfg.Kernel.Sysctls {
			patterns = append(patterns, sysctlName(s.Name)) // what is a dot in one is a slash in the other
		}
	}
	for _, pattern := range patterns {
		names, err := filepath.Glob(g.path("/proc/sys/" + pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			value, err := os.ReadFile(name)
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
				continue // some can only be written, and interfaces of pods go at any time
			}
			if err != nil {
				return nil, err
			}
			rel, _ := filepath.Rel(g.path("/proc/sys"), name) // below it, by the pattern
			out[sysctlName(rel)] = strings.Join(strings.Fields(string(value)), " ")
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there are none in /proc/sys/net")
	}
	return func(f *facts.Facts) { f.Sysctls = out }, nil
}

// sysctlName makes a name for sysctl(8) of a path: dots and slashes change places.
func sysctlName(path string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, path)
}

// sysctlFiles reads the files from which parameters are set when the box starts, in the
// order of sysctl.d(5): by their names, and of two with the same name the first folder's.
func (g host) sysctlFiles(context.Context) (func(*facts.Facts), error) {
	files := map[string]string{}
	for _, dir := range []string{"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"} {
		names, err := filepath.Glob(g.path(dir + "/*.conf"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if base := filepath.Base(name); files[base] == "" {
				files[base] = filepath.Join(dir, base)
			}
		}
	}
	var order []string
	for base := range files {
		order = append(order, base)
	}
	slices.Sort(order)
	var out []facts.SysctlLine
	for _, name := range append(order, "/etc/sysctl.conf") { // systemd reads it as 99-sysctl.conf
		if files[name] != "" {
			name = files[name]
		}
		text, err := g.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, parseSysctls(name, text)...)
	}
	return func(f *facts.Facts) { f.SysctlFiles = out }, nil
}

// parseSysctls reads a file of sysctl.d(5). Lines that set nothing are passed over.
func parseSysctls(file, text string) []facts.SysctlLine {
	var out []facts.SysctlLine
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimPrefix(strings.TrimSpace(line), "-")
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		// With slashes it is a path, and dots are dots; with dots it is the other way.
		if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
			name = sysctlName(name)
		}
		out = append(out, facts.SysctlLine{File: file, Line: n, Name: name, Value: strings.Join(strings.Fields(value), " ")})
	}
	return out
}

// conntrack reads how full conntrack is, twice.
func (g host) conntrack(ctx context.Context) (func(*facts.Facts), error) {
	const dir = "/proc/sys/net/netfilter/nf_conntrack_"
	c := facts.ConntrackFacts{Count: g.number(dir + "count"), Max: g.number(dir + "max"), Buckets: g.number(dir + "buckets")}
	if c.Max == 0 {
		return nil, errors.New("module nf_conntrack is not loaded, or nf_conntrack_max is 0: no limit")
	}
	const stat = "/proc/net/stat/nf_conntrack"
	before, err := g.read(stat)
	if errors.Is(err, fs.ErrNotExist) {
		const reason = "this kernel is built without CONFIG_NF_CONNTRACK_PROCFS"
		return func(f *facts.Facts) { f.Conntrack, f.Missing[facts.ConntrackStat] = c, reason }, nil
	}
	if err != nil {
		return nil, err
	}
	if c.Dropped, err = parseConntrackStat(before); err != nil {
		return nil, err
	}
	if !wait(ctx, sample) {
		return nil, ctx.Err()
	}
	after, err := g.read(stat)
	if err != nil {
		return nil, err
	}
	dropped, err := parseConntrackStat(after)
	if err != nil {
		return nil, err
	}
	c.Growing, c.Dropped = dropped-min(c.Dropped, dropped), dropped
	return func(f *facts.Facts) { f.Conntrack = c }, nil
}

// parseConntrackStat adds up the packets that conntrack has dropped because the table was full, on
// all processors, by /proc/net/stat/nf_conntrack: columns drop, early_drop and
// insert_failed are hexadecimal, under a line with their names.
func parseConntrackStat(text string) (dropped uint64, err error) {
	head, rest, _ := strings.Cut(text, "\n")
	names := strings.Fields(head)
	for line := range strings.Lines(rest) {
		for i, field := range strings.Fields(line) {
			if i >= len(names) || !slices.Contains([]string{"drop", "early_drop", "insert_failed"}, names[i]) {
				continue
			}
			n, err := strconv.ParseUint(field, 16, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/net/stat/nf_conntrack: invalid number %q", field)
			}
			dropped += n
		}
	}
	return dropped, nil
}

// clock asks whether something keeps the clock right: adjtimex(2).
func (g host) clock(context.Context) (func(*facts.Facts), error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return nil, err
	}
	ok := state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
	return func(f *facts.Facts) { f.Clock.Synchronized = ok }, nil
}
