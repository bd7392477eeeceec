package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

// everyKernel is what install can provide. A host kernel without IPVS cannot be helped by packages.
var everyKernel = []lab.Kernel{lab.UML, lab.Qemu}

// purpose is what a lab is wanted for, and what that takes.
type purpose struct {
	name    string
	kernels []lab.Kernel
	race    bool
	peers   bool // keepalived, to run beside weir
	systemd bool // boxes in which systemd is PID 1
	browser bool // one that looks at the status page
	deb     bool // what looks over weir's own packages, deb and rpm
	rules   bool // promtool, which looks over the rules for alerts
}

var purposes = []purpose{
	{name: "demo", kernels: []lab.Kernel{lab.UML}},
	{name: "bench", kernels: []lab.Kernel{lab.UML}},
	{name: "drill", kernels: []lab.Kernel{lab.UML}, peers: true},
	{name: "test", kernels: everyKernel, race: true, peers: true, systemd: true, browser: true, deb: true, rules: true},
}

// kubernetes is what check calls the peers, a real Kubernetes API and kube-proxy.
const kubernetes = "Kubernetes"

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "tell which kernels a lab can use here, and what is missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lacking := false
			for _, kernel := range append(everyKernel, lab.HostKernel) {
				err := lab.Check(kernel)
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%-16s ready\n", kernel)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-16s %v\n", kernel, err)
				lacking = lacking || kernel != lab.HostKernel
			}
			if missing := lab.MissingRacePackages(); len(missing) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%-16s packages are missing: apt-get install -y %s\n", "go test -race", strings.Join(missing, " "))
				lacking = true
			}
			for _, more := range []struct {
				name string
				err  error
			}{{"routers", lab.CheckRouters()}, {"keepalived", lab.CheckKeepalived()}, {"browser", lab.CheckBrowser()}, {"systemd", lab.CheckSystemd()}, {"packages", lab.CheckPackaging()}, {"promtool", lab.CheckPromtool()}, {kubernetes, lab.CheckPeers()}} {
				if more.err != nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%-16s %v\n", more.name, more.err)
					lacking = true
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-16s ready\n", more.name)
			}
			if lacking {
				return fmt.Errorf("something is missing; weirlab install may help")
			}
			return nil
		},
	}
}

func installCommand() *cobra.Command {
	name := "test"
	cmd := &cobra.Command{
		Use:   "install",
		Short: "install the packages a lab needs, fetch the kernel for qemu and a Debian with systemd, build a Kubernetes API",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&name, "for", name, "what for: demo, bench, drill or test; only tests boot Debian's kernel in qemu")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at := slices.IndexFunc(purposes, func(p purpose) bool { return p.name == name })
		if at < 0 {
			return fmt.Errorf("--for %s: want demo, bench, drill or test", name)
		}
		if os.Geteuid() != 0 {
			return errors.New("a lab needs root, and so does installing its packages")
		}
		return purposes[at].install(cmd.Context(), os.Stderr)
	}
	return cmd
}

// install brings what is missing, and says why first.
func (p purpose) install(ctx context.Context, progress io.Writer) error {
	wanted := lab.MissingPackages(p.kernels...)
	if len(wanted) > 0 {
		fmt.Fprintf(progress, "missing for a lab: %s\n", strings.Join(wanted, " "))
	}
	if race := lab.MissingRacePackages(); p.race && len(race) > 0 {
		fmt.Fprintf(progress, "missing for go test -race, whose detector is C: %s\n", strings.Join(race, " "))
		wanted = append(wanted, race...)
	}
	if routers := lab.MissingRouterPackages(); len(routers) > 0 {
		fmt.Fprintf(progress, "missing for routers in the lab, peers of weir's: %s\n", strings.Join(routers, " "))
		wanted = append(wanted, routers...)
	}
	if keepalived := lab.MissingKeepalivedPackages(); p.peers && len(keepalived) > 0 {
		fmt.Fprintf(progress, "missing for boxes that run keepalived, beside those that run weir: %s\n", strings.Join(keepalived, " "))
		wanted = append(wanted, keepalived...)
	}
	if packaging := lab.MissingPackagingPackages(); p.deb && len(packaging) > 0 {
		fmt.Fprintf(progress, "missing to look over weir's packages: %s\n", strings.Join(packaging, " "))
		wanted = append(wanted, packaging...)
	}
	if browser := lab.MissingBrowserPackages(); p.browser && len(browser) > 0 {
		fmt.Fprintf(progress, "missing to look at the status page: %s\n", strings.Join(browser, " "))
		wanted = append(wanted, browser...)
	}
	systemd := p.systemd && lab.CheckSystemd() != nil
	if missing := lab.MissingSystemdPackages(); systemd && len(missing) > 0 {
		fmt.Fprintf(progress, "missing for boxes with systemd: %s\n", strings.Join(missing, " "))
		wanted = append(wanted, missing...)
	}
	if err := lab.InstallPackages(ctx, progress, wanted...); err != nil {
		return err
	}
	if systemd {
		if err := lab.BuildSystemd(ctx, progress); err != nil {
			return err
		}
	}
	if slices.Contains(p.kernels, lab.Qemu) {
		if err := lab.FetchKernel(ctx, progress); err != nil {
			return err
		}
	}
	if p.rules {
		if err := lab.FetchPromtool(ctx, progress); err != nil {
			return err
		}
	}
	return lab.BuildPeers(ctx, progress)
}
