package doctor

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

	"weir/lb"
	"weir/lb/linux"
)

// kernel looks at the kernel and its modules. Which of them are needed is judged later,
// so all that may be are looked up.
func (g gatherer) kernel(context.Context) (func(*Facts), error) {
	release, err := g.read("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	k := Kernel{Release: release, Modules: map[string]ModuleState{}}
	loadable := g.loadable(release)
	for _, m := range linux.Modules(linux.ModeIPVS, slices.Sorted(maps.Keys(lb.Schedulers))) {
		switch {
		case g.loaded(m), loadable[m] == Loaded:
			k.Modules[m] = Loaded
		case loadable[m] == Loadable:
			k.Modules[m] = Loadable
		case len(loadable) == 0:
			k.Modules[m] = Hidden
		default:
			k.Modules[m] = Absent
		}
	}
	table, err := os.Open(g.path("/proc/net/ip_vs"))
	if k.IPVS = err == nil; k.IPVS {
		defer table.Close()
		if k.IPVSBuckets, k.IPVSConns, err = parseIPVS(bufio.NewScanner(table)); err != nil {
			return nil, err
		}
		k.Modules["ip_vs"] = Loaded
	}
	return func(f *Facts) { f.Kernel = k }, nil
}

// loaded tells whether a module is there now: built in, it has a folder only if it has
// parameters.
func (g gatherer) loaded(module string) bool {
	_, err := os.Stat(g.path("/sys/module/" + module))
	return err == nil
}

// loadable reads the lists that depmod and the kernel's build have made.
func (g gatherer) loadable(release string) map[string]ModuleState {
	out := map[string]ModuleState{}
	for _, list := range []struct {
		file  string
		state ModuleState
	}{{"modules.dep", Loadable}, {"modules.builtin", Loaded}} {
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
				return 0, 0, fmt.Errorf("/proc/net/ip_vs: %q is no number of connections", text)
			}
			conns += n
		}
	}
	return buckets, conns, lines.Err()
}

// sysctls reads the parameters that judges look at, those of each interface, and those
// that the configuration names.
func (g gatherer) sysctls(context.Context) (func(*Facts), error) {
	out := map[string]string{}
	patterns := []string{
		"net/ipv4/ip_forward", "net/ipv4/vs/*", "net/ipv6/conf/all/forwarding",
		"net/ipv4/conf/*/rp_filter", "net/ipv4/conf/*/arp_ignore", "net/ipv4/conf/*/arp_announce",
		"net/ipv4/conf/*/route_localnet", "net/ipv6/conf/*/accept_ra",
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
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) {
				continue // some can only be written
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
	return func(f *Facts) { f.Sysctls = out }, nil
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
func (g gatherer) sysctlFiles(context.Context) (func(*Facts), error) {
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
	var out []SysctlLine
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
	return func(f *Facts) { f.SysctlFiles = out }, nil
}

// parseSysctls reads a file of sysctl.d(5). Lines that set nothing are passed over.
func parseSysctls(file, text string) []SysctlLine {
	var out []SysctlLine
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
		out = append(out, SysctlLine{File: file, Line: n, Name: name, Value: strings.Join(strings.Fields(value), " ")})
	}
	return out
}

// conntrack reads how full conntrack is, twice.
func (g gatherer) conntrack(ctx context.Context) (func(*Facts), error) {
	const dir = "/proc/sys/net/netfilter/nf_conntrack_"
	c := ConntrackFacts{Count: g.number(dir + "count"), Max: g.number(dir + "max"), Buckets: g.number(dir + "buckets")}
	if c.Max == 0 {
		return nil, errors.New("module nf_conntrack is not loaded")
	}
	const stat = "/proc/net/stat/nf_conntrack"
	before, err := g.read(stat)
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
	return func(f *Facts) { f.Conntrack = c }, nil
}

// parseConntrackStat adds up the packets that conntrack has dropped for want of room, on
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
				return 0, fmt.Errorf("/proc/net/stat/nf_conntrack: %q is no number", field)
			}
			dropped += n
		}
	}
	return dropped, nil
}

// clock asks whether something keeps the clock right: adjtimex(2).
func (g gatherer) clock(context.Context) (func(*Facts), error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return nil, err
	}
	ok := state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
	return func(f *Facts) { f.Clock.Synchronized = ok }, nil
}
