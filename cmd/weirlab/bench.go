package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/lab"
)

func benchCommand() *cobra.Command {
	b := bench{sizes: []int{1000, 10000}, ports: 2000, rounds: 2}
	kernel := "uml"
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure weir on a real kernel, beside ipvsadm and kube-proxy in the same boot",
		Long: `Boots one box and measures weir there, each figure beside one of somebody
else's from the same boot: ipvsadm's, kube-proxy's, or a floor that nobody can go below.
kube-proxy and weir are nodes of a real Kubernetes API with the same Services; each
has the configuration that is its default, and an empty kernel to begin with.
Figures of different machines, kernels or boots do not compare; ratios do.
Fails when weir does not keep what it promises: its ratio to ipvsadm, and the
messages and programs that one change takes.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&kernel, "kernel", kernel, "what to boot: uml or qemu (which computes slowly: choose small sizes)")
	cmd.Flags().IntSliceVar(&b.sizes, "services", b.sizes, "how many services, of 10 backends each; kube-proxy has the first number of them")
	cmd.Flags().IntVar(&b.ports, "node-ports", b.ports, "how many NodePort Services, of 10 backends each; at most 2768")
	cmd.Flags().IntVar(&b.rounds, "rounds", b.rounds, "how often to program each; the best counts, of either side")
	cmd.Flags().StringSliceVar(&b.only, "only", nil, "only these chapters: data, program, change, hold, cluster, nodeports, provider")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b.table.out, b.progress = cmd.OutOrStdout(), os.Stderr
		switch kernel {
		case "uml":
			b.kernel = lab.UML
		case "qemu":
			b.kernel = lab.Qemu
		default:
			return fmt.Errorf("--kernel %s: want uml or qemu", kernel)
		}
		return b.run(cmd.Context())
	}
	return cmd
}

// bench is one boot and what is measured in it.
type bench struct {
	kernel lab.Kernel
	sizes  []int
	ports  int // NodePort Services
	rounds int
	only   []string

	table    table
	progress io.Writer

	site *lab.Lab
	box  *lab.Machine
	weir string // the program
	home *room  // the box's own network namespace

	kube    *lab.Kube    // nil until a chapter wants it
	bare    lab.Snapshot // of an API without Services
	allowed unix.CPUSet  // the processors of the machine that carries the lab

	least usage // of a weir with next to nothing to do
}

// chapters are in the order that disturbs the later ones least.
func (b *bench) chapters() []chapter {
	return []chapter{
		{"data", "new connections, one after another", b.data},
		{"program", "programmed from an empty kernel to READY", b.program},
		{"change", "one backend changed, the rest as it is", b.change},
		{"hold", "holding what is programmed", b.hold},
		{"cluster", "a node of a cluster, ClusterIP Services; kube-proxy in IPVS mode", b.cluster},
		{"nodeports", "a node of a cluster, NodePort Services; kube-proxy in iptables mode", b.nodePorts},
		{"provider", "addresses given to Services of a cluster, and announced to a router", b.provider},
	}
}

type chapter struct {
	name, title string
	run         func(context.Context) error
}

func (b *bench) run(ctx context.Context) error {
	b.say("build weir, boot %s", b.kernel)
	if err := b.open(ctx); err != nil {
		return err
	}
	defer b.site.Close()
	if err := b.header(ctx); err != nil {
		return err
	}
	for _, c := range b.chapters() {
		if !b.chosen(c.name) {
			continue
		}
		b.table.title(c.title)
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return errors.Join(b.table.missed...)
}

func (b *bench) chosen(name string) bool {
	for _, x := range b.only {
		if x == name {
			return true
		}
	}
	return len(b.only) == 0
}

// The site: a client, the box, and behind it a web server and the host of a
// Kubernetes API; and another client, behind a router.
func benchSite(kernel lab.Kernel) lab.Site {
	return lab.Site{
		Hosts: []lab.Host{
			{
				Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24"},
				Routes: []string{"192.0.2.0/24 via 10.1.0.1", "10.2.0.0/24 via 10.1.0.1", "10.9.0.0/30 via 10.1.0.1", "10.96.0.0/15 via 10.1.0.1"},
			},
			{Name: "web", Nets: lab.Nets{"back": "10.2.0.11/24"}, Routes: []string{"default via 10.2.0.1"}},
			{Name: farHost, Nets: lab.Nets{"lan": "10.0.0.2/24"}, Routes: []string{given + " via 10.0.0.1"}},
			{Name: edgeHost, Nets: lab.Nets{"lan": "10.0.0.1/24", "front": edgeAddr + "/24"}, Forward: true},
			{Name: apiHost, Nets: lab.Nets{"back": "10.2.0.5/24"}, Routes: []string{"default via 10.2.0.1"}},
		},
		Boxes: []lab.Box{{
			Name: "box", Kernel: kernel, Memory: 2048, Forward: true,
			Nets: lab.Nets{"front": boxAddr + "/24", "back": "10.2.0.1/24"}, Routes: []string{"10.0.0.0/24 via " + edgeAddr},
		}},
	}
}

func (b *bench) open(ctx context.Context) (err error) {
	if b.weir, err = lab.Binary("weir/cmd/weir"); err != nil {
		return err
	}
	if err := unix.SchedGetaffinity(0, &b.allowed); err != nil {
		return fmt.Errorf("ask which processors may be used: %w", err)
	}
	if b.kernel == lab.UML {
		if err := pin(); err != nil {
			return err
		}
	}
	if b.site, err = lab.Open(ctx, benchSite(b.kernel)); err != nil {
		return err
	}
	b.box = b.site.Box("box")
	b.home = &room{bench: b}
	return nil
}

func (b *bench) header(ctx context.Context) error {
	out, err := b.home.sh(ctx, "uname -r; nproc; ipvsadm --version")
	if err != nil {
		return err
	}
	words := strings.SplitN(out, "\n", 3)
	b.table.head(fmt.Sprintf("weir beside others in one boot: %s, kernel %s, %s CPU, 2 GiB; %s",
		b.kernel, words[0], words[1], strings.Join(strings.Fields(words[2])[:2], " ")))
	return nil
}

// say shows what is going on, for whoever waits.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
