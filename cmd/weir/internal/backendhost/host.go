package backendhost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Host is a server. Make one with ThisHost.
type Host struct {
	// Run runs a command and returns its output.
	Run func(ctx context.Context, args ...string) (string, error)
	// Sysctl returns a kernel parameter, "" if there is no such one.
	Sysctl func(name string) string
	// Link reports whether a device exists, and whether it is up.
	Link func(name string) (exists, up bool)
	// HasAddress reports whether the loopback device has an address.
	HasAddress func(netip.Addr) bool
	// HasIPv4 reports whether a device has an IPv4 address.
	HasIPv4 func(device string) bool
	// Record is the file with the changes that Undo reverts. A reboot must remove it.
	Record string
}

// ThisHost returns the host of the process.
func ThisHost() Host {
	return Host{Run: run, Sysctl: readSysctl, Link: findLink, HasAddress: onLoopback, HasIPv4: hasIPv4, Record: "/run/weir-backend.json"}
}

func run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("program %s is missing: install package %s", args[0], cmp.Or(map[string]string{"nft": "nftables", "ip": "iproute2", "modprobe": "kmod", "sysctl": "procps"}[args[0]], args[0]))
	}
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return "", fmt.Errorf("%s: %s", strings.Join(args, " "), text)
	} else if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

func readSysctl(name string) string {
	text, err := os.ReadFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func findLink(name string) (exists, up bool) {
	i, err := net.InterfaceByName(name)
	return err == nil, err == nil && i.Flags&net.FlagUp != 0
}

func onLoopback(a netip.Addr) bool {
	return hasAddress("lo", func(ip net.IP) bool { return ip.Equal(a.AsSlice()) })
}

func hasIPv4(device string) bool {
	return hasAddress(device, func(ip net.IP) bool { return ip.To4() != nil })
}

// hasAddress reports whether an address of a device fits.
func hasAddress(device string, fits func(net.IP) bool) bool {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return false
	}
	all, _ := i.Addrs()
	return slices.ContainsFunc(all, func(x net.Addr) bool {
		n, ok := x.(*net.IPNet)
		return ok && fits(n.IP)
	})
}

// MTU returns the least of the devices that are up, except loopback and tunnels.
func MTU() (least int) {
	all, _ := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagBroadcast != 0 && (least == 0 || i.MTU < least) {
			least = i.MTU
		}
	}
	return least
}

// record is the content of the file Host.Record.
type record struct {
	Spec Spec `json:"spec"`
	// Changes are those of this package, in their order.
	Changes []change `json:"changes"`
}

// change is a step that was carried out, and the commands that revert it.
type change struct {
	What string     `json:"what"`
	Undo [][]string `json:"undo"`
}

func (h Host) load() (r record, err error) {
	text, err := os.ReadFile(h.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read %s: %w", h.Record, err)
	}
	return r, nil
}

func (h Host) store(r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(h.Record+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(h.Record+".new", h.Record)
	}
	return err
}

// Configured returns the specification of the last Configure, an empty one without any.
func (h Host) Configured() (Spec, error) {
	r, err := h.load()
	return r.Spec, err
}

// Configure brings the specification into effect, and reverts what an earlier one needed and this
// one does not. A failure of that keeps no new part waiting. It returns the commands that it ran.
func (h Host) Configure(ctx context.Context, s Spec) (ran []string, err error) {
	r, err := h.load()
	if err != nil {
		return nil, err
	}
	steps := s.steps()
	wanted := func(c change) bool {
		return slices.ContainsFunc(steps, func(p step) bool { return p.what == c.What })
	}
	ran, reverted := h.revert(ctx, &r, func(c change) bool { return !wanted(c) })
	defer func() { err = errors.Join(reverted, err) }()
	r.Spec = s
	for _, p := range steps {
		if p.fault(ctx, h) == "" {
			continue
		}
		// Before the step, so that an interruption leaves nothing that is not recorded.
		if !slices.ContainsFunc(r.Changes, func(c change) bool { return c.What == p.what }) {
			for _, c := range p.do {
				if c[0] == "modprobe" { // the device of a module shows the state to restore
					if err := h.all(ctx, &ran, [][]string{c}); err != nil {
						return ran, err
					}
				}
			}
			r.Changes = append(r.Changes, change{p.what, p.undo(ctx, h)})
		}
		if err := h.store(r); err != nil {
			return ran, err
		}
		if err := h.all(ctx, &ran, p.do); err != nil {
			return ran, err
		}
		if fault := p.fault(ctx, h); fault != "" {
			return ran, fmt.Errorf("%s: %s, after %s", p.what, fault, shell(p.do[len(p.do)-1]))
		}
	}
	return ran, h.store(r)
}

// all runs commands, and adds them to ran.
func (h Host) all(ctx context.Context, ran *[]string, commands [][]string) error {
	for _, c := range commands {
		if line := shell(c); !slices.Contains(*ran, line) {
			if _, err := h.Run(ctx, c...); err != nil {
				return err
			}
			*ran = append(*ran, line)
		}
	}
	return nil
}

// Undo reverts all changes of Configure. It returns the commands that it ran.
func (h Host) Undo(ctx context.Context) (ran []string, err error) {
	r, err := h.load()
	if err != nil {
		return nil, err
	}
	ran, err = h.revert(ctx, &r, func(change) bool { return true })
	if gone := os.Remove(h.Record); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return ran, err
}

// revert undoes the changes that match, the last one first. A change that fails, because another
// program reverted it, is reported and forgotten.
func (h Host) revert(ctx context.Context, r *record, match func(change) bool) (ran []string, err error) {
	var errs []error
	for i := len(r.Changes) - 1; i >= 0; i-- {
		if c := r.Changes[i]; match(c) {
			errs = append(errs, h.all(ctx, &ran, c.Undo))
			r.Changes = slices.Delete(r.Changes, i, i+1)
		}
	}
	if len(ran) > 0 || len(errs) > 0 {
		errs = append(errs, h.store(*r))
	}
	return ran, errors.Join(errs...)
}
