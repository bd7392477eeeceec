package lab

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// kernelConfig is added to the default configuration of user-mode Linux.
//
//go:embed kernel/uml.config
var kernelConfig []byte

// kernelSource is a package of Debian with the sources of a user-mode Linux that is built here.
type kernelSource struct {
	name   string            // as WEIR_LAB_KERNEL has it
	folder string            // the beginning of its folder's name in the cache
	suites map[string]string // by the label of their archive
	series string            // "6.1" of linux-source-6.1; "" for the newest one
	// config is added to kernelConfig.
	config string
	// options of the kernel itself.
	options []string
	hint    string // how it gets built
}

// The sources are relied on by the name of the package without its full version, as archives drop old ones.
var (
	// newSource is the newest that Debian packages: in the backports of the release after this one's.
	newSource = kernelSource{
		name: nameUMLNew, folder: "uml-", suites: map[string]string{labelMain: "trixie-backports"},
		// Processes trap into the kernel by seccomp, not ptrace, where the host can: 200,000 system calls take
		// 1.8 s in place of 2.9, and 100 forks 0.5 in place of 0.8.
		options: []string{"seccomp=auto"},
		hint:    "weirlab install --for test",
	}
	// source61 is Debian 12's. Unlike the binary that Debian builds of it, it has all of nf_tables here.
	source61 = kernelSource{
		name: nameUML61, folder: "uml-6.1-", suites: map[string]string{labelMain: "bookworm", labelSecurity: "bookworm-security"},
		series: "6.1",
		// An interrupt reads the stack of its task. Without this option, a part of the stack is not mapped for a
		// moment after a module is loaded, and the kernel then repeats the page fault forever: 4 of 60 boots on
		// a busy machine (to_irq_stack in arch/um/kernel/irq.c, flush_tlb_kernel_range in tlb.c). 7.3 was never
		// seen to do that.
		config: "CONFIG_VMAP_STACK=n\n",
		hint:   "weirlab test --kernel uml-6.1 --run TestFirstPacket builds it",
	}
)

// The labels of Debian's archives.
const (
	labelMain     = "Debian"
	labelSecurity = "Debian-Security"
)

// dispensable are the options of kernelConfig that a kernel may lack, and the reasons.
var dispensable = map[string]string{
	"CONFIG_NETFILTER_XTABLES_LEGACY": legacyAlways, "CONFIG_IP_NF_IPTABLES_LEGACY": legacyAlways, "CONFIG_IP6_NF_IPTABLES_LEGACY": legacyAlways,
	"CONFIG_CRYPTO_MD5": libraryNow, "CONFIG_CRYPTO_CRC32C": libraryNow,
	"CONFIG_IFB": "no test needs it",
}

const (
	legacyAlways = "older kernels have the tables of iptables-legacy without it"
	libraryNow   = "newer kernels have it in a library, which its users select"
)

// cacheName is named after all that decides about the kernel but the version of the sources: the first one
// that was there stays.
func (s kernelSource) cacheName() string { return s.folder + sumOfBytes(s.fragment()) }

// fragment is the configuration that is added to the default one.
func (s kernelSource) fragment() []byte { return append(bytes.Clone(kernelConfig), s.config...) }

// built returns the user-mode Linux that was built from the sources.
func (s kernelSource) built() (umlKernel, error) {
	dir, err := cacheWith(s.cacheName(), "linux")
	k := umlKernel{name: s.name, program: filepath.Join(dir, "linux"), modules: filepath.Join(dir, "lib/modules"), options: s.options}
	if err != nil {
		return k, fmt.Errorf("no user-mode Linux %sis built: %s", s.label(), s.hint)
	}
	return k, nil
}

// label is the series in a sentence.
func (s kernelSource) label() string {
	if s.series == "" {
		return ""
	}
	return s.series + " "
}

// bootable returns the built kernel if it boots here.
func (s kernelSource) bootable() (umlKernel, error) {
	k, err := s.built()
	if err != nil {
		return k, err
	}
	return k.bootable()
}

// CheckBuiltKernel returns an error unless the kernel of this name, uml-new or uml-6.1, has been built here and
// boots.
func CheckBuiltKernel(name string) error {
	source := newSource
	if name == source61.name {
		source = source61
	}
	_, err := source.bootable()
	return err
}

// BuildKernel builds user-mode Linux from Debian's newest kernel sources into the cache, unless it is
// there. It takes about six minutes on two cores; each step and its time go to progress. The machine's
// own package lists are not touched.
func BuildKernel(ctx context.Context, progress io.Writer) error {
	return newSource.build(ctx, progress)
}

// diskForKernel is the disk space that a build takes, in bytes.
const diskForKernel = 2 << 30

// PrepareKernel builds the kernel that has this name in WEIR_LAB_KERNEL, if it is one that only few tests
// need and that weirlab install does not build: uml-6.1. It installs the packages for it first.
func PrepareKernel(ctx context.Context, progress io.Writer, name string) error {
	if name != source61.name {
		return nil
	}
	if _, err := source61.built(); err == nil {
		return nil
	}
	if err := CheckSpace(diskForKernel, "building a kernel"); err != nil {
		return err
	}
	if err := InstallPackages(ctx, progress, KernelBuild.Missing()...); err != nil {
		return err
	}
	return source61.build(ctx, progress)
}

func (s kernelSource) build(ctx context.Context, progress io.Writer) error {
	if _, err := s.built(); err == nil {
		return nil
	}
	began := time.Now()
	fmt.Fprintf(progress, "a kernel for boxes, user-mode Linux %sfrom Debian's newest sources: about 6 minutes on two idle cores\n", s.label())
	_, err := cached(s.cacheName(), func(dir string) error {
		work := filepath.Join(filepath.Dir(dir), s.name+"-build")
		if err := os.RemoveAll(work); err != nil { // of a process that was killed
			return err
		}
		if err := os.Mkdir(work, 0o755); err != nil {
			return err
		}
		defer os.RemoveAll(work)
		b := kernelBuild{kernelSource: s, ctx: ctx, progress: progress, work: work, into: dir}
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
	if err == nil {
		fmt.Fprintf(progress, "  kernel: all steps: %s\n", time.Since(began).Round(time.Second))
	}
	return err
}
