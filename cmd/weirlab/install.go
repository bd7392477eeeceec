package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

// everyKernel is what install provides for. A host kernel without IPVS cannot be helped by packages.
var everyKernel = []lab.Kernel{lab.UML, lab.Qemu}

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
			if lacking {
				return fmt.Errorf("something is missing; weirlab install may help")
			}
			return nil
		},
	}
}

func installCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "install the packages a lab needs, and fetch the kernel for qemu",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			missing := lab.MissingPackages(everyKernel...)
			if err := lab.InstallPackages(ctx, os.Stderr, missing...); err != nil {
				return err
			}
			return lab.FetchKernel(ctx, os.Stderr)
		},
	}
}
