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
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/agent"
	"weir/cmd/weirlab/internal/inside"
)

// User-mode Linux is a kernel that is an ordinary program. There are two generations of it: one that
// weirlab install builds from Debian's newest kernel sources (package linux-source), and 6.1. The latter
// is Debian 12's own binary (package user-mode-linux), which lacks most of nf_tables, and one that is
// built here from the same sources when a test needs nf_tables. Where the processor has more register
// state than 6.1 has room for, it needs a small library beside it: see kernel/xstate.c.

// umlKernel is a user-mode Linux of this machine.
type umlKernel struct {
	name    string // as WEIR_LAB_KERNEL has it
	program string
	modules string // the folder that holds the folder VERSION
	library string // to be preloaded, "" for none
	options []string
}

// The names of user-mode Linux in WEIR_LAB_KERNEL.
const (
	nameUML    = "uml"     // whichever boots, the built one first
	nameUMLNew = "uml-new" // the newest, built here
	nameUML61  = "uml-6.1" // 6.1, built here
	nameUMLOld = "uml-old" // Debian 12's binary of 6.1
)

const (
	umlOldProgram = "linux.uml"
	umlOldModules = "/usr/lib/uml/modules"
	umlFolder     = "uml" // in the machine's, for user-mode Linux's own use
)

// findUML returns the user-mode Linux to use. The newest one comes first: it boots in half the time and on
// every processor. A trial boot decides about Debian's. 6.1 with all of nf_tables must be wanted.
func findUML() (umlKernel, error) {
	switch os.Getenv(KernelVariable) {
	case nameUMLNew:
		return newSource.bootable()
	case nameUML61:
		return source61.bootable()
	case nameUMLOld:
		return debianUML()
	}
	k, err := newSource.bootable()
	if err == nil {
		return k, nil
	}
	old, more := debianUML()
	if more != nil {
		return old, errors.Join(err, more)
	}
	return old, nil
}

// debianUML returns Debian's user-mode Linux if it boots here.
func debianUML() (umlKernel, error) {
	k, err := findDebianUML()
	if err != nil {
		return k, err
	}
	return k.bootable()
}

func findDebianUML() (k umlKernel, err error) {
	k = umlKernel{name: nameUMLOld, program: findProgram(umlOldProgram), modules: umlOldModules}
	if k.program == "" {
		err = fmt.Errorf("%s is missing: apt-get install -y user-mode-linux", umlOldProgram)
	}
	return k, err
}

// bootable returns the kernel with the library where it does not boot without. An error means that it
// does not boot at all.
func (k umlKernel) bootable() (umlKernel, error) {
	plain := k.try()
	if plain == nil {
		return k, nil
	}
	library, err := xstateLibrary()
	if err != nil {
		return k, fmt.Errorf("%s does not boot here (%w), and the library that helps on new processors can't be built: %w", k.program, plain, err)
	}
	k.library = library
	return k, k.try()
}

// PrepareOldKernel makes Debian's user-mode Linux boot here: on a processor with much register state it
// installs a compiler and builds the library.
func PrepareOldKernel(ctx context.Context, progress io.Writer) error {
	k, err := findDebianUML()
	if err != nil || k.try() == nil {
		return err
	}
	if missing := Race.Missing(); len(missing) > 0 {
		fmt.Fprintf(progress, "missing for user-mode Linux on this processor, a C compiler: %s\n", strings.Join(missing, " "))
		if err := InstallPackages(ctx, progress, missing...); err != nil {
			return err
		}
	}
	_, err = debianUML()
	return err
}

//go:embed kernel/xstate.c
var xstateSource []byte

// xstateLibrary compiles the library of kernel/xstate.c, once.
func xstateLibrary() (string, error) {
	dir, err := cached("xstate-"+sumOfBytes(xstateSource), func(dir string) error {
		if findProgram("gcc") == "" {
			return errors.New("gcc is missing: apt-get install -y gcc libc6-dev")
		}
		cc := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-o", filepath.Join(dir, "xstate.so"), "-")
		cc.Stdin = bytes.NewReader(xstateSource)
		if out, err := cc.CombinedOutput(); err != nil {
			return fmt.Errorf("gcc: %w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
	return filepath.Join(dir, "xstate.so"), err
}

// version asks the kernel for it.
func (k umlKernel) version() (string, error) {
	out, err := exec.Command(k.program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", k.program, err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// umlModules returns a folder with a lib/modules that the kernel's modprobe can use.
func (k umlKernel) moduleFolder() (version, folder string, err error) {
	version, err = k.version()
	if err != nil {
		return "", "", err
	}
	folder, err = moduleFolder(k.modules, version)
	return version, folder, err
}

// environment is what the kernel's process needs beside its own.
func (k umlKernel) environment() []string {
	if k.library == "" {
		return nil
	}
	return []string{"LD_PRELOAD=" + k.library}
}

// try boots the kernel, once for each boot of this machine.
func (k umlKernel) try() error {
	program, err := Binary(firstPackage) // before the time runs
	if err != nil {
		return err
	}
	return trial(k.name+filepath.Base(k.library), k.program, func(ctx context.Context) error {
		folder, err := os.MkdirTemp("", "weirlab-trial-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		cmd := exec.CommandContext(ctx, k.program, "mem=64M", "uml_dir="+folder, "rootfstype=hostfs", "rootflags=/", "ro",
			"init="+program, "con=null", "con0=null,fd:1", "quiet", "panic=-1")
		cmd.Args = append(append(cmd.Args, k.options...), "trial")
		cmd.Env = append(os.Environ(), append(k.environment(), "TMPDIR="+folder)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), inside.Ready) {
			return nil
		}
		return fmt.Errorf("trial boot of %s: %w: %s", k.program, errors.Join(err, ctx.Err()), panicLine(string(out)))
	})
}

// panicLine is the line of a kernel's console with the reason of its end.
func panicLine(console string) string {
	last := ""
	for line := range strings.Lines(console) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "Kernel panic") || strings.Contains(line, "failed") {
			return line
		}
		if line != "" {
			last = line
		}
	}
	return last
}

// remindEvery is the longest that a packet stays unseen.
const remindEvery = 20 * time.Millisecond

// remind has user-mode Linux poll its network cards, until the power is off. The host's driver of a card (tun_net_xmit in
// drivers/net/tun.c) sends the signal for a packet first, and wakes epoll then. A kernel that runs on another processor
// may poll between the two. It finds nothing, and the packet stays there until the next one comes, for seconds.
func (m boot) remind(on *power) error {
	// A ticker of this process would cost ten times as much. The signal is ignored by a reboot, until the new kernel has its
	// handler (os_set_ioignore).
	const loop = `my ($kernel, $pause) = @ARGV; select undef, undef, undef, $pause while kill "IO", $kernel`
	command := []string{"perl", "-e", loop, strconv.Itoa(on.kernel.Pid()), strconv.FormatFloat(remindEvery.Seconds(), 'f', -1, 64)}
	_, err := m.lab.launch(on.ctx, on.ctx, m.lab.keeper.dial, m.name+" reminder", agent.Request{Op: agent.Run, Args: command}, evidence(m).newLog("reminder"))
	if err != nil {
		return fmt.Errorf("signal the kernel: %w", err)
	}
	return nil
}
