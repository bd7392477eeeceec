package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/backendhost"
)

func backendCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backend VIP...",
		Short: "configure this server as a backend of forward = \"direct\" or \"tunnel\"",
		Long: `Make this server a backend that gets packets to the VIPs and replies to clients
itself. It gets the VIPs on its loopback device, and does not answer ARP for them. With
--tunnel it ends tunnels of this type, and lowers the largest TCP segment that clients
send, so that it fits the tunnel. Other VIPs of an earlier call are removed.

Each change is printed and recorded in /run/weir-backend.json, for weir backend undo. A
part that another program configured stays as it is. --print prints the commands for
a server without weir, and changes nothing. No daemon is necessary. weir-backend.service
does the same at boot: see concepts.md of the documentation.

Exit status: 0 configured, 1 failed, 2 invalid arguments.`,
	}
	spec := backendFlags(cmd)
	show := cmd.Flags().Bool("print", false, "print the commands instead of running them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := spec(args)
		if err != nil {
			return err
		}
		if *show {
			fmt.Fprint(e.stdout, s.Recipe())
			return nil
		}
		return e.ran(backendhost.ThisHost().Configure(cmd.Context(), s))
	}
	cmd.AddCommand(reads(e, backendCheckCommand), backendUndoCommand(e))
	return cmd
}

// ran prints commands that were run.
func (e env) ran(commands []string, err error) error {
	for _, c := range commands {
		fmt.Fprintln(e.stdout, c)
	}
	if err == nil && len(commands) == 0 {
		fmt.Fprintln(e.stdout, "nothing to do")
	}
	return err
}

// backendFlags adds the flags of a specification, and returns its reader.
func backendFlags(cmd *cobra.Command) func(vips []string) (backendhost.Spec, error) {
	tunnel := cmd.Flags().String("tunnel", "", "`type` of the tunnel: ipip, gue or gre, as service.tunnel; without it direct routing")
	port := cmd.Flags().Uint16("tunnel-port", 6080, "UDP `port` of gue, as service.tunnel_port")
	mixed := cmd.Flags().Bool("mixed", false, "the box reaches this server by the other family than that of the VIP, too")
	mtu := cmd.Flags().Int("mtu", 0, "MTU of the path from the box, in `bytes`; 0 is the least of this server's devices")
	_ = cmd.RegisterFlagCompletionFunc("tunnel", cobra.FixedCompletions(backendhost.Tunnels, cobra.ShellCompDirectiveNoFileComp))
	return func(vips []string) (backendhost.Spec, error) {
		s := backendhost.Spec{Tunnel: *tunnel, Mixed: *mixed}
		switch {
		case cmd.Flags().Changed("tunnel-port") && *tunnel != "gue":
			return s, exitError{exitInvalid, errors.New("--tunnel-port has no effect without --tunnel gue")}
		case *mtu != 0 && *tunnel == "":
			return s, exitError{exitInvalid, errors.New("--mtu has no effect without --tunnel")}
		}
		for _, text := range vips {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return s, exitError{exitInvalid, fmt.Errorf("%q is no address", text)}
			}
			s.VIPs = append(s.VIPs, a.Unmap())
		}
		if *tunnel == "gue" {
			s.Port = *port
		}
		if *tunnel != "" {
			if s.MTU = *mtu; s.MTU == 0 {
				s.MTU = backendhost.MTU()
			}
		}
		if err := s.Validate(); err != nil {
			return s, exitError{exitInvalid, err}
		}
		return s, nil
	}
}

func backendCheckCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [VIP...]",
		Short: "check the configuration of this server as a backend",
		Long: `Compare this server with the configuration of the last weir backend, or with the one
of the arguments. Each fault is printed with the commands that repair it.

Exit status: 0 all is in effect, 1 faults or not configured, 2 invalid arguments.`,
	}
	spec, format := backendFlags(cmd), outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host := backendhost.ThisHost()
		s, err := host.Configured()
		flags := slices.ContainsFunc([]string{"tunnel", "tunnel-port", "mixed", "mtu"}, cmd.Flags().Changed)
		switch {
		case len(args) > 0 || flags: // without VIPs, flags are invalid
			s, err = spec(args)
		case err == nil && len(s.VIPs) == 0:
			err = errors.New("this server is not configured: name the VIPs, or type weir backend VIP... first")
		}
		if err != nil {
			return err
		}
		report := host.Check(cmd.Context(), s)
		if err := e.write(report, *format); err != nil {
			return err
		}
		if !report.OK {
			return exitError{code: 1}
		}
		return nil
	}
	return cmd
}

func backendUndoCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "revert the changes of weir backend",
		Long: `Revert the changes that weir backend made since the last boot, the last one first. VIPs,
ports and rules are removed, devices are down, and kernel parameters have their earlier
values. Established connections to the VIPs end. Drain the server first, with weight 0
on the box.

Exit status: 0 reverted, 1 failed.`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return e.ran(backendhost.ThisHost().Undo(context.WithoutCancel(cmd.Context()))) // an interrupted one would lose the record
	}
	return cmd
}
