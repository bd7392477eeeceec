package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/kubeproxy"
)

func importCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "make a configuration of another program's",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(importKubeProxyCommand(e))
	return cmd
}

func importKubeProxyCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kube-proxy FILE",
		Short: "make a configuration of a node's kube-proxy",
		Long: `Make a configuration of a node's kube-proxy and print it. FILE holds a
KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) in YAML or JSON, by
itself, among other documents, or in the ConfigMap that kubeadm makes of it;
"-" is standard input:

  kubectl -n kube-system get configmap kube-proxy -o yaml | weir import kube-proxy - >weir.toml

Every field becomes a key, or is named in a comment with the reason why not;
--fields prints what becomes of each. A field that kube-proxy does not know is
an error. Flags of kube-proxy that are given on its command line are not in the
file: look for --hostname-override, which DaemonSets have, and write
node_name = "$NODE_NAME" for it.

Exit status: 0 printed, 2 unreadable or not to be taken over.`,
		Args: cobra.MaximumNArgs(1),
	}
	fields := cmd.Flags().Bool("fields", false, "print every field of KubeProxyConfiguration, the key that it becomes, and why")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *fields {
			return kubeproxy.WriteFields(e.stdout)
		}
		if len(args) == 0 {
			return exitError{exitInvalid, fmt.Errorf("name the file with kube-proxy's configuration, or - for standard input")}
		}
		data, err := e.read(args[0])
		if err != nil {
			return exitError{exitInvalid, err}
		}
		res, err := kubeproxy.Import(data)
		if err != nil {
			return exitError{exitInvalid, fmt.Errorf("%s: %w", args[0], err)}
		}
		if len(res.Left) > 0 {
			fmt.Fprintf(e.stderr, "weir: not taken over, for reasons that the comments tell: %s\n", strings.Join(res.Left, ", "))
		}
		_, err = io.WriteString(e.stdout, res.TOML)
		return err
	}
	return cmd
}

// read reads a file, or standard input.
func (e env) read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(e.stdin)
	}
	return os.ReadFile(name)
}
