package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// need is a program a lab uses, or the path of another file, and the Debian package it comes in.
type need struct{ program, pkg string }

var (
	needsOfAll = []need{
		{"ip", "iproute2"}, {"iptables", "iptables"}, {"ipset", "ipset"}, {"ipvsadm", "ipvsadm"},
		{"conntrack", "conntrack"}, {"tcpdump", "tcpdump"}, {"curl", "curl"}, {"ps", "procps"},
		{"depmod", "kmod"}, {"modprobe", "kmod"}, {"nft", "nftables"}, {"ethtool", "ethtool"},
	}
	needsOfQemu = []need{{qemuProgram, "qemu-system-x86"}}
)

// Tools are programs of others that only some tests need.
type Tools struct {
	missing string // the beginning of the error
	flags   string // of apt-get
	needs   []need
}

// The tools.
var (
	Routers = Tools{"routers' packages are missing", "", []need{
		{"bird", "bird2"}, {"birdc", "bird2"}, {frrPrograms + "bgpd", "frr"}, {"vtysh", "frr"}, {"gobgpd", "gobgpd"}, {"gobgp", "gobgpd"},
	}}
	Keepalived = Tools{"keepalived is missing", "", []need{{"keepalived", "keepalived"}}}
	// Chromium opens the status page with Browser.
	Chromium = Tools{"a browser is missing", "--no-install-recommends ", []need{{Browser, "chromium"}}}
	// Packaging looks over weir's own packages.
	Packaging = Tools{"what looks over packages is missing", "", []need{
		{"make", "make"}, {"git", "git"}, {"lintian", "lintian"}, {"rpm", "rpm"}, {"gpg", "gnupg"}, {"shellcheck", "shellcheck"}, {"groff", "groff-base"}, {"mandoc", "mandoc"},
		{"/usr/share/bash-completion/bash_completion", "bash-completion"},
	}}
	// Race is the C compiler that go test -race needs.
	Race = Tools{"a C compiler is missing", "", []need{{"gcc", "gcc"}, {"/usr/include/stdlib.h", "libc6-dev"}}}
	// OldKernel is Debian's user-mode Linux.
	OldKernel = Tools{needs: []need{{umlOldProgram, "user-mode-linux"}}}
	// KernelBuild is for BuildKernel.
	KernelBuild = Tools{needs: []need{
		{"make", "make"}, {"gcc", "gcc"}, {"/usr/include/stdlib.h", "libc6-dev"}, {"flex", "flex"}, {"bison", "bison"}, {"bc", "bc"},
		{"xz", "xz-utils"}, {"depmod", "kmod"}, {archiveKeyring, "debian-archive-keyring"},
	}}
	// Debootstrap is for BuildSystemd.
	Debootstrap = Tools{needs: []need{{"debootstrap", "debootstrap"}}}
)

// Missing lists the Debian packages to install for the tools, sorted.
func (x Tools) Missing() []string { return packagesOf(x.needs, absent) }

// Check returns an error with the command that helps if one of the tools is missing.
func (x Tools) Check() error {
	if missing := x.Missing(); len(missing) > 0 {
		return fmt.Errorf("%s: weirlab install, or apt-get install -y %s%s", x.missing, x.flags, strings.Join(missing, " "))
	}
	return nil
}

// Require skips or fails a test that needs the tools, as Start does.
func (x Tools) Require(t testing.TB) {
	t.Helper()
	skipFor(t, x.Check())
}

// Check returns the reason why a lab with boxes on these kernels cannot run here, and the command that helps; nil
// when it can.
func Check(kernels ...Kernel) error {
	if err := CheckRoot(); err != nil {
		return err
	}
	missing := MissingPackages(kernels...)
	if len(missing) > 0 {
		return fmt.Errorf("packages are missing: apt-get install -y %s", strings.Join(missing, " "))
	}
	if asked(kernels, UML, Qemu, KVM) {
		if err := CheckTun(); err != nil {
			return err
		}
	}
	if slices.Contains(kernels, UML) {
		if _, err := findUML(); err != nil {
			return err
		}
	}
	if asked(kernels, Qemu, KVM) {
		kernel, err := debianKernel()
		if err != nil {
			return err
		}
		if slices.Contains(kernels, KVM) {
			if err := tryKVM(kernel); err != nil {
				return err
			}
		}
	}
	if slices.Contains(kernels, HostKernel) {
		return CheckHostKernel()
	}
	return nil
}

// CheckRoot returns an error unless this process may make namespaces and network cards. Root of a container
// often may not.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab makes namespaces and network cards, and installing it takes apt-get: run this as root (sudo make ...)")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	const needed = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	if have := capabilities(string(status)); have&needed != needed {
		return errors.New("a lab makes namespaces and network cards, for which this root lacks CAP_SYS_ADMIN or CAP_NET_ADMIN: run the container with --privileged")
	}
	return nil
}

// capabilities are the effective ones in the text of /proc/PID/status.
func capabilities(status string) uint64 {
	_, rest, _ := strings.Cut(status, "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	have, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return 0
	}
	return have
}

// CheckSpace returns an error where the cache folder has less free disk space than need, in bytes; purpose
// takes it.
func CheckSpace(need int64, purpose string) error {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil //nolint:nilerr // it is not known where
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(base, &fs); err != nil {
		return fmt.Errorf("ask for the free space of %s: %w", base, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("%s has %d MiB of free disk space, and %s takes %d: free some, or set XDG_CACHE_HOME to a folder on another disk",
			base, free>>20, purpose, need>>20)
	}
	return nil
}

// CheckTun returns an error where this machine can't give a box a network card.
func CheckTun() error {
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the boxes' network cards need a tun device: %w; modprobe tun, or give this container /dev/net/tun", err)
	}
	return file.Close()
}

// MissingPackages lists the Debian packages to install for boxes on these kernels, sorted.
func MissingPackages(kernels ...Kernel) []string {
	needs := slices.Clone(needsOfAll)
	if asked(kernels, Qemu, KVM) {
		needs = append(needs, needsOfQemu...)
	}
	return packagesOf(needs, absent)
}

// Browser is the program that opens the status page.
const Browser = "chromium"

func packagesOf(needs []need, lacks func(program string) bool) []string {
	var packages []string
	for _, n := range needs {
		if lacks(n.program) {
			packages = append(packages, n.pkg)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

func absent(program string) bool {
	if filepath.IsAbs(program) {
		_, err := os.Stat(program)
		return err != nil
	}
	return findProgram(program) == ""
}

// findProgram looks in PATH and where an administrator's programs are, which PATH may lack.
func findProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// CheckHostKernel returns an error unless the kernel of this machine has IPVS. Boxes on it are namespaces and
// need no tun device.
func CheckHostKernel() error {
	_ = exec.Command(findProgram("modprobe"), "-q", "ip_vs").Run() // the file shows whether it helped
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return errors.New("this machine's own kernel has no IPVS (no /proc/net/ip_vs): modprobe ip_vs")
	}
	return nil
}
