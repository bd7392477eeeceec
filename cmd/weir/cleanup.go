package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/kernelmode"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
	"weir/lb"
)

func cleanupCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "remove all objects of weir from the kernel, and nothing else",
		Long: `Remove all objects of weir from the kernel: virtual servers, addresses, sets, rules
and the device. Connections through weir end. Foreign virtual servers, sets, chains
and addresses stay, and so does the device if it has such an address. Kernel
parameters stay, because other programs may depend on them by now; only accept_local
is reset with the rule that guards it. The command fails while the daemon runs, and
where kube-proxy has objects of the same names. It reads no kubeconfig, password or
key.

Exit status: 0 removed, 1 refused or failed.`,
		Args: cobra.NoArgs,
	}
	socket, file := socketFlag(cmd), configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch err := ask(cmd.Context(), *socket, *file, "GET", "/status", &status.Status{}); {
		case err == nil:
			return errors.New("weir is running and would restore everything: systemctl stop weir first")
		case !errors.Is(err, errNotRunning):
			return fmt.Errorf("can't find out whether weir is running, which would restore everything: %w", err)
		}
		owner, err := kernelmode.Lock(kernelmode.LockFolder) // a daemon with another socket, or one that is starting
		if err != nil {
			return err
		}
		defer owner.Close() //nolint:errcheck // the process ends
		removed, other, err := cleanUp(cmd, e, *file, "")
		if err == nil && other != "" {
			var more int
			more, _, err = cleanUp(cmd, e, *file, other)
			removed += more
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s removed from the kernel\n", text.Count(removed, "object"))
		return nil
	}
	return cmd
}

// cleanUp removes the objects with an owner of the rules, that of the configuration if it is "". other is
// the other owner, if an earlier run left sets with it.
func cleanUp(cmd *cobra.Command, e env, file string, rules config.Rules) (removed int, other config.Rules, err error) {
	kernel, err := openKernelAs(cmd.Context(), file, func(cfg *config.Config) {
		// With IPVS the virtual servers of either mode are found; without there is only one.
		cfg.Kernel.Mode = config.ModeAuto
		if rules != "" {
			cfg.Kernel.Rules = rules
		}
	})
	if err != nil {
		return 0, "", err
	}
	defer kernel.Close()
	if err := kernelmode.RefuseKubeProxy(cmd.Context(), kernel.Kernel); err != nil {
		return 0, "", err
	}
	found, err := kernel.IgnoreOther(cmd.Context())
	if err != nil {
		return 0, "", err
	}
	rec := lb.NewReconciler(kernel, kernelmode.LBOptions(kernel.cfg, kernel.mode, kernelmode.Node{}), config.Source)
	rep, err := rec.Cleanup(cmd.Context(), e.now())
	if err := errors.Join(append(rep.Errors, err)...); err != nil {
		return 0, "", err
	}
	for _, op := range rep.Ops {
		fmt.Fprintln(e.stdout, op)
	}
	if found {
		if other = config.RulesNFTables; kernel.mode.NFTables {
			other = config.RulesIPTables
		}
	}
	return len(rep.Ops), other, nil
}
