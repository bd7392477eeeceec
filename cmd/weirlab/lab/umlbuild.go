package lab

import (
	"bytes"
	"context"
	_ "embed"
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
	"time"
)

// kernelConfig is added to the default configuration of user-mode Linux.
//
//go:embed kernel/uml.config
var kernelConfig []byte

// sourceSuite has the newest kernel sources that Debian packages: the backports of the release after
// this one's. Only the package's name without its version is relied on, as backports drop old versions.
const sourceSuite = "trixie-backports"

const archiveKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

var needsOfKernelBuild = []need{
	{"make", "make"}, {"gcc", "gcc"}, {"/usr/include/stdlib.h", "libc6-dev"}, {"flex", "flex"}, {"bison", "bison"}, {"bc", "bc"},
	{"xz", "xz-utils"}, {"depmod", "kmod"}, {archiveKeyring, "debian-archive-keyring"},
}

// MissingKernelBuildPackages lists the Debian packages to install for BuildKernel, sorted.
func MissingKernelBuildPackages() []string { return packagesOf(needsOfKernelBuild, absent) }

// builtFolder is named after all that decides about its content but the version of the sources: the
// first one that was there stays.
func builtFolder() string { return "uml-" + sumOfBytes(kernelConfig) }

// builtUML returns the user-mode Linux that BuildKernel has built.
func builtUML() (umlKernel, error) {
	cache, err := cacheFolder()
	if err != nil {
		return umlKernel{}, err
	}
	dir := filepath.Join(cache, builtFolder())
	k := umlKernel{
		name: nameUMLNew, program: filepath.Join(dir, "linux"), modules: filepath.Join(dir, "lib/modules"),
		// Processes trap into the kernel by seccomp, not ptrace, where the host can: 200,000 system calls take
		// 1.8 s in place of 2.9, and 100 forks 0.5 in place of 0.8.
		options: []string{"seccomp=auto"},
	}
	if _, err := os.Stat(k.program); err != nil {
		return k, errors.New("no user-mode Linux is built: weirlab install --for test")
	}
	return k, nil
}

// CheckBuiltKernel returns an error unless BuildKernel has built a kernel that boots here.
func CheckBuiltKernel() error {
	k, err := builtUML()
	if err != nil {
		return err
	}
	return k.try()
}

// BuildKernel builds user-mode Linux from Debian's newest kernel sources into the cache, unless it is
// there. It takes about six minutes on two cores; each step and its time go to progress. The machine's
// own package lists are not touched.
func BuildKernel(ctx context.Context, progress io.Writer) error {
	if _, err := builtUML(); err == nil {
		return nil
	}
	fmt.Fprintln(progress, "a kernel for boxes, user-mode Linux from Debian's newest sources: about 6 minutes on two idle cores")
	_, err := cached(builtFolder(), func(dir string) error {
		work := filepath.Join(filepath.Dir(dir), "kernel-build")
		if err := os.RemoveAll(work); err != nil { // of a process that was killed
			return err
		}
		if err := os.Mkdir(work, 0o755); err != nil {
			return err
		}
		defer os.RemoveAll(work)
		b := kernelBuild{ctx: ctx, progress: progress, work: work, into: dir}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"find and fetch the sources", b.fetch}, {"unpack", b.unpack}, {"configure", b.configure}, {"compile", b.compile}, {"install", b.install},
		} {
			began := time.Now()
			if err := step.do(); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			fmt.Fprintf(progress, "  kernel: %s: %s\n", step.name, time.Since(began).Round(time.Second))
		}
		return nil
	})
	return err
}

// kernelBuild is one build, in a folder that goes afterwards.
type kernelBuild struct {
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

// fetch asks the mirror that this machine installs Debian from.
func (b kernelBuild) fetch() error {
	mirror, err := debianMirror(b.ctx)
	if err != nil {
		return err
	}
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			return err
		}
	}
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", archiveKeyring, mirror, sourceSuite)
	conf := fmt.Sprintf("Dir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nDir::State::lists %q;\nDir::Cache %q;\nDir::State::status \"/dev/null\";\nAPT::Sandbox::User \"root\";\n",
		b.path("sources.list"), b.path("lists"), b.path("cache"))
	if err := errors.Join(os.WriteFile(b.path("sources.list"), []byte(source), 0o644), os.WriteFile(b.path("apt.conf"), []byte(conf), 0o644)); err != nil {
		return err
	}
	if _, err := b.run(b.work, "apt-get", "-q", "update"); err != nil {
		return err
	}
	names, err := b.run(b.work, "apt-cache", "pkgnames", "linux-source-")
	if err != nil {
		return err
	}
	pkg, err := newestSource(strings.Fields(names))
	if err != nil {
		return err
	}
	fmt.Fprintf(b.progress, "  kernel: %s of %s\n", pkg, sourceSuite)
	_, err = b.run(b.work, "apt-get", "-q", "download", pkg)
	return err
}

// debianMirror is where this machine's packages of Debian's main archive come from.
func debianMirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if uri, who, _ := strings.Cut(strings.TrimSpace(line), " "); who == "Debian Debian" {
			return uri, nil
		}
	}
	return "", errors.New("this machine installs nothing from Debian's archive (apt-get indextargets), which has the kernel's sources: add Debian's main archive to /etc/apt/sources.list and run apt-get update")
}

// newestSource is the package of the highest version, "linux-source-7.3" of 7.2 and 7.3.
func newestSource(packages []string) (string, error) {
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
		if v, ok := version(pkg); ok && slices.Compare(v[:], best[:]) > 0 {
			newest, best = pkg, v
		}
	}
	if newest == "" {
		return "", fmt.Errorf("%s has no package linux-source-*", sourceSuite)
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
	if err := os.WriteFile(b.path("src", "weir.config"), kernelConfig, 0o644); err != nil {
		return err
	}
	for _, command := range []string{
		"make ARCH=um x86_64_defconfig", "scripts/kconfig/merge_config.sh -m -O . .config weir.config", "make ARCH=um olddefconfig",
	} {
		if _, err := b.run(b.path("src"), "sh", "-ec", command); err != nil {
			return err
		}
	}
	return nil
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
