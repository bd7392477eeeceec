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
parameters stay, because other programs may depend on them by now. The command fails
while the daemon runs, and where kube-proxy has objects of the same names. It reads
no kubeconfig, password or key.

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
		kernel, err := openKernelAs(cmd.Context(), *file, func(cfg *config.Config) {
			// With IPVS the rules of either mode are found; without there is only one.
			cfg.Kernel.Mode = config.ModeAuto
		})
		if err != nil {
			return err
		}
		defer kernel.Close()
		if err := kernelmode.RefuseKubeProxy(cmd.Context(), kernel.Kernel); err != nil {
			return err
		}
		rec := lb.NewReconciler(kernel, kernelmode.LBOptions(kernel.cfg, kernel.mode, kernelmode.Node{}), config.Source)
		rep, err := rec.Cleanup(cmd.Context(), e.now())
		if err := errors.Join(append(rep.Errors, err)...); err != nil {
			return err
		}
		for _, op := range rep.Ops {
			fmt.Fprintln(e.stdout, op)
		}
		fmt.Fprintf(e.stdout, "%s removed from the kernel\n", text.Count(len(rep.Ops), "object"))
		return nil
	}
	return cmd
}
