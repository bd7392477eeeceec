package gather

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb"
	"weir/lb/linux"
)

var errNotRoot = errors.New("only root may read them")

// rules reads the rules of both backends of iptables.
func (g host) rules(ctx context.Context) (func(*facts.Facts), error) {
	if os.Geteuid() != 0 {
		return nil, errNotRoot
	}
	tables, err := linux.ReadTables(ctx)
	if err != nil {
		return nil, err
	}
	return func(f *facts.Facts) { f.Tables = tables }, nil
}

// socketFiles are where the kernel lists sockets, and the states of those that wait.
var socketFiles = []struct {
	name  string
	proto lb.Protocol
	state string
}{{"tcp", lb.TCP, "0A"}, {"tcp6", lb.TCP, "0A"}, {"udp", lb.UDP, "07"}, {"udp6", lb.UDP, "07"}}

// sockets lists who listens.
func (g host) sockets(context.Context) (func(*facts.Facts), error) {
	var found []rawSocket
	for _, s := range socketFiles {
		text, err := g.read("/proc/net/" + s.name)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(s.name, "6") {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		list, err := parseSockets(text, s.state)
		if err != nil {
			return nil, fmt.Errorf("/proc/net/%s: %w", s.name, err)
		}
		for _, x := range list {
			x.Proto = s.proto
			found = append(found, x)
		}
	}
	owners := g.owners(found)
	out := make([]facts.Socket, len(found))
	for i, x := range found {
		out[i] = x.Socket
		if pid := owners[x.inode]; pid > 0 {
			out[i].PID, out[i].Process = pid, g.comm(pid)
		}
	}
	return func(f *facts.Facts) { f.Sockets = out }, nil
}

type rawSocket struct {
	facts.Socket
	inode string
}

// parseSockets reads one of /proc/net/tcp and its like: the sockets that are in a state.
func parseSockets(text, state string) ([]rawSocket, error) {
	var out []rawSocket
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || !strings.HasSuffix(f[0], ":") || f[3] != state {
			continue
		}
		a, err := parseHexAddr(f[1])
		if err != nil {
			return nil, err
		}
		out = append(out, rawSocket{facts.Socket{Addr: a}, f[9]})
	}
	return out, nil
}

// parseHexAddr reads an address as /proc/net/tcp has it: words of 32 bits in the order of
// the machine, which is little endian wherever weir runs, and a port.
func parseHexAddr(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("invalid address %q", text)
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	a, _ := netip.AddrFromSlice(raw) // 4 or 16 bytes
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}

// owners returns the processes of sockets, as far as permitted.
func (g host) owners(sockets []rawSocket) map[string]int {
	wanted := map[string]bool{}
	for _, s := range sockets {
		wanted["socket:["+s.inode+"]"] = true
	}
	out := map[string]int{}
	links, _ := filepath.Glob(g.path("/proc/[0-9]*/fd/*")) // a constant pattern
	for _, l := range links {
		target, err := os.Readlink(l)
		if err != nil || !wanted[target] {
			continue
		}
		rel, _ := filepath.Rel(g.path("/proc"), l)
		pid, _, _ := strings.Cut(rel, "/")
		inode := strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")
		out[inode], _ = strconv.Atoi(pid) // [0-9]*
	}
	return out
}

// comm is the name of a process.
func (g host) comm(pid int) string {
	name, _ := g.read(fmt.Sprintf("/proc/%d/comm", pid)) // a process that has ended has none
	return name
}

// neighborsOfWeir are programs that make virtual servers, or think that they do.
var neighborsOfWeir = []string{"kube-proxy", "keepalived", "kube-router"}

// processes looks for neighborsOfWeir, and at the memory that all share.
func (g host) processes(context.Context) (func(*facts.Facts), error) {
	names, err := filepath.Glob(g.path("/proc/[0-9]*"))
	if err != nil {
		return nil, err
	}
	var out []facts.Process
	for _, dir := range names {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if name := g.comm(pid); slices.Contains(neighborsOfWeir, name) {
			out = append(out, facts.Process{PID: pid, Name: name})
		}
	}
	text, err := g.read("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	mem := parseMeminfo(text)
	return func(f *facts.Facts) { f.Processes, f.Memory = out, mem }, nil
}

// parseMeminfo reads what judges want of /proc/meminfo.
func parseMeminfo(text string) (m facts.MemoryFacts) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.Atoi(f[1])
		switch {
		case err != nil || kib < 0:
		case f[0] == "MemTotal:":
			m.Total = kib / 1024
		case f[0] == "MemAvailable:":
			m.Available = kib / 1024
		}
	}
	return m
}
