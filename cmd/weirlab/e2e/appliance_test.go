package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestAppliance is the life of a server that weir is installed on: apt, systemd as PID 1,
// a kernel of its own, clients in front of it, web servers and a cluster behind it.
func TestAppliance(t *testing.T) {
	t.Parallel()
	lab.RequireSystemd(t)
	a := newAppliance(t)
	a.rules = "iptables" // the first stories are about its lock and its flush
	for _, story := range []storyOn[*appliance]{
		{"installed, configured, started", applianceInstalls},
		{"confined, and able to do all it must", applianceIsConfined},
		{"denied what it does not need", applianceIsDenied},
		{"upgraded and downgraded", applianceUpgrades},
		{"examined", applianceIsExamined},
		{"a firewall is reloaded", applianceIsFlushed},
		{"hung", applianceHangs},
		{"misconfigured", applianceIsMisconfigured},
		{"upgraded from iptables", applianceLeavesIPTables},
		{"rebooted without the API server", applianceReboots},
		{"stopped, removed, purged", applianceEnds},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, a) }) {
			t.Fatalf("its journal:\n%s", a.box.Must(t, "journalctl", "-u", "weir", "-o", "cat", "--no-pager", "-n", "100"))
		}
	}
}

// appliance is the plain site with an appliance as its box.
type appliance struct {
	*land
	old, new string // packages
}

// nextVersion is that of the package which another one is upgraded to.
const nextVersion = "99.0.0"

// linkVIP is on the network of the clients, where weir answers for it.
const linkVIP = "10.1.0.100"

func newAppliance(t *testing.T) *appliance {
	t.Helper()
	must(t, lab.CheckPeers())
	a := &appliance{old: lab.Package(t, ""), new: lab.Package(t, nextVersion)}
	a.land = &land{site: openSite(t, underSystemd(kubeSite(1)))}
	a.weir = "/usr/bin/weir" // that of the package
	a.join(t, 1, lab.KubeOptions{})
	a.serveAll(t, 8080)
	echoAll(t, a.Lab)
	return a
}

// oftenAudited is for a story that waits for an audit.
const oftenAudited = "[kernel]\nsync_period = \"2s\"\n"

// text is the configuration; more is more of it.
func (a *appliance) text(more string) string {
	return fmt.Sprintf(`
[daemon]
on_stop = "keep"

[l2]
interfaces = ["front"]

[[kubernetes]]
name = "prod"
kubeconfig = "credential:prod"
endpoint_ranges = ["10.2.0.0/16"]
load_balancer_ranges = ["198.51.100.0/24"]

[[service]]
name = "near"
vips = [%q]
ports = ["80:8080", 7000, "7000/udp"]
backends = ["10.2.0.11", "10.2.0.12", "10.2.0.13"]
`, linkVIP) + service("web", "") + more
}

// configure writes the configuration, without frequent audits: with rules of iptables each one starts programs.
func (a *appliance) configure(t testing.TB, toml string) {
	t.Helper()
	if !strings.Contains(toml, "[kernel]") {
		toml = "[kernel]\nsync_period = \"5m\"\n" + toml
	}
	a.land.configure(t, toml)
}

// show gives a property of the unit.
func (a *appliance) show(t testing.TB, property string) string {
	t.Helper()
	return strings.TrimSpace(a.box.Must(t, "systemctl", "show", "--value", "-p", property, "weir"))
}

// undisturbed does something under load: no request fails, no connection is cut.
func (a *appliance) undisturbed(t *testing.T, what string, do func()) {
	t.Helper()
	c := startClients(t, a.client1, targets{[]string{at(vip4, 80), at(vip6, 80), at(linkVIP, 80)}, []string{at(linkVIP, 7000)}, at(linkVIP, 7000)})
	do()
	c.ended(t, 50)
	c.unhurt(t, what)
}

// systemctl runs a command of systemctl, which must succeed.
func (a *appliance) systemctl(t testing.TB, args ...string) {
	t.Helper()
	if out, err := a.box.Run(within(t, 3*time.Minute), append([]string{"systemctl"}, args...)...); err != nil {
		t.Fatalf("%v\n%s%s", err, out.Stdout, out.Stderr)
	}
}

// login puts a kubeconfig where only root can read it.
func (a *appliance) login(t testing.TB) {
	t.Helper()
	file := "/etc/weir/credentials/prod"
	must(t, a.box.WriteFile(within(t, 10*time.Second), file, a.prod.Kubeconfig(lab.KubeWeir), 0o600))
	if _, err := a.box.Run(t.Context(), "runuser", "-u", "weir", "--", "cat", file); err == nil {
		t.Errorf("user weir can read %s", file)
	}
}

func applianceInstalls(t *testing.T, a *appliance) {
	must(t, a.box.AwaitSystemd(t.Context()))
	a.box.Must(t, "iptables", "-nL") // which creates its lock with access for root only
	untouched := a.dump(t)
	begin := time.Now()
	said := a.apt(t, "install", a.old)
	installed := time.Since(begin)
	if !strings.Contains(said, "nothing to serve yet") {
		t.Errorf("apt install says\n%s", said)
	}
	if state := a.show(t, "UnitFileState") + " " + a.show(t, "ActiveState"); state != "enabled inactive" {
		t.Errorf("just installed, it is %s", state)
	}
	if lock := a.box.Must(t, "stat", "-c", "%a %U %G", "/run/xtables.lock"); lock != "640 root weir\n" {
		t.Errorf("the lock of iptables is %s", lock)
	}
	sameState(t, "a package without a configuration", untouched, a.dump(t))
	begin = time.Now() // the checks of the test itself do not count as waiting
	a.configure(t, oftenAudited+a.text(""))
	a.login(t)
	a.systemctl(t, "start", "weir")
	mustGet(t, a.client1, at(vip4, 80), 1)
	figure(t, "apt install, configuration, systemctl start, until the first request is answered", installed+time.Since(begin))
	figure(t, "  of that apt install", installed)
	for _, vip := range []string{vip4, vip6, linkVIP} {
		if by := mustGet(t, a.client1, at(vip, 80), 9); len(by) != 3 {
			t.Errorf("%s: answers by %v, want all three", vip, by)
		}
	}
	a.statusIs(t, "the cluster is followed with a credential", func(d statusDoc) bool { return cluster(d, "prod", "connected") })
}

func applianceUpgrades(t *testing.T, a *appliance) {
	state := a.box.Must(t, "stat", "-c", "%i %y", configFile)
	t.Log("the next version is of the same sources; what has moved since the build before is a story of TestPackages")
	for _, step := range []struct {
		name string
		args []string
		next bool
	}{
		{"upgrade", []string{a.new}, true},
		{"downgrade", []string{"--allow-downgrades", a.old}, false}, // applianceLeavesIPTables is one, too
		{"second upgrade", []string{a.new}, true},
	}[:sized(1, 3)] {
		before := a.show(t, "MainPID")
		var took time.Duration
		a.undisturbed(t, step.name, func() {
			begin := time.Now()
			a.apt(t, append([]string{"install"}, step.args...)...)
			took = time.Since(begin)
		})
		figure(t, step.name+" under load, 0 requests lost", took)
		if after := a.show(t, "MainPID"); after == before || a.show(t, "ActiveState") != "active" {
			t.Errorf("%s: process %s before, %s after it", step.name, before, after)
		}
		// Its exit status is 1 until weir has reached the API server again.
		if v := a.call(t, "status").Stdout; v == "" || strings.Contains(v, nextVersion) != step.next {
			t.Errorf("after the %s another version runs:\n%s", step.name, v)
		}
		if now := a.box.Must(t, "stat", "-c", "%i %y", configFile); now != state {
			t.Errorf("%s: the configuration was %s, is %s", step.name, state, now)
		}
	}
	if soaking() { // TestUnderSystemd restarts and reloads in make test
		a.undisturbed(t, "systemctl restart", func() { a.systemctl(t, "restart", "weir") })
		a.undisturbed(t, "systemctl reload", func() { a.systemctl(t, "reload", "weir") })
	}
}

// applianceLeavesIPTables installs another version over one that ran with iptables, and the file does not name the
// owner of the rules: so it is after a version that knew iptables only.
func applianceLeavesIPTables(t *testing.T, a *appliance) {
	if a.onlyOwner(t, "nftables") == nil {
		t.Fatal("iptables has no rules")
	}
	a.rules = ""
	a.configure(t, a.text(""))
	a.undisturbed(t, "an upgrade that moves the rules to nftables", func() {
		a.apt(t, "install", "--allow-downgrades", a.old)
		a.statusIs(t, "nftables has the rules", func(d statusDoc) bool { return d.Kernel.Rules == "nftables" })
		eventually(t, time.Minute, func() error { return a.onlyOwner(t, "nftables") })
	})
	if v := a.call(t, "status").Stdout; v == "" || strings.Contains(v, nextVersion) {
		t.Errorf("after the downgrade another version runs:\n%s", v)
	}
}

// unloadIPTables unloads the modules of ipset and iptables.
const unloadIPTables = `for i in 1 2 3 4; do
	for m in $(lsmod | awk '/^(ip_set|ip6?_tables|ip6?table_|nft_compat|xt_)/ {print $1}'); do modprobe -qr $m || true; done
done
`

// applianceReboots has a Service of the cluster served after a reboot in which the
// cluster does not answer, without any command, and without modules of ipset and iptables.
func applianceReboots(t *testing.T, a *appliance) {
	const vip = "198.51.100.20"
	a.balance(t, a.prod, "shop", vip, "", "10.2.0.12")
	a.answers(t, at(vip, 80), "web2")
	must(t, a.prod.Kill(within(t, time.Minute)))
	a.systemctl(t, "stop", "weir")
	a.box.Must(t, "test", "-s", "/var/lib/weir/prod.snapshot")
	must(t, a.box.SaveDebian(within(t, time.Minute), []string{"weir"}, []string{"/var/lib/weir"}))
	a.systemctl(t, "--no-block", "reboot")
	eventually(t, 2*time.Minute, func() error {
		if _, err := a.box.Run(t.Context(), "true"); !errors.Is(err, lab.ErrPowerLost) {
			return fmt.Errorf("the machine does not go down: %w", err)
		}
		return nil
	})
	begin := time.Now()
	must(t, a.box.Boot(within(t, 4*time.Minute)))
	must(t, a.box.AwaitSystemd(t.Context()))
	a.answers(t, at(vip, 80), "web2")
	mustGet(t, a.client1, at(linkVIP, 80), 3)
	figure(t, "reboot without the API server: from power on until the cluster's Service answers", time.Since(begin))
	a.statusIs(t, "served from the file", func(d statusDoc) bool {
		return d.State == "degraded" && cluster(d, "prod", "unreachable") && d.Clusters[0].Stale && d.Clusters[0].Services == 1
	})
	a.box.Must(t, "sh", "-ec", unloadIPTables) // the lab loads all modules at boot
	a.systemctl(t, "restart", "weir")
	if loaded := a.box.Must(t, "sh", "-c", "lsmod | grep -E '^(ip_set|ip6?_tables|nft_compat)' || true"); loaded != "" {
		t.Errorf("with rules in nftables the kernel has\n%s", loaded)
	}
}

// applianceEnds takes weir off the server in three steps, each of which leaves less.
func applianceEnds(t *testing.T, a *appliance) {
	is := func(what string, files ...string) {
		t.Helper()
		for _, f := range files {
			name, want := strings.CutPrefix(f, "no ")
			if out, err := a.box.Run(t.Context(), "sh", "-c", "test -e "+name+` && [ -n "$(ls -A `+name+`)" ]`); (err == nil) == want {
				t.Errorf("%s: is %s there? %+v", what, name, out)
			}
		}
	}
	var said string
	a.undisturbed(t, "stopped and removed", func() {
		a.systemctl(t, "stop", "weir")
		is("stopped", "no /run/weir", "/var/lib/weir", configFile)
		said = a.apt(t, "remove", "weir")
	})
	for _, want := range []string{"What is left in the kernel", "virtual servers", "apt purge weir"} {
		if !strings.Contains(said, want) {
			t.Errorf("apt remove does not say %q:\n%s", want, said)
		}
	}
	is("removed", "no /usr/bin/weir", "no /lib/systemd/system/weir.service", "/var/lib/weir", configFile, "/etc/weir/credentials/prod")
	for _, vip := range []string{vip4, vip6} {
		if by := mustGet(t, a.client1, at(vip, 80), 6); len(by) != 3 {
			t.Errorf("removed: %s is answered by %v", vip, by)
		}
	}

	// What another program made works on, and stays. The server has no nft: weir needs none.
	nft := programOfHost(t, a.box, "nft")
	const foreignVIP = "198.51.100.78"
	a.box.Must(t, "sh", "-ec", "ip link add foreign0 type dummy; ip link set foreign0 up; ip addr add "+foreignVIP+"/32 dev foreign0; "+
		"ipvsadm -A -t "+foreignVIP+":80 -s rr; ipvsadm -a -t "+foreignVIP+":80 -r 10.2.0.11:8080 -m; "+
		"ipset create FOREIGN hash:ip; ipset add FOREIGN 203.0.113.5; "+nft+" add table inet foreign; "+nft+" add set inet foreign s '{ type ipv4_addr; elements = { 203.0.113.6 }; }'")
	tables := nft + " list tables | grep weir"
	if out := a.box.Must(t, "sh", "-c", tables); !strings.Contains(out, "table ip6 weir") {
		t.Errorf("removed, and the tables are\n%s", out)
	}
	others := "ipvsadm -Sn | grep " + foreignVIP + "; ip -o addr show dev foreign0; ipset save FOREIGN; " + nft + " list table inet foreign"
	before, foreign := a.box.Must(t, "sh", "-ec", others), startStream(t, a.client2, at(foreignVIP, 80))
	foreign.more(t, 3)
	a.apt(t, "purge", "weir")
	foreign.more(t, 3)
	mustHaveLostNothing(t, foreign)
	mustKeep(t, "purged", before, a.box.Must(t, "sh", "-ec", others))
	is("purged", "no /etc/weir", "no /var/lib/weir", "no /var/lib/weir-removed", "no /run/weir",
		"no /etc/systemd/system/multi-user.target.wants/weir.service", "no /usr/share/doc/weir")
	if left := a.box.Must(t, "sh", "-c", "ipvsadm -Sn | grep -v "+foreignVIP+"; ipset list -n | grep -v FOREIGN; ip -o link show type dummy | grep -v foreign0; iptables-save | grep KUBE; ip6tables-save | grep KUBE; "+tables+"; true"); left != "" {
		t.Errorf("purged, and the kernel still holds\n%s", left)
	}
	if out, err := a.box.Run(t.Context(), "systemctl", "cat", "weir"); err == nil {
		t.Errorf("purged, and there is a unit:\n%s", out.Stdout)
	}
}

// programOfHost copies a program of this machine, with its libraries, to a server that lacks it, and returns its command.
func programOfHost(t testing.TB, m *lab.Machine, name string) (command string) {
	t.Helper()
	const folder = "/root/of-host/"
	path, err := exec.LookPath(name)
	must(t, err)
	libraries, err := exec.Command("ldd", path).Output()
	must(t, err)
	m.Must(t, "mkdir", "-p", folder)
	loader := ""
	for _, file := range append(regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1), path) {
		content, err := os.ReadFile(file)
		must(t, err)
		base := filepath.Base(file)
		must(t, m.WriteFile(within(t, time.Minute), folder+base, string(content), 0o755))
		if strings.HasPrefix(base, "ld-linux") {
			loader = folder + base
		}
	}
	return loader + " --library-path " + folder + " " + folder + name
}
