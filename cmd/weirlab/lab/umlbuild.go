package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const archiveKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// kernelBuild is one build, in a folder that goes afterwards.
type kernelBuild struct {
	kernelSource
	ctx      context.Context
	progress io.Writer
	work     string // apt's state, the package, the sources
	into     string
}

func (b kernelBuild) path(elements ...string) string {
	return filepath.Join(append([]string{b.work}, elements...)...)
}

// run runs a command, and quotes the end of what it printed only when it fails: a build prints thousands
// of lines.
func (b kernelBuild) run(dir, name string, args ...string) (string, error) {
	cmd := gentle(exec.CommandContext(b.ctx, name, args...))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "APT_CONFIG="+b.path("apt.conf"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(out.Bytes())
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return out.String(), nil
}

// fetch asks the mirrors that this machine installs Debian from.
func (b kernelBuild) fetch() error {
	_, suites, err := aptSource(b.ctx, b.work, b.suites, "/dev/null")
	if err != nil {
		return err
	}
	if _, err := b.run(b.work, "apt-get", "-q", "update"); err != nil {
		return err
	}
	names, err := b.run(b.work, "apt-cache", "pkgnames", "linux-source-"+b.series)
	if err != nil {
		return err
	}
	pkg, err := b.newestSource(strings.Fields(names))
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(suites, ", "), err)
	}
	fmt.Fprintf(b.progress, "  kernel: %s of %s\n", pkg, strings.Join(suites, ", "))
	_, err = b.run(b.work, "apt-get", "-q", "download", pkg)
	return err
}

// debianMirrors returns where this machine's packages of Debian come from, by the label of the archive.
func debianMirrors(ctx context.Context) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)", "Created-By: Packages").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get indextargets: %w", err)
	}
	mirrors := map[string]string{}
	for line := range strings.Lines(string(out)) {
		uri, who, _ := strings.Cut(strings.TrimSpace(line), " ")
		if label, ok := strings.CutPrefix(who, "Debian "); ok && mirrors[label] == "" {
			mirrors[label] = uri
		}
	}
	if mirrors[labelMain] == "" {
		return nil, errors.New("this machine installs nothing from Debian's archive (apt-get indextargets), which has the kernel's sources: add Debian's main archive to /etc/apt/sources.list and run apt-get update")
	}
	return mirrors, nil
}

// newestSource returns the package of the highest version, "linux-source-7.3" of 7.2 and 7.3, or that of the
// series.
func (s kernelSource) newestSource(packages []string) (string, error) {
	version := func(pkg string) (v [2]int, ok bool) {
		major, minor, ok := strings.Cut(strings.TrimPrefix(pkg, "linux-source-"), ".")
		if !ok {
			return v, false
		}
		var errs [2]error
		v[0], errs[0] = strconv.Atoi(major)
		v[1], errs[1] = strconv.Atoi(minor)
		return v, errs[0] == nil && errs[1] == nil
	}
	newest, best := "", [2]int{}
	for _, pkg := range packages {
		if v, ok := version(pkg); ok && slices.Compare(v[:], best[:]) > 0 && (s.series == "" || pkg == "linux-source-"+s.series) {
			newest, best = pkg, v
		}
	}
	if newest == "" {
		return "", fmt.Errorf("no package linux-source-%s", cmp.Or(s.series, "*"))
	}
	return newest, nil
}

func (b kernelBuild) unpack() error {
	debs, err := filepath.Glob(b.path("linux-source-*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("%d packages were fetched: %w", len(debs), err)
	}
	if _, err := b.run(b.work, "dpkg", "-x", debs[0], b.path("package")); err != nil {
		return err
	}
	archives, err := filepath.Glob(b.path("package/usr/src/linux-source-*.tar.*"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("the package has %d archives: %w", len(archives), err)
	}
	if err := os.Mkdir(b.path("src"), 0o755); err != nil {
		return err
	}
	_, err = b.run(b.work, "tar", "-C", b.path("src"), "--strip-components=1", "-xf", archives[0])
	return errors.Join(err, os.RemoveAll(b.path("package")), os.Remove(debs[0]))
}

func (b kernelBuild) configure() error {
	if err := os.WriteFile(b.path("src", "weir.config"), b.fragment(), 0o644); err != nil {
		return err
	}
	for _, command := range []string{
		"make ARCH=um x86_64_defconfig", "scripts/kconfig/merge_config.sh -m -O . .config weir.config", "make ARCH=um olddefconfig",
	} {
		if _, err := b.run(b.path("src"), "sh", "-ec", command); err != nil {
			return err
		}
	}
	config, err := os.ReadFile(b.path("src", ".config"))
	if err != nil {
		return err
	}
	safe, missing := missingOptions(string(b.fragment()), string(config))
	for _, option := range safe {
		fmt.Fprintf(b.progress, "  kernel: without %s: %s\n", option, dispensable[option])
	}
	if len(missing) > 0 {
		return fmt.Errorf("these sources lack options that boxes need (kernel/uml.config): %s", strings.Join(missing, ", "))
	}
	return nil
}

// missingOptions returns the options of a fragment that a complete configuration does not have, those that
// boxes can do without apart. An option that the fragment disables is no matter.
func missingOptions(fragment, config string) (safe, missing []string) {
	has := map[string]bool{}
	for line := range strings.Lines(config) {
		if option, _, ok := strings.Cut(line, "="); ok {
			has[option] = true
		}
	}
	for line := range strings.Lines(fragment) {
		option, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case value == "n" || option == "" || has[option]:
		case dispensable[option] != "":
			safe = append(safe, option)
		default:
			missing = append(missing, option)
		}
	}
	return safe, missing
}

func (b kernelBuild) compile() error {
	_, err := b.run(b.path("src"), "make", fmt.Sprintf("-j%d", runtime.NumCPU()), "ARCH=um", "linux", "modules")
	return err
}

func (b kernelBuild) install() error {
	if _, err := b.run(b.path("src"), "make", "ARCH=um", "modules_install", "INSTALL_MOD_PATH="+b.into, "INSTALL_MOD_STRIP=1"); err != nil {
		return err
	}
	for _, link := range []string{"build", "source"} { // they lead into the folder that goes
		links, err := filepath.Glob(filepath.Join(b.into, "lib/modules/*", link))
		if err != nil {
			return err
		}
		for _, l := range links {
			if err := os.Remove(l); err != nil {
				return err
			}
		}
	}
	_, err := b.run(b.path("src"), "strip", "-o", filepath.Join(b.into, "linux"), "linux")
	return err
}
