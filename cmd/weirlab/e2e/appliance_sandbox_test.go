package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sandboxProbe makes system calls (numbers of x86-64) and uses files, and prints the result of each: done, or
// the number of the error. The calls change nothing that outlives the program, also where they succeed.
const sandboxProbe = `#!/usr/bin/perl
my $zero = "\0" x 64;
sub result { printf "probe %s %s\n", $_[0], $_[1] ? "done" : $! + 0 }
sub try { my ($name, $number, @call) = @_; $! = 0; result($name, syscall($number, @call) >= 0) }
try("netlink-socket", 41, 16, 3, 0);
try("packet-socket", 41, 17, 3, 0);
try("mount", 165, my $none = "none", my $at = "/mnt", my $type = "tmpfs", 0, 0);
try("umount", 166, $at, 0);
try("ptrace", 101, 0, 0, 0, 0);
try("setuid", 105, 0);
try("bpf", 321, 0, $zero, 64);
try("init_module", 175, $zero, 0, my $empty = "");
try("reboot", 169, 0, 0, 0, 0);
try("clock_settime", 227, 99, $zero);
try("unshare-network", 272, 0x40000000);
try("write-execute-memory", 9, 0, 4096, 7, 0x22, -1, 0);
try("personality", 135, 8);
try("realtime", 144, 0, 1, my $priority = pack("l", 1));
try("chroot", 161, my $root = "/");
try("io_uring_setup", 425, 0, $zero);
try("add_key", 248, $none, $none, $none, 0, 0);
try("mlockall", 151, 0);
try("perf_event_open", 298, $zero, 0, -1, -1, 0);
sub put { my ($name, $file) = @_; $! = 0; my $ok = open(my $f, ">>", $file); result($name, $ok); close $f if $ok }
put("write-state", "/var/lib/weir/probe");
put("write-runtime", "/run/weir/probe");
put("write-net-sysctl", "/proc/sys/net/ipv4/ip_forward");
put("write-etc", "/etc/weir/probe");
put("write-usr", "/usr/probe");
put("write-kernel-sysctl", "/proc/sys/kernel/core_pattern");
sub look { my ($name, $file) = @_; $! = 0; result($name, open(my $f, "<", $file) ? 1 : 0) }
look("read-root-home", "/root/.");
look("read-credentials", "/etc/weir/credentials/prod");
look("read-shadow", "/etc/shadow");
look("device-of-memory", "/dev/mem");
$! = 0; result("set-user-id-bit", chmod(04755, "/var/lib/weir/probe"));
unlink "/var/lib/weir/probe", "/run/weir/probe", "/etc/weir/probe", "/usr/probe";
`

// What weir may do of it, and what root may that weir may not. The others depend on the kernel.
var (
	probeAllowed = []string{"netlink-socket", "packet-socket", "write-state", "write-runtime", "write-net-sysctl"}
	probeOfRoot  = []string{
		"mount", "umount", "ptrace", "setuid", "unshare-network", "write-execute-memory", "personality", "realtime", "chroot",
		"write-etc", "write-usr", "write-kernel-sysctl", "read-root-home", "read-credentials", "read-shadow", "set-user-id-bit",
	}
)

// denials are the errors that a denied action may have: EPERM, EACCES, EROFS, ENOENT (a hidden device).
var denials = []string{"1", "13", "30", "2"}

// applianceIsDenied has the unit run a program beside weir, with the same permissions: what weir does not
// need is denied by the kernel, and the same calls of root succeed.
func applianceIsDenied(t *testing.T, a *appliance) {
	const file, dropIn = "/usr/local/bin/probe", "/etc/systemd/system/weir.service.d/probe.conf"
	must(t, a.box.WriteFile(within(t, 10*time.Second), file, sandboxProbe, 0o755))
	a.box.Must(t, "mkdir", "-p", "/etc/systemd/system/weir.service.d")
	must(t, a.box.WriteFile(within(t, 10*time.Second), dropIn, "[Service]\nExecStartPre="+file+"\n", 0o644))
	a.systemctl(t, "daemon-reload")
	a.systemctl(t, "restart", "weir")
	var confined map[string]string
	eventually(t, 30*time.Second, func() error { // until the journal has it
		confined = resultsOf(a.box.Must(t, "journalctl", "-u", "weir", "-o", "cat", "--no-pager"))
		if confined["set-user-id-bit"] == "" {
			return fmt.Errorf("the unit has probed %v", confined)
		}
		return nil
	})
	root := resultsOf(a.box.Must(t, file))
	for _, action := range probeOfRoot {
		if root[action] != "done" {
			t.Errorf("root cannot %s: %q, so the probe shows nothing", action, root[action])
		}
	}
	for action, result := range confined {
		switch allowed := slices.Contains(probeAllowed, action); {
		case allowed && result != "done":
			t.Errorf("%s is denied: error %s", action, result)
		case !allowed && !slices.Contains(denials, result):
			t.Errorf("%s is not denied: %s", action, result)
		}
	}
	if len(confined) != len(root) || len(confined) < len(probeAllowed)+len(probeOfRoot) {
		t.Errorf("probed in the unit: %v; by root: %v", confined, root)
	}
	t.Logf("in the unit: %v; by root: %v", confined, root)
	a.box.Must(t, "rm", file, dropIn)
	a.systemctl(t, "daemon-reload")
	a.systemctl(t, "restart", "weir")
}

// resultsOf returns the last results of a probe.
func resultsOf(output string) map[string]string {
	results := map[string]string{}
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "probe" {
			results[words[1]] = words[2]
		}
	}
	return results
}
