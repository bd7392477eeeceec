package lab

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// moduleFolder returns a folder with the lib/modules of a kernel that has its modules in
// source/VERSION. It has an index of its own, as the source may have none and is not ours to
// write in; the modules themselves are linked to.
func moduleFolder(source, version string) (string, error) {
	tree := filepath.Join("lib/modules", version)
	return cached("modules-"+version+"-"+sumOfBytes([]byte(source)), func(dir string) error {
		from, to := filepath.Join(source, version), filepath.Join(dir, tree)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(from, "kernel"), filepath.Join(to, "kernel")); err != nil {
			return err
		}
		for _, list := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
			content, err := os.ReadFile(filepath.Join(from, list))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, list), content, 0o644); err != nil {
				return err
			}
		}
		out, err := exec.Command(findProgram("depmod"), "-b", dir, version).CombinedOutput()
		if err != nil {
			return fmt.Errorf("depmod %s: %w: %s", version, err, bytes.TrimSpace(out))
		}
		return nil
	})
}

// A box has loaded all that iptables, ipset and IPVS may call for before it is handed over: the
// modules of these names, and those with names that begin so.
var (
	preloadNames = []string{
		"bpfilter", "bridge", "dummy", "inet_diag", "ip6_tables", "ip_tables", "ipv6", "nf_conntrack", "nf_conntrack_netlink",
		"nf_nat", "nf_tables", "nlmon", "sctp", "sctp_diag", "tcp_diag", "tun", "udp_diag", "veth", "vrf", "x_tables",
	}
	preloadBeginnings = []string{
		"ip6t_", "ip6table_", "ip_set", "ip_vs", "ipt_", "iptable_", "nf_log_", "nf_reject_", "nfnetlink", "nft_", "xt_",
	}
	// These change what a plain kernel does once they are there.
	preloadNot = []string{"ip_vs_ftp", "ip_vs_pe_sip"}
)

// preload lists the modules of a kernel to be loaded in advance, sorted.
func preload(folder, version string) ([]string, error) {
	var names []string
	root, err := filepath.EvalSymlinks(filepath.Join(folder, "lib/modules", version, "kernel"))
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _, isModule := strings.Cut(entry.Name(), ".ko")
		if isModule && wantPreloaded(name) {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

func wantPreloaded(name string) bool {
	if slices.Contains(preloadNot, name) {
		return false
	}
	begins := func(beginning string) bool { return strings.HasPrefix(name, beginning) }
	return slices.Contains(preloadNames, name) || slices.ContainsFunc(preloadBeginnings, begins)
}

// modulesOf returns those of the names that are modules of the kernel, and not built in.
func modulesOf(base, version string, names ...string) []string {
	list, err := os.ReadFile(filepath.Join(base, "lib/modules", version, "modules.dep"))
	if err != nil {
		return names // modprobe reports the error
	}
	return slices.DeleteFunc(names, func(name string) bool { return !bytes.Contains(list, []byte("/"+name+".ko")) })
}

// withDependencies lists the files to insert for some modules, in order. base is the folder that
// holds lib/modules.
func withDependencies(base, version string, names ...string) ([]string, error) {
	var files []string
	for _, name := range names {
		out, err := exec.Command(findProgram("modprobe"), "-d", base, "-S", version, "--show-depends", name).Output()
		if err != nil {
			return nil, fmt.Errorf("dependencies of module %s %s: %w", name, version, err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "insmod" || slices.Contains(files, fields[1]) {
				continue // built in, or there already
			}
			files = append(files, fields[1])
		}
	}
	return files, nil
}
