package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

func benchCommand() *cobra.Command {
	b := fullBench()
	kernel, short := "uml", false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure weir on a real kernel, beside ipvsadm and kube-proxy in the same boot",
		Long: `Boots one box and measures weir there, each figure beside one of another
program from the same boot. That is ipvsadm, kube-proxy, or a floor that no program can
undercut.
kube-proxy and weir are nodes of a real Kubernetes API with the same Services. Each
has its default configuration, and begins with an empty kernel.
Figures of different machines, kernels or boots do not compare; ratios do.
Fails when weir breaks a promise: its ratio to ipvsadm, or the messages and programs
that one change takes.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&kernel, "kernel", kernel, "where weir runs: uml, kvm, qemu (which computes slowly: choose small sizes), or host, this machine's own kernel, which the chapter nftables can use without IPVS")
	cmd.Flags().IntSliceVar(&b.sizes, "services", b.sizes, "how many services, of 10 backends each; kube-proxy has the first number of them")
	cmd.Flags().IntVar(&b.ports, "node-ports", b.ports, "how many NodePort Services, of 10 backends each; at most 2768")
	cmd.Flags().IntVar(&b.rounds, "rounds", b.rounds, "how often to program each; the best counts, of either side")
	cmd.Flags().StringSliceVar(&b.only, "only", nil, "only these chapters: data, forward, program, change, hold, cluster, audits, nodeports, nftables, provider, rollout")
	cmd.Flags().BoolVar(&short, "short", false, "all of the code in about a minute: sizes so small that no figure means much")
	cmd.Flags().StringVar(&b.write, "write", "", "a folder; the table is written to benchmarks.md there")
	cmd.Flags().StringVar(&b.plot, "plot", "", "a file; how the figures grow with --services is drawn there, as SVG")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if short {
			b.scale = shortScale
		}
		at := slices.IndexFunc(benchKernels, func(k lab.Kernel) bool { return k.String() == kernel })
		if at < 0 {
			return fmt.Errorf("--kernel %s: want uml, kvm, qemu or host", kernel)
		}
		b.kernel = benchKernels[at]
		return b.run(cmd.Context(), cmd.OutOrStdout(), os.Stderr)
	}
	return cmd
}

// benchKernels are those that a bench can choose.
var benchKernels = []lab.Kernel{lab.UML, lab.KVM, lab.Qemu, lab.HostKernel}

// scale is how much is measured.
type scale struct {
	sizes       []int // services
	largest     bool  // no smaller one where a chapter treats all alike
	paths       int   // how often new connections take each path
	ports       int   // NodePort Services
	rounds      int
	connections int           // for one figure of the data path
	exchanged   int           // connections for one figure of a forwarding method
	transferred int           // bytes for one figure of it
	settle      time.Duration // until weir has looked a second time at rules that it wrote
	restTime    time.Duration // for which an engine is watched that has nothing to do
	// One endpoint changed: with few Services by weir and by kube-proxy, and among many by kube-proxy, which
	// gets a rest after each, as long as it needs.
	changesOfWeir, changesOfKubeProxy, changesAmongMany int
	changesDuringAudits                                 int
	edits                                               int // by ipvsadm, beside each of weir's
	rolling, replaced, changesDuringRollout             int // connections; backends
	costs                                               int // changes of which the costs are counted
	provided                                            int // Services that are timed
	allocated                                           int // addresses given at once
	announced                                           int // routes changed at once
	writes                                              int // of the API server by itself
}

// restTime is the period of kube-proxy's syncs, three times that of weir's audits.
var (
	fullScale = scale{
		sizes: []int{1000, 10000}, ports: 2000, rounds: 2, paths: 4, connections: 2000, exchanged: 10_000, transferred: 60_000_000, settle: 5 * time.Second, restTime: 30 * time.Second,
		rolling: 250_000, replaced: 50, changesDuringRollout: 100, changesDuringAudits: 100, changesOfWeir: 30, changesOfKubeProxy: 10, changesAmongMany: 3, edits: 20, costs: 3, provided: 30, allocated: 10_000, announced: 5000, writes: 300,
	}
	shortScale = scale{
		sizes: []int{10, 20}, largest: true, ports: 15, rounds: 1, paths: 1, connections: 50, exchanged: 100, transferred: 800_000, settle: time.Second, restTime: time.Second,
		rolling: 200, replaced: 4, changesDuringRollout: 3, changesDuringAudits: 2, changesOfWeir: 2, changesOfKubeProxy: 1, changesAmongMany: 1, edits: 2, costs: 1, provided: 2, allocated: 50, announced: 100, writes: 10,
	}
)

// bench is one boot and what is measured in it.
type bench struct {
	scale
	kernel lab.Kernel
	only   []string
	write  string // a folder
	plot   string // a file

	table    table
	progress io.Writer

	site *lab.Lab
	box  *lab.Machine
	weir string // the program
	home *room  // the box's own network namespace

	benchAPI

	unmonitored bool // the kernel has no nlmon

	least usage // of a weir with next to nothing to do
}

// alike are the sizes of a chapter that treats all alike, in ascending order.
func alike(s scale, sizes ...int) []int {
	if s.largest {
		return sizes[len(sizes)-1:]
	}
	return sizes
}

// chapters are in the order that disturbs the later ones least.
func (b *bench) chapters() []chapter {
	return []chapter{
		{"data", "new connections, one after another", dataBench{b}.data},
		{"forward", "forwarding methods, one backend for each service", (&forwardBench{bench: b}).forward},
		{"program", "programmed from an empty kernel to READY", programBench{b}.program},
		{"change", "one backend changed, the rest as it is", b.change},
		{"hold", "holding what is programmed", holdBench{b}.hold},
		{"cluster", "a node of a cluster, ClusterIP Services; kube-proxy in IPVS mode", clusterBench{b}.cluster},
		{"audits", "a node of a cluster while weir audits, ClusterIP Services", clusterBench{b}.audits},
		{"nodeports", "a node of a cluster, NodePort Services; kube-proxy in iptables mode", nodePortBench{b}.nodePorts},
		{"nftables", "a node of a cluster, ClusterIP Services; both in nftables without IPVS", nftBench{b}.tables},
		{"provider", "addresses given to Services of a cluster, and announced to a router", providerBench{b}.provider},
		{"rollout", "a rollout of all backends of a service among many connections", rolloutBench{b}.rollout}, // which stay
	}
}

type chapter struct {
	name, title string
	run         func(context.Context) error
}

// fullBench is all of it.
func fullBench() *bench { return &bench{scale: fullScale, kernel: lab.UML} }

func (b *bench) run(ctx context.Context, out, progress io.Writer) error {
	var text strings.Builder
	b.table.out, b.progress = io.MultiWriter(out, &text), progress
	b.report("build weir, boot %s", b.kernel)
	restore, err := b.allowMaps()
	if err != nil {
		return err
	}
	defer restore()
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
		b.table.line(c.title)
		if err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	b.table.growth()
	if b.write != "" {
		where, err := circumstances(ctx, b.box)
		if err == nil {
			err = writeTable(b.write, "benchmarks.md", "make bench", where+".\n\n```text\n"+text.String()+"```\n")
		}
		b.table.missed = append(b.table.missed, err)
	}
	if b.plot != "" {
		b.table.missed = append(b.table.missed, os.WriteFile(b.plot, []byte(growthPlot(b.table.points)), 0o644))
	}
	return errors.Join(b.table.missed...)
}

// allowMaps lets user-mode Linux map the memory of a large process, page by page: at the usual limit of 65,530 maps a
// process hangs without a word when it has more than 256 MiB. kube-proxy's nftables mode takes 290 MiB with 10,000
// Services.
func (b *bench) allowMaps() (restore func(), err error) {
	const file, enough, fits = "/proc/sys/vm/max_map_count", "1048576", 5_000
	before, err := os.ReadFile(file)
	if n, _ := strconv.Atoi(strings.TrimSpace(string(before))); err != nil || n >= 1<<20 || b.kernel != lab.UML || !slices.ContainsFunc(b.sizes, func(n int) bool { return n > fits }) {
		return func() {}, err
	}
	b.report("set vm.max_map_count=%s until the end, for more than %s services", enough, count(fits))
	return func() { _ = os.WriteFile(file, before, 0o644) }, os.WriteFile(file, []byte(enough), 0o644)
}

func (b *bench) chosen(name string) bool {
	return len(b.only) == 0 || slices.Contains(b.only, name)
}

// The site: a client, the box, and behind it a web server, a server that replies by way of another router, and the host
// of a Kubernetes API; and another client, behind a router.
func benchSite(kernel lab.Kernel) lab.Site {
	return lab.Site{
		Hosts: []lab.Host{
			{
				Name: "client", Nets: lab.Nets{"front": "10.1.0.2/24"},
				Routes: []string{"192.0.2.0/24 via 10.1.0.1", "10.2.0.0/24 via 10.1.0.1", "10.9.0.0/30 via 10.1.0.1", "10.96.0.0/15 via 10.1.0.1", pool + " via 10.1.0.1"},
			},
			{Name: "web", Nets: lab.Nets{"back": "10.2.0.11/24"}, Routes: []string{"default via 10.2.0.1"}},
			{Name: serverHost, Nets: lab.Nets{"back": serverAddr + "/24"}, Routes: []string{"default via " + returnBack + " advmss 1440"}},
			{Name: returnHost, Nets: lab.Nets{"front": returnFront + "/24", "back": returnBack + "/24"}, Forward: true},
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
	site := benchSite(b.kernel)
	site.NoIPVS = slices.Equal(b.only, []string{"nftables"})
	if b.site, err = lab.Open(ctx, site); err != nil {
		return err
	}
	b.box = b.site.Box("box")
	b.home = &room{bench: b}
	return nil
}

func (b *bench) header(ctx context.Context) error {
	out, err := b.home.sh(ctx, "uname -r; nproc; awk '/^MemTotal/{print int($2/1024)}' /proc/meminfo; ipvsadm --version | cut -d ' ' -f 1,2; nft --version | cut -d ' ' -f 1,2")
	if err != nil {
		return err
	}
	words := strings.SplitN(out, "\n", 4)
	b.table.head(fmt.Sprintf("weir beside others in one boot: %s, kernel %s, %s CPU, %s MiB; %s",
		b.kernel, words[0], words[1], words[2], strings.ReplaceAll(words[3], "\n", ", ")))
	return nil
}

// report prints the progress for the reader.
func (b *bench) report(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
