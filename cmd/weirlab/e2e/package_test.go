package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/lab"
)

// TestPackages makes the packages and looks them over as distributions do. It needs no
// kernel; stories of boxes on which a package is installed are elsewhere.
func TestPackages(t *testing.T) {
	t.Parallel()
	lab.Packaging.Require(t)
	p := makePackages(t)
	chapters(t, p, []storyOn[*packages]{
		{"the same sources give the same bytes", packagesAreTheSame},
		{"signed packages are verified, changed ones are refused", packagesAreSigned},
		{"every file has its place, owner and mode", packagesHaveTheirFiles},
		{"the administrator's files are kept", packagesKeepConfiguration},
		{"lintian finds nothing that is not explained", packagesPleaseLintian},
		{"rpm finds nothing", packagesPleaseRPM},
		{"another processor", packagesForArm64},
		{"the program says what it is", packagesHaveVersion},
		{"the bill of materials has every module", packagesListModules},
		{"manual pages are well formed", packagesHaveManual},
		{"shells complete", packagesComplete},
		{"scripts are in order", packagesHaveScripts},
		{"a deb comes and goes in a chroot", debInChroot},
		{"a deb comes and goes where systemd runs", debUnderSystemd},
		{"a deb comes back with its configuration", debComesBack},
		{"a deb takes the place of the build before", debAfterAnother},
		{"an rpm comes and goes in a root of its own", rpmInChroot},
		{"an rpm comes and goes where systemd runs", rpmUnderSystemd},
	})
}

// packages are those that were made of these sources, and what is in the ones for amd64.
type packages struct {
	sources    string   // of which they were made
	dir, again string   // with them, and with them once more, the deb of those that are signed
	key        string   // a folder with the key of the signed ones
	plain      string   // the deb without compression: dpkg unpacks the other in a second, each time
	root       string   // the files of the deb for amd64
	files      []string // of the deb, "-rwxr-xr-x root/root /usr/bin/weir"
}

// made gives the file of a package.
func (p *packages) made(t testing.TB, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %d files, %v", pattern, len(found), err)
	}
	return found[0]
}

func makePackages(t testing.TB) *packages {
	t.Helper()
	begin, dir := time.Now(), t.TempDir()
	p := &packages{dir: filepath.Join(dir, "first"), again: filepath.Join(dir, "second"), root: filepath.Join(dir, "root")}
	here := filepath.Dir(strings.TrimSpace(tool(t, "go", "env", "GOMOD")))
	one, other := filepath.Join(dir, "sources"), filepath.Join(dir, "elsewhere", "and", "deeper")
	copySources(t, here, one)
	copySources(t, one, other)
	p.sources = one
	var quick []string
	if !soaking() {
		quick = []string{"DEB_COMPRESSION=gzip"} // xz takes twenty seconds of a processor
	}
	pack(t, one, p.dir, "022", "UTC", "amd64.deb amd64.rpm", quick...)
	t.Logf("two packages in %.0f s", time.Since(begin).Seconds())
	// The signed deb is the one of the other folder, too, and has no compression in make test.
	p.sign(t, other)
	tool(t, "mkdir", p.again)
	if soaking() {
		pack(t, other, p.again, "077", "Asia/Tokyo", "amd64.rpm")
	}
	tool(t, "cp", p.signed().made(t, "*_amd64.deb"), p.again)
	plain := packages{dir: p.again} // the signed one has no compression in make test
	if soaking() {
		plain.dir = filepath.Join(dir, "plain")
		pack(t, one, plain.dir, "022", "UTC", "amd64.deb", uncompressed)
	}
	p.plain = plain.made(t, "*_amd64.deb")
	tool(t, "dpkg-deb", "--extract", p.plain, p.root) // it has the files of the other, see packagesAreTheSame
	p.files = listDeb(t, p.plain)
	return p
}

// uncompressed is a variable of the Makefile: dpkg unpacks such a deb sooner.
const uncompressed = "DEB_COMPRESSION=none"

// pack makes packages of sources; more are other variables of the Makefile.
func pack(t testing.TB, sources, dist, umask, zone, targets string, more ...string) {
	t.Helper()
	args := []string{"-c", `umask $1 && cd "$2" && export TZ=$3 && shift 3 && exec make -s package "$@"`, "sh", umask, sources, zone, "DIST=" + dist, "PACKAGES=" + targets}
	tool(t, "sh", append(args, more...)...)
}

// copySources copies the sources with their history, and not what was made of them.
func copySources(t testing.TB, from, to string) {
	t.Helper()
	tool(t, "mkdir", "-p", to)
	tool(t, "sh", "-c", `tar --create --directory "$1" --exclude ./bin --exclude ./dist --exclude ./artifacts . |
		tar --extract --touch --no-same-owner --directory "$2"`, "sh", from, to)
}

// tool runs a program of this machine and gives what it prints.
func tool(t testing.TB, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, errs.String())
	}
	return string(out)
}

func packagesAreTheSame(t *testing.T, p *packages) {
	again, err := os.ReadDir(p.again)
	if err != nil || len(again) != sized(1, 2) {
		t.Fatalf("%d packages are made again: %v", len(again), err)
	}
	for _, e := range again {
		same, first, second := sameDeb, filepath.Join(p.dir, e.Name()), filepath.Join(p.again, e.Name())
		if strings.HasSuffix(first, ".rpm") {
			same = sameBytes
		}
		if !same(t, first, second) {
			t.Errorf("%s differs from the one of the same sources in another folder, with another umask, and from a signed deb", e.Name())
		} else {
			t.Logf("%s %s", sha(t, first), e.Name())
		}
	}
	// The digests of the header, and of the files in it, are of all but the signature.
	if sum := sumInRPM(t, p.made(t, "*.x86_64.rpm")); sum != sumInRPM(t, p.signed().made(t, "*.x86_64.rpm")) || len(strings.Fields(sum)) != 2 {
		t.Errorf("the rpm %s differs from the signed one of the same sources in another folder", sum)
	}
	if soaking() && sumInDeb(t, p.plain) != sumInDeb(t, p.made(t, "*_amd64.deb")) { // else it is one of those above
		t.Error("a deb without compression has other files or scripts")
	}
}

func sameBytes(t testing.TB, one, other string) bool { return sha(t, one) == sha(t, other) }

// sameDeb reports whether two debs have the same bytes or, in make test, where one has no compression, the same
// tar files with the same owners, modes and times.
func sameDeb(t testing.TB, one, other string) bool {
	t.Helper()
	if soaking() {
		return sameBytes(t, one, other)
	}
	around := func(deb string) string {
		return tool(t, "sh", "-c", `ar tv "$1" | awk '{ $3 = $NF = ""; print }'`, "sh", deb)
	}
	return sumInDeb(t, one) == sumInDeb(t, other) && around(one) == around(other)
}

func sha(t testing.TB, file string) string {
	t.Helper()
	return strings.Fields(tool(t, "sha256sum", file))[0]
}

// sumInDeb is the sum of what dpkg unpacks.
func sumInDeb(t testing.TB, deb string) string {
	t.Helper()
	return tool(t, "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | sha256sum && dpkg-deb --ctrl-tarfile "$1" | sha256sum`, "sh", deb)
}

func sumInRPM(t testing.TB, rpm string) string {
	t.Helper()
	return tool(t, "rpm", "-qp", "--nosignature", "--queryformat", "%{SHA256HEADER} %{PAYLOADDIGEST}", rpm)
}

// listDeb lists the files of a package: mode, owner and path, without folders of others.
func listDeb(t testing.TB, deb string) []string {
	t.Helper()
	var files []string
	for line := range strings.Lines(tool(t, "dpkg-deb", "--contents", deb)) {
		words := strings.Fields(line)
		path := strings.TrimPrefix(words[5], ".")
		if words[0][0] == 'd' && !strings.Contains(path, "weir") {
			continue
		}
		files = append(files, words[0]+" "+words[1]+" "+strings.TrimSuffix(path, "/"))
	}
	return files
}

// placed are files that must be there; the manual, documentation and examples besides.
var placed = []string{
	"-rwxr-xr-x root/root /usr/bin/weir",
	"drwxr-xr-x root/root /etc/weir",
	"-rw-r--r-- root/root /etc/weir/weir.toml",
	"drwxr-xr-x root/root /etc/weir/conf.d",
	"drwx------ root/root /etc/weir/credentials",
	"-rw-r--r-- root/root /usr/lib/systemd/system/weir-backend.service",
	"-rw-r--r-- root/root /usr/lib/systemd/system/weir.service",
	"-rw-r--r-- root/root /usr/lib/systemd/system/weir-exec.socket",
	"-rw-r--r-- root/root /usr/lib/systemd/system/weir-exec.service",
	"-rw-r--r-- root/root /usr/lib/modules-load.d/weir.conf",
	"-rw-r--r-- root/root /usr/lib/sysctl.d/50-weir.conf",
	"-rw-r--r-- root/root /usr/lib/sysusers.d/weir.conf",
	"-rw-r--r-- root/root /usr/lib/tmpfiles.d/weir.conf",
	"-rw-r--r-- root/root /usr/share/man/man8/weir.8.gz",
	"-rw-r--r-- root/root /usr/share/man/man8/weir-explain.8.gz",
	"-rw-r--r-- root/root /usr/share/man/man5/weir.toml.5.gz",
	"-rw-r--r-- root/root /usr/share/bash-completion/completions/weir",
	"-rw-r--r-- root/root /usr/share/zsh/vendor-completions/_weir",
	"-rw-r--r-- root/root /usr/share/fish/vendor_completions.d/weir.fish",
	"-rw-r--r-- root/root /usr/share/doc/weir/weir.toml",
	"-rw-r--r-- root/root /usr/share/doc/weir/examples/web.toml",
	"-rw-r--r-- root/root /usr/share/doc/weir/commands.md",
	"-rw-r--r-- root/root /usr/share/doc/weir/rbac/base.yaml",
	"-rw-r--r-- root/root /usr/share/doc/weir/rbac/events.yaml",
	"-rw-r--r-- root/root /usr/share/doc/weir/rbac/addresses.yaml",
	"-rw-r--r-- root/root /usr/share/doc/weir/rbac/leases.yaml",
	"-rw-r--r-- root/root /usr/share/doc/weir/kubeconfig.sh",
	"-rw-r--r-- root/root /usr/share/doc/weir/quickstart-edge.md",
	"-rw-r--r-- root/root /usr/share/doc/weir/grafana/weir.json",
	"-rw-r--r-- root/root /usr/share/doc/weir/prometheus/weir.rules.yml",
	"-rw-r--r-- root/root /usr/share/doc/weir/sbom.cdx.json",
	"-rw-r--r-- root/root /usr/share/doc/weir/licenses.gz",
	"-rw-r--r-- root/root /usr/share/doc/weir/copyright",
	"-rw-r--r-- root/root /usr/share/doc/weir/changelog.gz",
}

// elsewhere are the files that rpm's distributions have in another place, or not at all.
var elsewhere = map[string]string{
	"/usr/share/zsh/vendor-completions/_weir": "/usr/share/zsh/site-functions/_weir",
	"/usr/share/doc/weir/changelog.gz":        "/usr/share/doc/weir/CHANGELOG.md",
	"/usr/share/doc/weir/copyright":           "/usr/share/licenses/weir/LICENSE",
	"/usr/share/lintian/overrides/weir":       "",
}

func packagesHaveTheirFiles(t *testing.T, p *packages) {
	for _, want := range placed {
		if !slices.Contains(p.files, want) {
			t.Errorf("the deb has no %s", want)
		}
	}
	for _, f := range p.files {
		if mode := f[:10]; strings.Contains(mode[4:], "w") || !strings.Contains(f, " root/root ") {
			t.Errorf("others than root can write to it: %s", f)
		}
	}
	rpmHasFiles(t, p, "x86_64")
	unit := p.read(t, "usr/lib/systemd/system/weir.service")
	if shipped, err := os.ReadFile(unitFile); err != nil || unit != string(shipped) {
		t.Errorf("the unit is another one: %v", err)
	}
}

// rpmHasFiles compares the files of an rpm with those of the deb.
func rpmHasFiles(t *testing.T, p *packages, arch string) {
	t.Helper()
	var want []string
	for _, f := range p.files {
		mode, path := f[:10], f[strings.Index(f, "/root ")+6:]
		if there, ok := elsewhere[path]; ok {
			path = there
		}
		if path != "" {
			want = append(want, mode+" "+path)
		}
	}
	want = append(want, "drwxr-xr-x /usr/share/licenses/weir")
	got := strings.Split(strings.TrimSpace(tool(t, "rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", p.made(t, "*."+arch+".rpm"))), "\n")
	less := func(a, b string) int { return strings.Compare(a[11:], b[11:]) }
	slices.SortFunc(want, less)
	slices.SortFunc(got, less)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files of the deb (-) and of the rpm for %s (+):\n%s", arch, d)
	}
}

func (p *packages) read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.root, file))
	must(t, err)
	return string(text)
}

func packagesKeepConfiguration(t *testing.T, p *packages) {
	conffiles := tool(t, "dpkg-deb", "--ctrl-tarfile", p.made(t, "*_amd64.deb"))
	if !strings.Contains(conffiles, "/etc/weir/weir.toml\n") {
		t.Error("weir.toml is no conffile of the deb")
	}
	flags := tool(t, "rpm", "-qp", "--queryformat", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]", p.made(t, "*.x86_64.rpm"))
	if !strings.Contains(flags, "/etc/weir/weir.toml cn\n") {
		t.Errorf("weir.toml is not %%config(noreplace) of the rpm:\n%s", flags)
	}
	// As it is installed it is valid, and configures nothing.
	weir, toml := filepath.Join(p.root, "usr/bin/weir"), filepath.Join(p.root, "etc/weir/weir.toml")
	if out, _ := exec.Command(weir, "check", "--config", toml).Output(); !strings.Contains(string(out), "valid, 0 services") { // with a warning
		t.Errorf("weir check says %q", out)
	}
	for _, tt := range []struct {
		toml string
		code int
	}{
		{"", 1},
		{"[[service]]\nname = \"web\"\nvips = [\"192.0.2.1\"]\nports = [80]\nbackends = [\"10.0.0.1\"]\n", 0},
		{"[[servise]]\n", 0}, // weir run reports what is wrong
	} {
		more := filepath.Join(p.root, "etc/weir/conf.d/more.toml")
		must(t, os.WriteFile(more, []byte(tt.toml), 0o644))
		cmd := exec.Command(weir, "check", "--configured", "--config", toml)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("with %q: exit status %d, want %d: %s", tt.toml, code, tt.code, out)
		}
	}
}

// packagesPleaseLintian enables all checks; packaging/lintian-overrides explains what
// is not so. A later lintian than Debian 12's may have new remarks: of
// those only errors and warnings count.
func packagesPleaseLintian(t *testing.T, p *packages) {
	cmd := exec.Command("lintian", "--allow-root", "--display-info", "--display-experimental", "--pedantic", "--tag-display-limit", "0", p.made(t, "*_amd64.deb"))
	out, err := cmd.Output()
	version := strings.TrimSpace(tool(t, "lintian", "--version"))
	grave := regexp.MustCompile(`(?m)^[EW]: `).Match(out) || strings.Contains(version, "v2.116.")
	if found := strings.TrimSpace(string(out)); err != nil || found != "" && grave {
		t.Errorf("%s: %v\n%s", version, err, found)
	} else if found != "" {
		t.Logf("%s remarks:\n%s", version, found)
	}
}

func packagesPleaseRPM(t *testing.T, p *packages) { packagesAreFor(t, p, "amd64", "x86_64") }

// packagesForArm64 has the compiler make all of it for another processor.
func packagesForArm64(t *testing.T, p *packages) {
	soakOnly(t, "it builds all of weir once more")
	pack(t, p.sources, p.dir, "022", "UTC", "arm64.deb arm64.rpm")
	if d := cmp.Diff(p.files, listDeb(t, p.made(t, "*_arm64.deb"))); d != "" {
		t.Errorf("files for amd64 (-) and for arm64 (+):\n%s", d)
	}
	rpmHasFiles(t, p, "aarch64")
	packagesAreFor(t, p, "arm64", "aarch64")
}

// packagesAreFor checks the fields of the deb and of the rpm for a processor, which both
// call as they do.
func packagesAreFor(t *testing.T, p *packages, deb, rpm string) {
	t.Helper()
	file := p.made(t, "*."+rpm+".rpm")
	if out := tool(t, "rpm", "--checksig", "--nosignature", "--verbose", file); strings.Contains(out, "BAD") || !strings.Contains(out, "Payload SHA256 digest: OK") {
		t.Errorf("digests:\n%s", out)
	}
	said := tool(t, "rpm", "-qp", "--queryformat", "%{NAME} %{ARCH} %{OS} %{LICENSE} %{RELEASE}\n[%{REQUIRENAME} %{REQUIREFLAGS:depflags} %{REQUIREVERSION}\n][%{RECOMMENDNAME} is recommended\n]", file)
	if d := cmp.Diff(fmt.Sprintf("weir %s linux Apache-2.0 1\nkmod  \nsystemd >= 252\nipset is recommended\niptables is recommended\n", rpm), said); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
	said = strings.Join(strings.Fields(tool(t, "dpkg-deb", "--field", p.made(t, "*_"+deb+".deb"), "Architecture", "Depends", "Recommends")), " ")
	if d := cmp.Diff("Architecture: "+deb+" Depends: kmod, systemd (>= 252) | systemd-standalone-sysusers Recommends: ipset, iptables", said); d != "" {
		t.Errorf("the deb for %s (-want +got):\n%s", deb, d)
	}
}

var versionForm = regexp.MustCompile(`^weir (\S+) \(commit ([0-9a-f]{40}|unknown)(-dirty)? of (\S+Z), go\S+, linux/amd64\)\n$`)

func packagesHaveVersion(t *testing.T, p *packages) {
	said := tool(t, filepath.Join(p.root, "usr/bin/weir"), "version")
	m := versionForm.FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("weir version says %q", said)
	}
	if head, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil && m[3] == "" && m[2] != strings.TrimSpace(string(head)) {
		t.Errorf("commit %s, want %s", m[2], head)
	}
	if packed := strings.TrimSpace(tool(t, "dpkg-deb", "--field", p.made(t, "*_amd64.deb"), "Version")); m[1] != packed {
		t.Errorf("the package has version %s, the program %s", packed, m[1])
	}
	if strings.HasPrefix(m[1], "0~") { // a commit without a tag
		for _, later := range []string{"0.1.0", "1.0.0~rc.1"} {
			tool(t, "dpkg", "--compare-versions", m[1], "lt", later)
		}
	}
	tool(t, "dpkg", "--compare-versions", "1.0.0~rc.1", "lt", "1.0.0")
}

// script gives a maintainer script of the deb, or a scriptlet of the rpm.
func scriptFiles(t testing.TB) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("../../../packaging/scripts", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 6 {
		t.Fatalf("%d scripts: %v", len(files), err)
	}
	return files
}

func packagesHaveScripts(t *testing.T, p *packages) {
	for _, f := range append(scriptFiles(t), "../../../packaging/kubeconfig.sh") {
		if out, err := exec.Command("shellcheck", "--shell=sh", f).CombinedOutput(); err != nil {
			t.Errorf("shellcheck: %v\n%s", err, out)
		}
	}
	control := tool(t, "sh", "-c", `dpkg-deb --ctrl-tarfile "$1" | tar --list --verbose`, "sh", p.made(t, "*_amd64.deb"))
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		if !regexp.MustCompile(`(?m)^-rwxr-xr-x .* \./` + name + `$`).MatchString(control) {
			t.Errorf("the deb has no %s that can be run:\n%s", name, control)
		}
	}
	scripts := tool(t, "rpm", "-qp", "--scripts", p.made(t, "*.x86_64.rpm"))
	for _, name := range []string{"postinstall", "preuninstall", "postuninstall"} {
		if !strings.Contains(scripts, name+" scriptlet (using /bin/sh)") {
			t.Errorf("the rpm has no %s", name)
		}
	}
}
