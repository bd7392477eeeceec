package gather

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/doctor/facts"
)

// unit is what the packages call it.

// system reads the state of weir's unit, and the limits of its process.
func (g gatherer) system(ctx context.Context) (func(*facts.Facts), error) {
	var s facts.SystemFacts
	if _, err := os.Stat(g.path("/run/systemd/system")); err == nil { // sd_booted(3)
		shown, err := show(ctx, facts.Unit, "LoadState", "UnitFileState", "ActiveState")
		if err != nil {
			return nil, err
		}
		s.Booted, s.Enabled, s.Active = shown["LoadState"] == "loaded", shown["UnitFileState"], shown["ActiveState"]
		networkd, err := show(ctx, "systemd-networkd", "ActiveState")
		if err != nil {
			return nil, err
		}
		s.Networkd = networkd["ActiveState"] == "active"
		s.NetworkdKeeps = g.networkdKeeps()
	}
	if g.pid > 0 {
		fds, err := os.ReadDir(g.path(fmt.Sprintf("/proc/%d/fd", g.pid)))
		if limits, errLimits := g.read(fmt.Sprintf("/proc/%d/limits", g.pid)); err == nil && errLimits == nil {
			s.OpenFiles, s.Most = len(fds), parseLimits(limits)
		}
	}
	return func(f *facts.Facts) { f.System = s }, nil
}

// show asks systemd for properties of a unit; one that is not there has them too.
func show(ctx context.Context, unit string, properties ...string) (map[string]string, error) {
	text, err := exec.CommandContext(ctx, "systemctl", "show", "-p", strings.Join(properties, ","), unit).Output()
	if err != nil {
		return nil, fmt.Errorf("systemctl show %s: %w", unit, err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[name] = value
		}
	}
	return out, nil
}

// networkdKeeps reports whether systemd-networkd is configured to keep foreign routes
// (networkd.conf(5)).
func (g host) networkdKeeps() bool {
	files := []string{g.path("/etc/systemd/networkd.conf")}
	for _, dir := range []string{"/usr/lib", "/run", "/etc"} {
		more, _ := filepath.Glob(g.path(dir + "/systemd/networkd.conf.d/*.conf")) // a constant pattern
		files = append(files, more...)
	}
	keeps := false
	for _, name := range files {
		text, _ := os.ReadFile(name) // a missing file sets nothing
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(key) == "ManageForeignRoutes" {
				keeps = slices.Contains([]string{"no", "false", "off", "0"}, strings.TrimSpace(value))
			}
		}
	}
	return keeps
}

// parseLimits finds how many files a process may open in its /proc/PID/limits; 0 is not
// known.
func parseLimits(text string) int {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, _ := strconv.Atoi(f[0]) // "unlimited" is not known
				return n
			}
		}
	}
	return 0
}

// account is who the daemon is.
type account struct {
	name string
	uid  uint32
	gids []uint32
}

// account finds who the daemon is: by its process, or by its unit.
func (g gatherer) account(ctx context.Context) account {
	if g.pid > 0 {
		if text, err := g.read(fmt.Sprintf("/proc/%d/status", g.pid)); err == nil {
			return parseAccount(text)
		}
	}
	if _, err := os.Stat(g.path("/run/systemd/system")); err != nil {
		return account{name: "root"}
	}
	shown, _ := show(ctx, facts.Unit, "User") // where there is no unit, root runs it
	u, err := user.Lookup(shown["User"])
	if err != nil {
		return account{name: "root"}
	}
	a := account{name: u.Username}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32) // a number, on Linux
	a.uid = uint32(uid)
	ids, _ := u.GroupIds() // none: then others' rights decide
	for _, text := range ids {
		gid, _ := strconv.ParseUint(text, 10, 32)
		a.gids = append(a.gids, uint32(gid))
	}
	return a
}

// parseAccount reads the effective user and the groups of /proc/PID/status.
func parseAccount(text string) account {
	var a account
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		for i, word := range f[1:] {
			n, err := strconv.ParseUint(word, 10, 32)
			switch {
			case err != nil:
			case f[0] == "Uid:" && i == 1:
				a.uid = uint32(n)
			case f[0] == "Gid:" && i == 1, f[0] == "Groups:":
				a.gids = append(a.gids, uint32(n))
			}
		}
	}
	a.name = strconv.Itoa(int(a.uid))
	if u, err := user.LookupId(a.name); err == nil {
		a.name = u.Username
	}
	return a
}

// files checks the files that the daemon reads and writes.
func (g gatherer) files(ctx context.Context) (func(*facts.Facts), error) {
	if g.cfg == nil {
		return func(*facts.Facts) {}, nil
	}
	who := g.account(ctx)
	var out []facts.FileFact
	add := func(key, name string, write bool) {
		// Credentials are root's, and systemd passes them on.
		if name == "" || !filepath.IsAbs(name) || strings.HasPrefix(name, "/etc/weir/credentials/") || strings.HasPrefix(name, "/run/credentials/") {
			return
		}
		out = append(out, facts.FileFact{Key: key, Name: name, Write: write, User: who.name, Error: g.forbids(who, name, write)})
	}
	for _, name := range g.cfg.Files {
		add("the configuration", name, false)
	}
	for _, c := range g.cfg.Clusters {
		add("kubernetes."+c.Name+".kubeconfig", c.Kubeconfig, false)
	}
	if g.cfg.Fleet != nil {
		for _, name := range g.cfg.Fleet.KeyFiles {
			add("fleet.keys", name, false)
		}
	}
	if g.cfg.BGP != nil {
		for peer, name := range g.cfg.BGP.PasswordFiles {
			add("bgp.peer."+peer+".password_file", name, false)
		}
	}
	add("daemon.state_dir", g.cfg.Daemon.StateDir, true)
	slices.SortFunc(out, func(a, b facts.FileFact) int { return strings.Compare(a.Key+a.Name, b.Key+b.Name) })
	disk := facts.DiskFacts{Dir: g.cfg.Daemon.StateDir, FreeSpace: 100, FreeFiles: 100}
	var st unix.Statfs_t
	if err := unix.Statfs(g.path(disk.Dir), &st); err == nil {
		disk.FreeSpace, disk.FreeFiles = percent(st.Bavail, st.Blocks), percent(st.Ffree, st.Files)
	}
	return func(f *facts.Facts) { f.Files, f.Disk = out, disk }, nil
}

// percent is a share of a whole; of nothing everything is free.
func percent(part, whole uint64) int {
	if whole == 0 {
		return 100
	}
	return int(part * 100 / whole)
}

// forbids returns the reason why a user can't read a file or write into a folder; "" if
// there is none.
func (g host) forbids(who account, name string, write bool) string {
	need := uint32(4)
	if write {
		need = 3 // to make files in it
		var st unix.Statfs_t
		if err := unix.Statfs(g.path(name), &st); err == nil && st.Flags&unix.ST_RDONLY != 0 {
			return "its file system is read-only"
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(g.path(name), &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return facts.NoFile
		}
		return err.Error()
	}
	if !who.may(st, need) {
		return fmt.Sprintf("mode %#o, owner %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
	}
	for dir := filepath.Dir(name); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if err := unix.Stat(g.path(dir), &st); err == nil && !who.may(st, 1) {
			return fmt.Sprintf("%s has mode %#o, owner %d:%d", dir, st.Mode&0o7777, st.Uid, st.Gid)
		}
	}
	return ""
}

// may reports whether a user has rights (4 read, 2 write, 1 search) by an inode's mode.
func (a account) may(st unix.Stat_t, need uint32) bool {
	mode := st.Mode
	switch {
	case a.uid == 0:
		return true
	case st.Uid == a.uid:
		mode >>= 6
	case slices.Contains(a.gids, st.Gid):
		mode >>= 3
	}
	return mode&need == need
}
