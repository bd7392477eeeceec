package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

// purpose is what a lab is wanted for, and what that takes.
type purpose struct {
	name    string
	kernels bool // both generations of user-mode Linux; else any kernel does
	qemu    bool // Debian's own kernel too, in qemu
	race    bool
	peers   bool // keepalived, and a Kubernetes API
	systemd bool // boxes in which systemd is PID 1
	browser bool // one that checks the status page
	deb     bool // what looks over weir's own packages, deb and rpm
	rules   bool // promtool, which looks over the rules for alerts
}

var purposes = []purpose{
	{name: "demo"},
	{name: "bench", kernels: true, peers: true},
	{name: "drill", kernels: true, peers: true},
	{name: "conformance", kernels: true, peers: true},
	{name: "test", kernels: true, qemu: true, race: true, peers: true, systemd: true, browser: true, deb: true, rules: true},
}

// The disk space that a purpose takes in the cache folder, in bytes, Go's own caches included, where nothing is there
// yet: for tests 2 GB for the kernel while it is built, and 4 GB for Kubernetes.
const (
	diskForTests = 6 << 30
	diskForDemo  = 1 << 30 // without Kubernetes
)

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "try the kernels that boxes can have here, and list what else is missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := lab.CheckRoot(); err != nil {
				return err
			}
			if _, err := lab.Choose(); err != nil && lab.CheckSpace(diskForDemo, "a lab") != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KERNEL\tUSABLE\tWHAT\tREASON")
			usable := false
			for _, k := range lab.Kernels() {
				yes, reason := "yes", ""
				if k.Err != nil {
					yes, reason = "no", firstLine(k.Err)
				}
				usable = usable || k.Err == nil
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.Kernel, yes, k.What, reason)
			}
			fmt.Fprintln(w, "\nFOR TESTS\tREADY\t\tREASON")
			lacking := false
			for _, more := range []struct {
				name string
				err  error
			}{
				{"go test -race", lab.Race.Check()}, {"routers", lab.Routers.Check()}, {"keepalived", lab.Keepalived.Check()},
				{"browser", lab.Chromium.Check()}, {"systemd", lab.CheckSystemd()}, {"firewalls", lab.CheckFirewalls()}, {"packages", lab.Packaging.Check()},
				{"promtool", lab.CheckPromtool()}, {"Kubernetes", lab.CheckPeers()},
			} {
				yes, reason := "yes", ""
				if more.err != nil {
					yes, reason, lacking = "no", firstLine(more.err), true
				}
				fmt.Fprintf(w, "%s\t%s\t\t%s\n", more.name, yes, reason)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if chosen, err := lab.Choose(); err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "\nmake demo uses %s; make test, bench, drill, conformance and soak use uml-new.\n%s=NAME forces another.\n", chosen, lab.KernelVariable)
			}
			if !usable {
				return errors.New("no kernel for boxes works here: weirlab install --for demo")
			}
			if lacking {
				return errors.New("something is missing for tests: weirlab install --for test")
			}
			return nil
		},
	}
}

// firstLine is an error in a table: what a compiler printed may follow.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func installCommand() *cobra.Command {
	name := "test"
	var names []string
	for _, p := range purposes {
		names = append(names, p.name)
	}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "install the packages a lab needs; for tests also build a kernel and a Kubernetes API",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&name, "for", name, "what for: "+strings.Join(names, ", "))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at := slices.IndexFunc(purposes, func(p purpose) bool { return p.name == name })
		if at < 0 {
			return fmt.Errorf("--for %s: want %s", name, strings.Join(names, ", "))
		}
		if err := able(purposes[at]); err != nil {
			return err
		}
		return purposes[at].install(cmd.Context(), os.Stderr)
	}
	return cmd
}

// able returns in a line what keeps a lab from being installed here, before anything is changed.
func able(p purpose) error {
	if err := lab.CheckRoot(); err != nil {
		return err
	}
	if p.kernels || lab.CheckHostKernel() != nil {
		if err := lab.CheckTun(); err != nil {
			return err
		}
	}
	if !p.kernels {
		if _, err := lab.Choose(); err == nil {
			return nil
		}
		return lab.CheckSpace(diskForDemo, "a lab")
	}
	if lab.CheckBuiltKernel("uml-new") == nil && lab.CheckPeers() == nil {
		return nil
	}
	return lab.CheckSpace(diskForTests, "building a kernel and Kubernetes")
}

// install brings what is missing, names it first, and prints what each part took.
func (p purpose) install(ctx context.Context, progress io.Writer) error {
	var wanted []string
	want := func(purpose string, packages []string) {
		if len(packages) > 0 {
			fmt.Fprintf(progress, "missing for %s: %s\n", purpose, strings.Join(packages, " "))
			wanted = append(wanted, packages...)
		}
	}
	var kernels []lab.Kernel
	if p.qemu {
		kernels = append(kernels, lab.Qemu)
	}
	want("a lab", lab.MissingPackages(kernels...))
	want("routers beside weir", lab.Routers.Missing())
	if p.kernels {
		want("the old kernel, 6.1", lab.OldKernel.Missing())
		if lab.CheckBuiltKernel("uml-new") != nil {
			want("building a kernel", lab.KernelBuild.Missing())
		}
	}
	if p.race {
		want("go test -race, which needs a C compiler", lab.Race.Missing())
	}
	if p.peers {
		want("boxes that run keepalived", lab.Keepalived.Missing())
	}
	if p.deb {
		want("checks of weir's packages", lab.Packaging.Missing())
	}
	if p.browser {
		want("the test of the status page", lab.Chromium.Missing())
	}
	systemd := p.systemd && lab.CheckSystemd() != nil
	if systemd {
		want("boxes with systemd", lab.Debootstrap.Missing())
	}
	steps := []struct {
		name string
		do   func() error
		on   bool
	}{
		{"packages", func() error { return lab.InstallPackages(ctx, progress, wanted...) }, len(wanted) > 0},
		{"a kernel that works here", func() error { return installAnyKernel(ctx, progress) }, !p.kernels},
		{"the new kernel", func() error { return lab.BuildKernel(ctx, progress) }, p.kernels},
		{"the old kernel", func() error { return lab.PrepareOldKernel(ctx, progress) }, p.kernels},
		{"Debian with systemd", func() error { return lab.BuildSystemd(ctx, progress) }, systemd},
		{"firewalls for boxes with systemd", func() error { return lab.BuildFirewalls(ctx, progress) }, p.systemd},
		{"Debian's kernel for qemu", func() error { return lab.FetchKernel(ctx, progress) }, p.qemu},
		{"promtool", func() error { return lab.FetchPromtool(ctx, progress) }, p.rules},
		{"Kubernetes", func() error { return lab.BuildPeers(ctx, progress) }, p.peers},
	}
	for _, step := range steps {
		if !step.on {
			continue
		}
		began := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("install %s: %w", step.name, err)
		}
		if took := time.Since(began); took > time.Second {
			fmt.Fprintf(progress, "installed %s: %s\n", step.name, took.Round(time.Second))
		}
	}
	return nil
}

// installAnyKernel brings the kernel that takes least, where none works yet: user-mode Linux as Debian
// packages it, with the library that new processors need, or Debian's own kernel in qemu.
func installAnyKernel(ctx context.Context, progress io.Writer) error {
	if _, err := lab.Choose(); err == nil || os.Getenv(lab.KernelVariable) != "" {
		return err
	}
	var failed error
	if runtime.GOARCH == "amd64" {
		if err := lab.InstallPackages(ctx, progress, lab.OldKernel.Missing()...); err != nil {
			return err
		}
		if failed = lab.PrepareOldKernel(ctx, progress); failed == nil {
			return nil
		}
		fmt.Fprintf(progress, "user-mode Linux does not work here (%v); qemu is next\n", failed)
	}
	if err := lab.InstallPackages(ctx, progress, lab.MissingPackages(lab.Qemu)...); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(lab.FetchKernel(ctx, progress), lab.Check(lab.Qemu))
}
