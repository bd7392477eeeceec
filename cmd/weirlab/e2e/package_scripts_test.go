package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weirlab/lab"
)

// chroot is a Debian with systemd in which no systemd runs, as where an image of a system
// is made. Changes in it stay in it, and go with the test.
type chroot struct{ dir string }

func newChroot(t *testing.T) chroot {
	t.Helper()
	base, dir := lab.SystemdRoot(t), t.TempDir()
	for _, sub := range []string{"memory", "root"} {
		tool(t, "mkdir", filepath.Join(dir, sub))
	}
	memory, root := filepath.Join(dir, "memory"), filepath.Join(dir, "root")
	tool(t, "mount", "-t", "tmpfs", "weir", memory)
	t.Cleanup(func() { tool(t, "umount", "--lazy", memory) })
	tool(t, "mkdir", filepath.Join(memory, "upper"), filepath.Join(memory, "work"))
	tool(t, "mount", "-t", "overlay", "weir", "-o",
		fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", base, memory, memory), root)
	t.Cleanup(func() { tool(t, "umount", "--lazy", root) })
	tool(t, "mount", "-t", "proc", "weir", filepath.Join(root, "proc"))
	t.Cleanup(func() { tool(t, "umount", "--lazy", filepath.Join(root, "proc")) })
	c := chroot{root}
	c.must(t, "rm", "-rf", "/run/systemd") // of the boxes
	return c
}

// run runs a program in the chroot, in a network of its own: what it does to a kernel is
// not done to this machine's.
func (c chroot) run(args ...string) (string, error) {
	cmd := exec.Command("unshare", append([]string{"--net", "chroot", c.dir, "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c chroot) must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.run(args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// bring copies a file into the chroot.
func (c chroot) bring(t testing.TB, file string) string {
	t.Helper()
	tool(t, "cp", file, filepath.Join(c.dir, "root"))
	return "/root/" + filepath.Base(file)
}

// has reports whether there is such a file or link.
func (c chroot) has(file string) bool {
	_, err := os.Lstat(filepath.Join(c.dir, file))
	return err == nil
}

func (c chroot) mustHave(t testing.TB, when string, files ...string) {
	t.Helper()
	for _, f := range files {
		if !c.has(f) {
			t.Errorf("%s: there is no %s", when, f)
		}
	}
}

func (c chroot) mustNotHave(t testing.TB, when string, files ...string) {
	t.Helper()
	for _, f := range files {
		if c.has(f) {
			t.Errorf("%s: there is still %s", when, f)
		}
	}
}

// write puts a file of another owner there.
func (c chroot) write(t testing.TB, file, text string) {
	t.Helper()
	tool(t, "mkdir", "-p", filepath.Dir(filepath.Join(c.dir, file)))
	must(t, os.WriteFile(filepath.Join(c.dir, file), []byte(text), 0o755))
}

// pretend makes the scripts detect a running systemd (sd_booted(3)): their requests to it
// are recorded. Whether it does them is shown on boxes.
func (c chroot) pretend(t testing.TB) {
	t.Helper()
	c.must(t, "mkdir", "-p", "/run/systemd/system")
	c.must(t, "mv", "/usr/bin/systemctl", "/usr/bin/systemctl.real")
	c.write(t, "/usr/bin/systemctl", `#!/bin/sh
case "$*" in
*is-enabled*) echo enabled ;;
*is-active*) ;;
*enable* | *disable*) exec /usr/bin/systemctl.real --root=/ "$@" ;;
*) echo "$*" >>/asked ;;
esac
`)
}

// asked gives what systemd was asked for since the last time, but for reloads of its own.
func (c chroot) asked(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "asked"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	c.must(t, "rm", "-f", "/asked")
	var asked []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "daemon-reload") {
			asked = append(asked, strings.TrimPrefix(strings.Join(strings.Fields(line), " "), "--quiet --system "))
		}
	}
	return strings.Join(asked, "; ")
}

const (
	enabledLink = "etc/systemd/system/multi-user.target.wants/weir.service"
	keptProgram = "var/lib/weir-removed/weir"
	keptConfig  = "var/lib/weir-removed/weir.toml"
	oneService  = "[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\nbackends = [\"10.0.0.1\"]\n"
	usersOwn    = "etc/weir/conf.d/web.toml"
	someState   = "var/lib/weir/state"
	someTrial   = "var/lib/weir/trial.json"
	someSecret  = "of-credential-and-trial"
)

// used is what a while of use leaves.
func (c chroot) used(t testing.TB) {
	t.Helper()
	c.write(t, usersOwn, oneService)
	c.write(t, "etc/weir/credentials/key", someSecret)
	c.write(t, "etc/weir/conf.d/peer.toml", peerWithSecrets)
	c.write(t, "etc/weir/conf.d/router2.password", someSecret)
	c.write(t, someState, "{}")
	c.write(t, someTrial, someSecret)
}

// peerWithSecrets names a credential and another file with a secret.
const peerWithSecrets = `[kernel]
name_prefix = "EDGE"

[bgp]
asn = 64512

[[bgp.peer]]
name = "router1"
address = "10.0.0.2"
asn = 64513
password_file = "credential:key"

[[bgp.peer]]
name = "router2"
address = "10.0.0.3"
asn = 64513
password_file = "router2.password"
`

// keptWithoutSecrets checks the copy of a removed package: weir reads it without the secrets of the
// original, and the name of the kernel objects is that of the configuration.
func (c chroot) keptWithoutSecrets(t testing.TB, secretsOf ...string) {
	t.Helper()
	c.mustHave(t, "after remove", keptProgram, keptConfig)
	if found, _ := c.run("grep", "-rl", someSecret, "/var/lib"); strings.Fields(found) != nil && strings.Join(strings.Fields(found), " ") != strings.Join(secretsOf, " ") {
		t.Errorf("files below /var/lib with secrets: %s, want %v", found, secretsOf)
	}
	if kept, err := os.ReadFile(filepath.Join(c.dir, keptConfig)); err != nil || !strings.Contains(string(kept), `name_prefix = "EDGE"`) {
		t.Errorf("the kept configuration, %v:\n%s", err, kept)
	}
	// Without root's credentials and router2.password: only the kernel of a chroot is missing.
	c.must(t, "mv", "/etc/weir", "/etc/elsewhere")
	if out, _ := c.run("/"+keptProgram, "cleanup", "--config", "/"+keptConfig); strings.Contains(out, "password") || strings.Contains(out, "toml") {
		t.Errorf("weir cleanup with the kept configuration: %s", out)
	}
	c.must(t, "mv", "/etc/elsewhere", "/etc/weir")
}

func debInChroot(t *testing.T, p *packages) {
	c := newChroot(t)
	deb := c.bring(t, p.made(t, "*_amd64.deb"))
	c.must(t, "dpkg", "--install", deb)
	c.mustHave(t, "after install", "usr/bin/weir", enabledLink, "etc/weir/credentials")
	if out := c.must(t, "getent", "passwd", "weir"); !strings.Contains(out, ":/usr/sbin/nologin") {
		t.Errorf("the user is %s", out)
	}
	c.used(t)
	c.must(t, "dpkg", "--install", deb) // an upgrade
	c.must(t, "dpkg", "--remove", "weir")
	c.mustNotHave(t, "after remove", "usr/bin/weir", keptProgram)
	c.mustHave(t, "after remove", "etc/weir/weir.toml", usersOwn, someState)
	c.must(t, "dpkg", "--purge", "weir")
	c.mustNotHave(t, "after purge", "etc/weir", "var/lib/weir", enabledLink)
}

func debUnderSystemd(t *testing.T, p *packages) {
	c := newChroot(t)
	c.pretend(t)
	deb := c.bring(t, p.plain)
	out := c.must(t, "dpkg", "--install", deb)
	if asked := c.asked(t); asked != "" || !strings.Contains(out, "nothing to serve yet and is not started") {
		t.Errorf("without a configuration systemd is asked to %q:\n%s", asked, out)
	}
	c.used(t)
	c.must(t, "dpkg", "--install", deb)
	if asked := c.asked(t); asked != "try-restart weir.service" {
		t.Errorf("at an upgrade systemd is asked to %q", asked)
	}
	c.write(t, "etc/weir/conf.d/wrong.toml", "[[servise]]\n")
	out = c.must(t, "dpkg", "--install", deb)
	if asked := c.asked(t); asked != "" || !strings.Contains(out, "the configuration is invalid") {
		t.Errorf("at an upgrade with an invalid configuration systemd is asked to %q:\n%s", asked, out)
	}
	// What only a drop-in of the unit gives weir is unknown to a script, but for what weir,
	// while it runs, was not given.
	c.write(t, "etc/weir/conf.d/wrong.toml", "[fleet]\nname = \"edge\"\njoin = [\"10.0.0.2\"]\nkeys = [\"credential:sealed\"]\n")
	for _, tt := range []struct{ given, asked string }{
		{"", "try-restart weir.service"},
		{"run/credentials/weir.service/weir_other", ""},
		{"run/credentials/weir.service/weir_sealed", "try-restart weir.service"},
	} {
		if tt.given != "" {
			c.write(t, tt.given, "secret")
		}
		out = c.must(t, "dpkg", "--install", deb)
		if asked := c.asked(t); asked != tt.asked {
			t.Errorf("at an upgrade with a credential that is not root's, and weir has %q, systemd is asked to %q:\n%s", tt.given, asked, out)
		}
	}
	c.must(t, "rm", "/etc/weir/conf.d/wrong.toml")
	out = c.must(t, "dpkg", "--remove", "weir")
	if asked := c.asked(t); asked != "stop weir.service; stop weir-backend.service" {
		t.Errorf("when it is removed systemd is asked to %q", asked)
	}
	c.mustPrint(t, out)
	c.mustHave(t, "after remove", usersOwn, someState, "etc/weir/credentials/key")
	c.keptWithoutSecrets(t, "/"+someTrial) // the trial stays until purge
	out = c.must(t, "dpkg", "--purge", "weir")
	c.mustNotHave(t, "after purge", "etc/weir", "var/lib/weir", "var/lib/weir-removed", enabledLink)
	t.Log(out)
}

// mustPrint searches for the texts that an operator needs who has removed weir, and how to end it.
func (c chroot) mustPrint(t testing.TB, said string) {
	t.Helper()
	for _, want := range []string{"What is left in the kernel:", "the kernel ", "/var/lib/weir-removed/weir cleanup --config /var/lib/weir-removed/weir.toml", "/var/lib/weir"} {
		if !strings.Contains(said, want) {
			t.Errorf("remove does not say %q:\n%s", want, said)
		}
	}
	if out := c.must(t, "stat", "--format=%a %U", "/var/lib/weir-removed"); out != "700 root\n" {
		t.Errorf("what root shall run is in a folder with %s", out)
	}
}

func debComesBack(t *testing.T, p *packages) {
	c := newChroot(t)
	c.pretend(t)
	deb := c.bring(t, p.plain)
	c.used(t) // a configuration that was there first
	c.must(t, "dpkg", "--install", deb)
	if asked := c.asked(t); asked != "start weir.service" {
		t.Errorf("with a configuration systemd is asked to %q", asked)
	}
	c.must(t, "dpkg", "--remove", "weir")
	c.asked(t)
	c.must(t, "dpkg", "--install", deb)
	if asked := c.asked(t); asked != "start weir.service" {
		t.Errorf("installed again, systemd is asked to %q", asked)
	}
	c.mustNotHave(t, "installed again", "var/lib/weir-removed")
	// An administrator's word.
	c.must(t, "systemctl", "disable", "weir.service")
	c.must(t, "dpkg", "--install", deb)
	c.mustNotHave(t, "after an upgrade of what is disabled", enabledLink)
}

// rpm runs rpm of this machine on the chroot: scriptlets are run in there.
func (c chroot) rpm(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"--net", "rpm", "--root", c.dir, "--define", "_dbpath /var/lib/rpm"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("rpm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func rpmInChroot(t *testing.T, p *packages) {
	c := newChroot(t)
	file := p.made(t, "*.x86_64.rpm")
	c.rpm(t, "--initdb")
	if out := c.rpm(t, "--install", "--nodeps", file); out != "" {
		t.Logf("install: %s", out)
	}
	c.mustHave(t, "after install", "usr/bin/weir", enabledLink, "etc/weir/credentials")
	c.must(t, "getent", "passwd", "weir")
	if out := c.rpm(t, "--verify", "--nodeps", "weir"); out != "" {
		t.Errorf("rpm --verify: %s", out)
	}
	c.used(t)
	c.rpm(t, "--upgrade", "--force", "--nodeps", file)
	c.rpm(t, "--erase", "weir")
	c.mustNotHave(t, "after erase", "usr/bin/weir", enabledLink, keptProgram, "usr/share/doc/weir", "usr/share/licenses/weir")
	c.mustHave(t, "after erase", usersOwn, someState)
}

func rpmUnderSystemd(t *testing.T, p *packages) {
	c := newChroot(t)
	c.pretend(t)
	file := p.made(t, "*.x86_64.rpm")
	c.rpm(t, "--initdb")
	out := c.rpm(t, "--install", "--nodeps", file)
	if asked := c.asked(t); asked != "" || !strings.Contains(out, "nothing to serve yet and is not started") {
		t.Errorf("without a configuration systemd is asked to %q:\n%s", asked, out)
	}
	c.used(t)
	c.write(t, "etc/weir/weir.toml", "include = [\"conf.d/*.toml\"]\n# mine\n")
	c.rpm(t, "--upgrade", "--force", "--nodeps", file)
	if asked := c.asked(t); asked != "try-restart weir.service" {
		t.Errorf("at an upgrade systemd is asked to %q", asked)
	}
	if text, err := os.ReadFile(filepath.Join(c.dir, "etc/weir/weir.toml")); err != nil || !strings.Contains(string(text), "# mine") {
		t.Errorf("an upgrade has replaced the configuration: %v", err)
	}
	out = c.rpm(t, "--erase", "weir")
	if asked := c.asked(t); asked != "stop weir.service; stop weir-backend.service" {
		t.Errorf("when it is removed systemd is asked to %q", asked)
	}
	c.mustPrint(t, out)
	c.mustHave(t, "after erase", usersOwn, someState, "etc/weir/weir.toml.rpmsave")
	c.keptWithoutSecrets(t)
	c.mustNotHave(t, "after erase", "usr/bin/weir", enabledLink)
}
