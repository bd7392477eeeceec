package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// need is a program a lab uses, or the path of another file, and the Debian package it comes in.
type need struct{ program, pkg string }

var (
	needsOfAll = []need{
		{"ip", "iproute2"}, {"iptables", "iptables"}, {"ipset", "ipset"}, {"ipvsadm", "ipvsadm"},
		{"conntrack", "conntrack"}, {"tcpdump", "tcpdump"}, {"curl", "curl"}, {"ps", "procps"},
		{"depmod", "kmod"}, {"modprobe", "kmod"},
	}
	needsOfOldUML  = []need{{umlOldProgram, "user-mode-linux"}}
	needsOfQemu    = []need{{qemuProgram, "qemu-system-x86"}, {"nft", "nftables"}}
	needsOfRouters = []need{
		{"bird", "bird2"}, {"birdc", "bird2"}, {frrPrograms + "bgpd", "frr"}, {"vtysh", "frr"}, {"gobgpd", "gobgpd"}, {"gobgp", "gobgpd"},
	}
	needsOfKeepalived = []need{{"keepalived", "keepalived"}}
	needsOfBrowser    = []need{{Browser, "chromium"}}
	needsOfPackaging  = []need{
		{"make", "make"}, {"git", "git"}, {"lintian", "lintian"}, {"rpm", "rpm"}, {"shellcheck", "shellcheck"}, {"groff", "groff-base"}, {"mandoc", "mandoc"},
		{"/usr/share/bash-completion/bash_completion", "bash-completion"},
	}
	needsOfC = []need{{"gcc", "gcc"}, {"/usr/include/stdlib.h", "libc6-dev"}}
)

// Check tells why a lab with boxes on these kernels cannot run here, and the command that helps; nil
// when it can.
func Check(kernels ...Kernel) error {
	if err := checkRoot(); err != nil {
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
		return checkHostKernel()
	}
	return nil
}

func checkRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab makes namespaces and network cards: run this as root")
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

// MissingRacePackages lists the Debian packages to install for go test -race, whose detector is C.
func MissingRacePackages() []string { return packagesOf(needsOfC, absent) }

// MissingRouterPackages lists the Debian packages to install for routers, sorted.
func MissingRouterPackages() []string { return packagesOf(needsOfRouters, absent) }

// MissingPackagingPackages lists the Debian packages to install for tests of weir's own packages, sorted.
func MissingPackagingPackages() []string { return packagesOf(needsOfPackaging, absent) }

// CheckPackaging tells why weir's packages can't be looked over here, and the command that helps; nil
// when they can.
func CheckPackaging() error {
	if missing := MissingPackagingPackages(); len(missing) > 0 {
		return fmt.Errorf("what looks over packages is missing: weirlab install, or apt-get install -y %s", strings.Join(missing, " "))
	}
	return nil
}

// CheckRouters tells why there can be no routers here, and the command that helps; nil when there can.
func CheckRouters() error {
	if missing := MissingRouterPackages(); len(missing) > 0 {
		return fmt.Errorf("routers' packages are missing: weirlab install, or apt-get install -y %s", strings.Join(missing, " "))
	}
	return nil
}

// MissingKeepalivedPackages lists the Debian packages to install for boxes that run keepalived.
func MissingKeepalivedPackages() []string { return packagesOf(needsOfKeepalived, absent) }

// CheckKeepalived tells why there can be no boxes with keepalived here, and the command that helps; nil
// when there can.
func CheckKeepalived() error {
	if missing := MissingKeepalivedPackages(); len(missing) > 0 {
		return fmt.Errorf("keepalived is missing: weirlab install, or apt-get install -y %s", strings.Join(missing, " "))
	}
	return nil
}

// Browser is the program that looks at the status page.
const Browser = "chromium"

// MissingBrowserPackages lists the Debian packages to install for a browser.
func MissingBrowserPackages() []string { return packagesOf(needsOfBrowser, absent) }

// CheckBrowser tells why there can be no browser here, and the command that helps; nil when there can.
func CheckBrowser() error {
	if missing := MissingBrowserPackages(); len(missing) > 0 {
		return fmt.Errorf("a browser is missing: weirlab install, or apt-get install -y --no-install-recommends %s", strings.Join(missing, " "))
	}
	return nil
}

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

func checkHostKernel() error {
	_ = exec.Command(findProgram("modprobe"), "-q", "ip_vs").Run() // the file tells whether it helped
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return errors.New("this machine's own kernel has no IPVS (no /proc/net/ip_vs): modprobe ip_vs")
	}
	return nil
}
