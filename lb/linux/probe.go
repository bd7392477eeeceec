package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// procNet is the network namespace of the calling thread. /proc/net is that of the process's
// first thread, which may be in another one.
const procNet = "/proc/thread-self/net/"

// ErrNoIPVS reports that the kernel has no IPVS, and that the module can't be loaded. Errors
// that wrap it have the fix.
var ErrNoIPVS = errors.New("the kernel has no IPVS")

// MissingError is a missing part of the kernel or the system, with the fix.
type MissingError struct {
	// What names the missing part: "module ip_vs_mh", "program iptables-restore".
	What string
	// Fix describes the fix.
	Fix string
	// Err is the underlying error, or nil.
	Err error
}

func (e *MissingError) Error() string {
	s := e.What + " is missing: " + e.Fix
	if e.Err != nil {
		s += " (" + e.Err.Error() + ")"
	}
	return s
}

func (e *MissingError) Unwrap() error { return e.Err }

func missingModule(module string, err error) error {
	return &MissingError{What: "kernel module " + module, Fix: moduleFix(module), Err: err}
}

func missingScheduler(name string) error { return missingModule("ip_vs_"+name, unix.ENOENT) }

// moduleFix names no weir.conf in /etc/modules-load.d: it would replace the package's file of that name.
func moduleFix(module string) string {
	return fmt.Sprintf("run `modprobe %s` and name it in /etc/modules-load.d/weir-local.conf; if there is no such file, install %s",
		module, kernelPackage(kernelRelease()))
}

// kernelRelease returns the release of the running kernel, such as 6.1.0-9-amd64; "" if it is unknown.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// rpmKernel matches the kernels of RHEL, its relatives and Fedora. Their package kernel may be without the modules in
// kernel-modules-extra, such as those of ipset. kernel-modules brings kernel-modules-core.
var rpmKernel = regexp.MustCompile(`\.(el|fc)\d`)

// kernelPackage returns the package with the modules of a kernel.
func kernelPackage(release string) string {
	switch {
	case release == "":
		return "the full kernel package"
	case rpmKernel.MatchString(release):
		return "kernel-modules-" + release + " and kernel-modules-extra-" + release
	case strings.Contains(release, ".amzn"):
		return "kernel-modules-extra, or kernel6.12-modules-extra with Linux 6.12"
	case strings.Contains(release, "cloud"):
		return "linux-image-amd64 (the cloud kernel has fewer modules) and boot it"
	}
	return "linux-image-" + release + " or a kernel that has it"
}

// ipv4Only is the fix for a system without IPv6.
const ipv4Only = `families = ["ipv4"] in [kernel]`

// probeFamily returns an error if the kernel lacks a family, according to the parameters below
// root. One that is only off on interfaces exists.
func probeFamily(f lb.Family, root string) error {
	if f != lb.IPv6 {
		return nil
	}
	// The socket loads module ipv6. With ipv6.disable=1 the module exists, but has no parameters.
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd) // it was never used
		_, err = os.Stat(path.Join(root, "net/ipv6/conf/all"))
	}
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, fs.ErrNotExist) {
		return &MissingError{What: "IPv6 in this kernel", Err: cause(err),
			Fix: "set " + ipv4Only + ", or boot without ipv6.disable=1"}
	}
	return nil
}

// probeIPVS returns IPVS's number in generic netlink. For that question the kernel itself loads
// module ip_vs where it has an alias for it, as in Linux 6.1 and 7.3. Elsewhere systemd has loaded it
// (systemd/weir.modules-load).
func probeIPVS(ctx context.Context, c *conn) (uint16, error) {
	family, err := genlFamily(ctx, c, "IPVS")
	if errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("%w: %w", ErrNoIPVS, missingModule("ip_vs", err))
	}
	return family, err
}

// needPrivilege adds the privileges to an EPERM.
func needPrivilege(err error) error {
	if errors.Is(err, unix.EPERM) && !errors.As(err, new(*MissingError)) {
		return fmt.Errorf("%w (weir needs CAP_NET_ADMIN and CAP_NET_RAW)", err)
	}
	return err
}

// xtNeed is a match or target with its module.
type xtNeed struct{ kind, name, module string }

// xtNeeds are those of the static rules of all configurations.
var xtNeeds = []xtNeed{
	{"matches", "addrtype", "xt_addrtype"},
	{"matches", "comment", "xt_comment"},
	{"matches", "connmark", "xt_connmark"},
	{"matches", "conntrack", "xt_conntrack"},
	{"matches", "mark", "xt_mark"},
	{"matches", "set", "xt_set"},
	{"targets", "CONNMARK", "xt_connmark"},
	{"targets", "MARK", "xt_mark"},
	{"targets", "MASQUERADE", "xt_MASQUERADE"},
	{"targets", "REJECT", "REJECT"},
	{"targets", "SET", "xt_set"},
}

// moreNeeds returns those of the static rules that only some configurations have.
func (c Config) moreNeeds(f lb.Family) (out []xtNeed) {
	tunnels := c.Decapsulates && f == lb.IPv4
	if tunnels || c.SloppyTCP {
		out = append(out, xtNeed{"matches", "tcp", "xt_tcpudp"})
	}
	if tunnels {
		out = append(out, xtNeed{"targets", "TCPMSS", "xt_TCPMSS"})
	}
	return out
}

// missingXT returns the modules that the rules of a family need and that the kernel has not
// loaded on demand.
func missingXT(tables string, more ...xtNeed) []string {
	var out []string
	loaded := map[string]map[string]bool{}
	for _, kind := range []string{"matches", "targets"} {
		b, err := os.ReadFile(procNet + tables + "_" + kind)
		if err != nil {
			return nil
		}
		loaded[kind] = map[string]bool{}
		for _, name := range strings.Fields(string(b)) {
			loaded[kind][name] = true
		}
	}
	reject := map[string]string{"ip_tables": "ipt_REJECT", "ip6_tables": "ip6t_REJECT"}[tables]
	for _, need := range append(xtNeeds[:len(xtNeeds):len(xtNeeds)], more...) {
		if loaded[need.kind][need.name] {
			continue
		}
		module := need.module
		if module == "REJECT" {
			module = reject
		}
		out = append(out, module)
	}
	return out
}
