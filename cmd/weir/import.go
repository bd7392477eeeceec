package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/cmd/weir/internal/keepalived"
	"weir/cmd/weir/internal/kubeproxy"
	"weir/cmd/weir/internal/metallb"
)

func importCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "convert the configuration of another program",
		Long: `Convert the configuration of another program to a weir.toml, and print it. Settings
that can't be converted are listed on standard error with the reason, the worst first:

  error    some traffic is not served
  warning  the traffic is served, with a difference
  note     nothing changes for clients`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(importKubeProxyCommand(e), importKeepalivedCommand(e), importMetalLBCommand(e))
	return cmd
}

func importKubeProxyCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kube-proxy FILE",
		Short: "convert the configuration of kube-proxy",
		Long: `Convert the configuration of a node's kube-proxy, and print it. FILE contains a
KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) in YAML or JSON, by
itself, among other documents, or in the ConfigMap of kubeadm; "-" is standard
input:

  kubectl -n kube-system get configmap kube-proxy -o yaml | weir import kube-proxy - >weir.toml

Every field becomes a key, or is named in a comment with the reason; --fields lists
them all. A field that kube-proxy does not know is an error. Flags on the command
line of kube-proxy are not in the file. A DaemonSet often has --hostname-override:
replace it by node_name = "$NODE_NAME".

Exit status: 0 complete, 1 printed with errors or warnings, 2 unreadable or unsupported.`,
		Args: cobra.MaximumNArgs(1),
	}
	var opts kubeproxy.Options
	cmd.Flags().IntVar(&opts.Cores, "cores", runtime.NumCPU(), "the number of processors of the node, for conntrack.maxPerCore")
	fields := cmd.Flags().Bool("fields", false, "print every field of KubeProxyConfiguration with its key, or the reason")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *fields {
			return kubeproxy.WriteFields(e.stdout)
		}
		if len(args) == 0 {
			return exitError{exitInvalid, fmt.Errorf("name the file with kube-proxy's configuration, or - for standard input")}
		}
		return e.imported(args[0], func(data []byte) (draft.Result, error) { return kubeproxy.Import(data, opts) })
	}
	return cmd
}

func importKeepalivedCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keepalived FILE",
		Short: "convert a keepalived.conf",
		Long: `Convert a keepalived.conf, and print it. Virtual servers become
services with their checks; VRRP becomes a fleet that answers ARP and NDP for the
VIPs. FILE may include others, relative to its folder; "-" is standard
input:

  weir import keepalived /etc/keepalived/keepalived.conf >weir.toml

Every directive becomes a key, or is named in a comment with the reason; --fields
lists them all. An unknown directive is a warning, and an error with --strict. A
virtual server that can't be imported is left out, and the exit status is 1.

Lines that begin with @ID are for one box. --config-id selects it; the default is the
name of this host, if the file has lines for it.

VRRP finds the other boxes via multicast, and the file may not name them. Then the
fleet is printed as a comment: name them with --join, or in the result.

Exit status: 0 complete, 1 printed with errors or warnings, 2 unreadable or unsupported.`,
		Args: cobra.MaximumNArgs(1),
	}
	opts := keepalived.Options{Files: source.Disk{}}
	cmd.Flags().StringSliceVar(&opts.Join, "join", nil, "the other boxes of the fleet: addresses or names")
	cmd.Flags().StringVar(&opts.ID, "config-id", "", "choose the lines that begin with @, as keepalived -i")
	cmd.Flags().BoolVar(&opts.Strict, "strict", false, "refuse unknown directives")
	fields := cmd.Flags().Bool("fields", false, "print every directive of keepalived.conf with its key, or the reason")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *fields {
			return keepalived.WriteDirectives(e.stdout)
		}
		if len(args) == 0 {
			return exitError{exitInvalid, fmt.Errorf("name the keepalived.conf, or - for standard input")}
		}
		host, _ := os.Hostname() // without a name, the lines need --config-id
		opts.Host, _, _ = strings.Cut(host, ".")
		return e.imported(args[0], func(data []byte) (draft.Result, error) { return keepalived.Import(args[0], data, opts) })
	}
	return cmd
}

func importMetalLBCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metallb FILE",
		Short: "convert the resources of MetalLB",
		Long: `Convert the resources of MetalLB, and print the result: pools, routers and the
announcement of VIPs. FILE contains them in YAML or JSON, as documents or in a List;
"-" is standard input:

  kubectl -n metallb-system get ipaddresspools,bgppeers,bgpadvertisements,\
l2advertisements,bfdprofiles,communities -o yaml | weir import metallb - >weir.toml

Every field becomes a key, or is named in a comment with the reason; --fields lists
them all. A field that MetalLB does not know is an error. Other objects are skipped,
and listed.

Exit status: 0 complete, 1 printed with errors or warnings, 2 unreadable or unsupported.`,
		Args: cobra.MaximumNArgs(1),
	}
	var opts metallb.Options
	cmd.Flags().StringSliceVar(&opts.Join, "join", nil, "the other boxes of the fleet: addresses or names")
	fields := cmd.Flags().Bool("fields", false, "print every field of MetalLB's resources with its key, or the reason")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *fields {
			return metallb.WriteFields(e.stdout)
		}
		if len(args) == 0 {
			return exitError{exitInvalid, fmt.Errorf("name the file with MetalLB's resources, or - for standard input")}
		}
		return e.imported(args[0], func(data []byte) (draft.Result, error) { return metallb.Import(data, opts) })
	}
	return cmd
}

// imported prints the result of an importer, and lists the items that it left out.
func (e env) imported(name string, importer func([]byte) (draft.Result, error)) error {
	data, err := e.read(name)
	if err != nil {
		return exitError{exitInvalid, err}
	}
	res, err := importer(data)
	if err != nil {
		return exitError{exitInvalid, placed(name, err)}
	}
	if _, err := io.WriteString(e.stdout, res.TOML); err != nil {
		return err
	}
	if err := res.WriteLeft(e.stderr); err != nil {
		return err
	}
	if !res.IsComplete() {
		return exitError{code: 1}
	}
	return nil
}

// yamlLine matches the place in an error of the YAML library.
var yamlLine = regexp.MustCompile(`yaml: line (\d+): `)

// placed returns an error about a file with its name, and with the line if it is known.
func placed(name string, err error) error {
	line := err.Error()
	if strings.HasPrefix(line, name+":") { // some importers name it themselves
		return placedError{line}
	}
	if at := yamlLine.FindStringSubmatchIndex(line); at != nil {
		return placedError{fmt.Sprintf("%s:%s: %s", name, line[at[2]:at[3]], line[at[1]:])}
	}
	return placedError{name + ": " + line}
}

// read reads a file, or standard input.
func (e env) read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(e.stdin)
	}
	return os.ReadFile(name)
}
