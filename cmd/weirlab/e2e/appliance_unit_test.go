package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mostExposed is the limit for systemd-analyze security: 0 is a program that can do
// nothing, 10 is root's.
const mostExposed = 2.0

// applianceIsConfined checks the rights of weir's process, and has it use all of them:
// parameters of the kernel, the lock of iptables, sockets of all kinds.
func applianceIsConfined(t *testing.T, a *appliance) {
	out, _ := a.box.Run(t.Context(), "systemd-analyze", "security", "--no-pager", "weir.service")
	m := regexp.MustCompile(`Overall exposure level for weir.service: ([0-9.]+)`).FindStringSubmatch(out.Stdout)
	if m == nil {
		t.Fatalf("systemd-analyze security says\n%s%s", out.Stdout, out.Stderr)
	}
	if score, err := strconv.ParseFloat(m[1], 64); err != nil || score > mostExposed {
		t.Errorf("exposure %s, want at most %.1f:\n%s", m[1], mostExposed, out.Stdout)
	}
	figure(t, "systemd-analyze security: exposure, of 10", m[1])
	if out, err := a.box.Run(t.Context(), "systemd-analyze", "verify", "--man=no", "weir.service"); err != nil || out.Stderr != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out.Stderr)
	}

	status := a.box.Must(t, "cat", "/proc/"+a.show(t, "MainPID")+"/status")
	user := strings.TrimSpace(a.box.Must(t, "id", "-u", "weir"))
	const three = "0000000000003400" // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW: bits 10, 12, 13
	for field, want := range map[string]string{
		"Uid": strings.Join([]string{user, user, user, user}, "\t"), "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": three, "CapPrm": three, "CapEff": three, "CapBnd": three, "CapAmb": three,
	} {
		if !strings.Contains(status, "\n"+field+":\t"+want+"\n") {
			t.Errorf("%s is not %q:\n%s", field, want, status)
		}
	}

	a.box.Must(t, "sysctl", "-qw", "net.ipv4.vs.conntrack=0", "net.ipv6.conf.all.forwarding=0")
	eventually(t, 30*time.Second, func() error {
		if got := strings.Fields(a.box.Must(t, "sysctl", "-n", "net.ipv4.vs.conntrack", "net.ipv6.conf.all.forwarding")); strings.Join(got, "") != "11" {
			return fmt.Errorf("parameters that somebody has set to 0 are %v", got)
		}
		return nil
	})
	applianceWaitsForTheLock(t, a)
	if said := a.box.Must(t, "journalctl", "-u", "weir", "-o", "cat", "--no-pager"); strings.Contains(said, "not permitted") || strings.Contains(said, "ermission denied") {
		t.Errorf("something is denied to it:\n%s", said)
	}
}

// applianceWaitsForTheLock has another process of root hold the lock of iptables
// while weir wants to change its rules.
func applianceWaitsForTheLock(t *testing.T, a *appliance) {
	const rules = "iptables-save -t nat | grep -v '^[#:]'"
	before := a.box.Must(t, "sh", "-c", rules)
	holder, err := a.box.Start("flock", "/run/xtables.lock", "sh", "-c", "echo held; sleep 2; "+rules+"; echo free")
	must(t, err)
	must(t, holder.Expect(within(t, time.Minute), "held"))
	a.configure(t, "[kernel]\nmasquerade_all = true\nsync_period = \"1h\"\n"+a.text(""))
	a.systemctl(t, "reload", "weir")
	must(t, holder.Expect(within(t, time.Minute), "free"))
	if during := holder.Output(); during != "held\n"+before+"free\n" {
		t.Errorf("the rules have changed while somebody else had the lock: from\n%s\nto\n%s", before, during)
	}
	eventually(t, 30*time.Second, func() error {
		if after := a.box.Must(t, "sh", "-c", rules); after == before {
			return fmt.Errorf("the lock is free, and the rules are still\n%s", after)
		}
		return nil
	})
	a.configure(t, a.text(""))
	a.systemctl(t, "reload", "weir")
}

// applianceIsExamined puts in what weir doctor finds only where systemd runs weir, which is
// a user of its own; and types what it prints.
func applianceIsExamined(t *testing.T, a *appliance) {
	// No time service runs in a box: the kernel gets the state of a synchronized clock.
	a.box.Must(t, "sh", "-ec", keptRight+"; dpkg-deb --fsys-tarfile "+a.old+" | tar -xO ./usr/bin/weir >/tmp/old; cp -p "+configFile+" /tmp/weir.toml; systemctl start systemd-networkd")
	eventually(t, time.Minute, func() error { return illness(a.doctor(t)) })
	a.faults(t, []fault{
		{check: "unit", names: "the unit weir is not enabled", put: "systemctl disable weir"},
		{check: "files", names: "weir (user weir) can't write to /var/lib/weir", put: "chown root: /var/lib/weir; chmod 0700 /var/lib/weir"},
		{check: "version", names: "version " + nextVersion + " is running, and ", put: "mv /usr/bin/weir /tmp/weir; install -m 0755 /tmp/old /usr/bin/weir; rm /tmp/old"},
		{check: "networkd", names: "systemd-networkd may delete the routes of weir",
			put: `sed -i 's|^\[kernel\]|[kernel]\nvip_mode = "route"\nroute_pools = ["192.0.2.0/24", "2001:db8:2::/64", "10.1.0.100/32"]|' ` + configFile},
	})
	a.box.Must(t, "sh", "-ec", "mv /tmp/weir /usr/bin/weir; mv /tmp/weir.toml "+configFile+"; systemctl stop systemd-networkd systemd-networkd.socket")
	a.systemctl(t, "restart", "weir")
}

// applianceIsFlushed does what firewalls do when they are reloaded. No audit helps.
func applianceIsFlushed(t *testing.T, a *appliance) {
	a.configure(t, "[kernel]\nsync_period = \"1h\"\n"+a.text(""))
	a.systemctl(t, "reload", "weir")
	const tables = `for p in iptables ip6tables; do for t in filter nat mangle raw security; do $p -t $t -F; $p -t $t -X; done; done`
	for _, tt := range []struct{ name, flush string }{
		{"all tables of both families, as firewalld does with FlushAllOnReload", tables},
		{"iptables-restore of other rules, as netfilter-persistent reload", `printf '*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\nCOMMIT\n' | iptables-restore`},
		{"iptables -F; iptables -t nat -F", "iptables -F; iptables -t nat -F"}, // a part of the first
	}[:sized(2, 3)] {
		a.undisturbed(t, tt.name, func() {
			took, look := a.repairs(t, "iptables", tt.flush)
			figure(t, fmt.Sprintf("weir's rules are back after %s (promised: a second; one look takes %s)", tt.name, look), took)
		})
	}
}

// repairs flushes rules with a command of the shell, and gives how long after it all of
// weir's are back, by the box's own clock, and how long it takes just to look.
func (s *site) repairs(t testing.TB, iptables, flush string) (took, look time.Duration) {
	t.Helper()
	out := s.box.Must(t, "sh", "-ec", `
		iptables=`+iptables+`
		now() { $iptables-save | grep -c KUBE || true; ip6${iptables#ip}-save | grep -c KUBE || true; }
		ms() { echo $((($(date +%s%N) - begin) / 1000000)); }
		begin=$(date +%s%N)
		want=$(now)
		look=$(ms)
		$iptables -A INPUT -s 203.0.113.77 -j ACCEPT # shows that the flush was one, for weir may be back at once
		{ `+flush+`; } 2>/dev/null || true
		begin=$(date +%s%N)
		! $iptables -S INPUT | grep -q 203.0.113.77 || { echo "nothing is flushed"; exit 0; }
		until [ "$(now)" = "$want" ]; do sleep 0.02; done
		echo $(ms) $look`)
	var all, one int
	if _, err := fmt.Sscan(out, &all, &one); err != nil || all > 60_000 {
		t.Errorf("%s: weir's rules are back after %q ms: %v", flush, out, err)
	}
	return time.Duration(all) * time.Millisecond, time.Duration(one) * time.Millisecond
}

// applianceHangs stops weir's process in the midst, so that its loop goes on no more.
func applianceHangs(t *testing.T, a *appliance) {
	const dropIn = "/etc/systemd/system/weir.service.d/short.conf"
	must(t, a.box.WriteFile(t.Context(), dropIn, "[Service]\nWatchdogSec=3s\n", 0o644))
	a.systemctl(t, "daemon-reload")
	a.systemctl(t, "restart", "weir")
	said := journalSince(t, a.box, func() { // it has all goroutines of the process: thousands of lines
		before := a.show(t, "MainPID")
		a.undisturbed(t, "a hung daemon", func() {
			a.systemctl(t, "kill", "--kill-whom=main", "--signal=STOP", "weir")
			took := eventually(t, time.Minute, func() error {
				if now := a.show(t, "MainPID"); now == before || now == "0" || a.show(t, "ActiveState") != "active" {
					return fmt.Errorf("it hangs on: process %s", now)
				}
				return nil
			})
			figure(t, "hung, until the watchdog (3 s here) has ended it and it is ready again", took)
		})
	})
	mustHave(t, said, "Watchdog timeout (limit 3s)!", "SIGABRT: abort", "Scheduled restart job")
	a.box.Must(t, "rm", dropIn)
	a.systemctl(t, "daemon-reload")
	a.systemctl(t, "restart", "weir")
	if n := a.show(t, "WatchdogUSec"); n != "1min" {
		t.Errorf("the watchdog waits for %s", n)
	}
}

// applianceIsMisconfigured refuses what can't be, at a reload and at a start, and does not
// retry without end.
func applianceIsMisconfigured(t *testing.T, a *appliance) {
	a.configure(t, a.text("[[service]]\nname = \"more\"\nvipz = [\"192.0.2.11\"]\n"))
	a.undisturbed(t, "a configuration that is refused", func() {
		refused := journalSince(t, a.box, func() {
			if out, err := a.box.Run(t.Context(), "systemctl", "reload", "weir"); err == nil {
				t.Errorf("a broken configuration is taken: %+v", out)
			}
		})
		mustHave(t, refused, "not reloaded, the old configuration stays in force", "service.more.vipz", "did you mean vips?")
		if state := a.show(t, "ActiveState"); state != "active" {
			t.Errorf("after a reload that is refused it is %s", state)
		}
		start := journalSince(t, a.box, func() {
			if out, err := a.box.Run(t.Context(), "systemctl", "restart", "weir"); err == nil {
				t.Errorf("it starts with a broken configuration: %+v", out)
			}
		})
		mustHave(t, start, "service.more.vipz", "did you mean vips?")
		// One that is tried again in a moment is "activating".
		if state := a.show(t, "ActiveState") + " " + a.show(t, "NRestarts") + " " + a.show(t, "ExecMainStatus"); state != "failed 0 78" {
			t.Errorf("after a start that can't be it is %s, want failed 0 78", state)
		}
	})
	a.configure(t, a.text(""))
	a.systemctl(t, "start", "weir")
}
