package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/daemon"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

func cleanupCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "take everything of weir's out of the kernel, and nothing else",
		Long: `Take everything of weir's out of the kernel: virtual servers, addresses, sets,
rules and the device. Connections through weir end. Strangers' virtual servers,
sets, chains and addresses stay, and the device if it holds such an address; so
do kernel parameters, since others may have come to rely on them. Refuses while
the daemon runs, and where kube-proxy has things of the same names.`,
		Args: cobra.NoArgs,
	}
	socket, file := socketFlag(cmd), configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch err := ask(cmd.Context(), *socket, *file, "GET", "/status", &status.Status{}); {
		case err == nil:
			return errors.New("weir runs and would put everything back: systemctl stop weir first")
		case !errors.Is(err, errNotRunning):
			return fmt.Errorf("it can't be told whether weir runs, and would put everything back: %w", err)
		}
		owner, err := daemon.Own() // a daemon whose socket is elsewhere; or that starts meanwhile
		if err != nil {
			return err
		}
		defer owner.Close() //nolint:errcheck // the process ends
		kernel, err := openKernelAs(cmd.Context(), *file, func(cfg *config.Config) {
			// With IPVS the rules of either mode are found; without there is only one.
			cfg.Kernel.Mode = config.ModeAuto
		})
		if err != nil {
			return err
		}
		defer kernel.Close()
		if err := daemon.RefuseKubeProxy(cmd.Context(), kernel.Kernel); err != nil {
			return err
		}
		rec := lb.NewReconciler(kernel, daemon.LBOptions(kernel.cfg, kernel.mode), config.Source)
		rep, err := rec.Cleanup(cmd.Context(), e.now())
		if err := errors.Join(append(rep.Errors, err)...); err != nil {
			return err
		}
		for _, op := range rep.Ops {
			fmt.Fprintln(e.stdout, op)
		}
		fmt.Fprintf(e.stdout, "%d objects taken out of the kernel\n", len(rep.Ops))
		return nil
	}
	return cmd
}
