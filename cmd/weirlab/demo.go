package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
	"weir/configs"
)

func demoCommand() *cobra.Command {
	static := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "show weir at work: one box that announces VIPs to a router, web servers of which one fails, pods of which one goes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), static)
		},
	}
	cmd.Flags().BoolVar(&static, "static", false, "only the first half, static services, which needs no Kubernetes")
	return cmd
}

// The site of the demo. The router learns VIPs from the box only.
//
//	client -- lan -- router -- front -- box -- back -- web1, web2, web3
//	                           |         |
//	                          api       pods -- pod1, pod2, pod3
var demoSite = lab.Site{
	Hosts: []lab.Host{
		{Name: "client", Nets: lab.Nets{"lan": "10.0.0.2/24 fd00::2/64"}, Routes: []string{"default via 10.0.0.1", "default via fd00::1"}},
		{Name: "router", Forward: true,
			Nets: lab.Nets{"lan": "10.0.0.1/24 fd00::1/64", "front": "10.1.0.254/24 fd00:1::fe/64"}},
		{Name: "api", Nets: lab.Nets{"front": "10.1.0.5/24 fd00:1::5/64"}},
		{Name: "pod1", Nets: lab.Nets{"pods": "10.244.0.11/24 fd00:244::11/64"}, Routes: []string{"default via 10.244.0.1", "default via fd00:244::1"}},
		{Name: "pod2", Nets: lab.Nets{"pods": "10.244.0.12/24 fd00:244::12/64"}, Routes: []string{"default via 10.244.0.1", "default via fd00:244::1"}},
		{Name: "pod3", Nets: lab.Nets{"pods": "10.244.0.13/24 fd00:244::13/64"}, Routes: []string{"default via 10.244.0.1", "default via fd00:244::1"}},
		{Name: "web1", Nets: lab.Nets{"back": "10.2.0.11/24 fd00:2::11/64"}, Routes: []string{"default via 10.2.0.1", "default via fd00:2::1"}},
		{Name: "web2", Nets: lab.Nets{"back": "10.2.0.12/24 fd00:2::12/64"}, Routes: []string{"default via 10.2.0.1", "default via fd00:2::1"}},
		{Name: "web3", Nets: lab.Nets{"back": "10.2.0.13/24 fd00:2::13/64"}, Routes: []string{"default via 10.2.0.1", "default via fd00:2::1"}},
	},
	Boxes: []lab.Box{{
		Name:   "box",
		Nets:   lab.Nets{"front": "10.1.0.1/24 fd00:1::1/64", "back": "10.2.0.1/24 fd00:2::1/64", "pods": "10.244.0.1/24 fd00:244::1/64"},
		Routes: []string{"default via 10.1.0.254", "default via fd00:1::fe"},
	}},
}

var (
	demoWebs = []string{"web1", "web2", "web3"}
	demoVIPs = []string{"192.0.2.10:80", "[2001:db8:2::10]:80"} // of the static service
	shopVIPs = []string{"192.0.2.20:80", "[2001:db8:2::20]:80"} // of the cluster's Service
)

// demo is a site at work.
type demo struct {
	*lab.Lab
	out   io.Writer
	begin time.Time
	weir  string
	box   *lab.Machine
	kube  *lab.Kube
	stop  map[string]func() // ends the server of a web server or a pod
}

// step prints the next step and the time.
func (d *demo) step(format string, args ...any) {
	fmt.Fprintf(d.out, "\n[%4.1fs] %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...))
}

// show prints a command and its output.
func (d *demo) show(ctx context.Context, shown string, args ...string) error {
	out, err := d.box.Run(ctx, args...)
	if err != nil && out.Stdout == "" {
		return err
	}
	fmt.Fprintf(d.out, "\nbox# %s\n%s", shown, indent(out.Stdout))
	return nil
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

func runDemo(ctx context.Context, out io.Writer, static bool) (err error) {
	kernel, err := lab.Choose()
	if err != nil {
		return err
	}
	d := &demo{out: out, begin: time.Now(), stop: map[string]func(){}}
	d.step("building weir; the first time that takes a minute")
	if d.weir, err = lab.Binary("weir/cmd/weir"); err != nil {
		return err
	}
	d.step("booting a site: client -- router -- box -- web1, web2, web3 and pod1, pod2, pod3; IPv4 and IPv6")
	fmt.Fprintf(d.out, "  the box's kernel: %s\n", kernel.What())
	if d.Lab, err = lab.Open(ctx, demoSite); err != nil {
		return err
	}
	defer d.Close()
	d.box = d.Box("box")
	if err := startDemoRouter(ctx, d.Lab); err != nil {
		return err
	}
	for _, name := range slices.Concat(demoWebs, shopPods) {
		if d.stop[name], err = startWeb(d.Host(name), 8080); err != nil {
			return err
		}
		defer d.stop[name]()
	}
	scenes := []func(context.Context) error{d.startWeir, d.announced, d.spreadWebs, d.failOne}
	if !static {
		scenes = append(scenes, d.startCluster, d.addCluster, d.announcedShop, d.spreadShop, d.loseOne, d.look, d.loseAPI)
	}
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	d.step("done; the site is removed and leaves nothing behind")
	return nil
}

// look asks weir what it does.
func (d *demo) look(ctx context.Context) error {
	for _, command := range []string{"services", "bgp routes"} {
		if err := d.show(ctx, "weir "+command, append([]string{d.weir}, strings.Fields(command)...)...); err != nil {
			return err
		}
	}
	return d.show(ctx, "weir explain 192.0.2.20:80", d.weir, "explain", "192.0.2.20:80")
}

// startWeir runs weir on the box with the configuration it is shipped with.
func (d *demo) startWeir(ctx context.Context) error {
	text, err := configs.Files.ReadFile("demo.toml")
	if err != nil {
		return err
	}
	d.step("weir run, with configs/demo.toml:")
	fmt.Fprintf(d.out, "\n%s", indent(string(text)))
	if err := d.box.WriteFile(ctx, "/etc/weir/weir.toml", string(text), 0o644); err != nil {
		return err
	}
	daemon, err := d.box.Start(d.weir, "run")
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := daemon.Expect(ready, "msg=ready"); err != nil {
		return fmt.Errorf("weir is not ready: %w\n%s", err, daemon.Output())
	}
	return nil
}

// addCluster adds the cluster and a pool to the configuration of weir, which goes on working.
func (d *demo) addCluster(ctx context.Context) error {
	text, err := configs.Files.ReadFile("demo-cluster.toml")
	if err != nil {
		return err
	}
	d.step("/etc/weir/conf.d/cluster.toml is added, and weir reload applies it:")
	fmt.Fprintf(d.out, "\n%s", indent(string(text)))
	if err := d.box.WriteFile(ctx, "/etc/weir/conf.d/cluster.toml", string(text), 0o644); err != nil {
		return err
	}
	return d.show(ctx, "weir reload", d.weir, "reload")
}

// spreadWebs shows the static service, spreadShop that of the cluster.
func (d *demo) spreadWebs(ctx context.Context) error {
	d.step("the client sends %d requests to each VIP:", requests)
	return d.spread(ctx, demoVIPs, demoWebs)
}

func (d *demo) spreadShop(ctx context.Context) error {
	d.step("the client sends %d requests to each VIP of the cluster's Service:", requests)
	return d.spread(ctx, shopVIPs, shopPods)
}

// requests is how many are spread.
const requests = 150

// spread shows how requests spread over servers.
func (d *demo) spread(ctx context.Context, vips, servers []string) error {
	fmt.Fprintf(d.out, "\n  %-22s", "VIP")
	for _, name := range servers {
		fmt.Fprintf(d.out, " %6s", name)
	}
	fmt.Fprintln(d.out, "   they saw")
	for _, vip := range vips {
		count, saw := map[string]int{}, map[string]bool{}
		for range requests {
			a, err := props.Ask(ctx, d.Host("client").DialContext, vip)
			if err != nil {
				return fmt.Errorf("ask %s: %w", vip, err)
			}
			count[a.Server]++
			saw[a.Saw] = true
		}
		fmt.Fprintf(d.out, "  %-22s", vip)
		for _, name := range servers {
			fmt.Fprintf(d.out, " %6d", count[name])
		}
		fmt.Fprintf(d.out, "   %s (the box: masqueraded)\n", strings.Join(slices.Sorted(maps.Keys(saw)), " "))
	}
	return nil
}

// failOne stops a web server under load, and shows when weir noticed and what
// that cost.
func (d *demo) failOne(ctx context.Context) error {
	d.step("under load, web2 stops. Its check fails three times, a second apart, and its weight becomes 0:")
	load := startLoad(ctx, d.Host("client"), demoVIPs)
	defer load.Stop()
	if err := load.Wait(ctx, 200); err != nil {
		return err
	}
	stopped := time.Now()
	d.stop["web2"]()
	if err := d.drained(ctx, "10.2.0.12:8080", "[fd00:2::12]:8080"); err != nil {
		return err
	}
	noticed := time.Now()
	if err := load.Wait(ctx, 600); err != nil {
		return err
	}
	tries := load.Stop()
	return d.results(tries, stopped, noticed, "before web2 stopped",
		fmt.Sprintf("until weir noticed (%.1f s)", noticed.Sub(stopped).Seconds()), "after that, with two web servers", false)
}

// results prints the outcome of the requests before, between and after two instants.
// None may fail before or after; with strict, none at all.
func (d *demo) results(tries traffic.Tries, from, to time.Time, before, between, after string, strict bool) error {
	var t [3]traffic.Tries
	t[0], t[1], t[2] = tries.Split(from, to)
	fmt.Fprintf(d.out, "\n  %-42s %8s %8s\n", "", "requests", "failed")
	for i, what := range []string{before, between, after} {
		fmt.Fprintf(d.out, "  %-42s %8d %8d\n", what, len(t[i]), len(t[i].Lost()))
	}
	failed := append(t[0].Lost(), t[2].Lost()...)
	if strict {
		failed = append(failed, t[1].Lost()...)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d requests failed that should not have: %w", len(failed), failed.Err(1))
	}
	return nil
}

// drained waits until the kernel sends no new connection to any of these real
// servers, as ipvsadm sees it.
func (d *demo) drained(ctx context.Context, servers ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		out, err := d.box.Run(ctx, "ipvsadm", "-Ln")
		if err != nil {
			return fmt.Errorf("wait for %v to lose its weight: %w", servers, err)
		}
		left := 0
		for line := range strings.Lines(out.Stdout) {
			f := strings.Fields(line)
			for _, s := range servers {
				if len(f) > 3 && f[1] == s && f[3] != "0" {
					left++
				}
			}
		}
		if left == 0 {
			return nil
		}
	}
}

// startWeb has a host answer requests with its name and the address of the client.
func startWeb(m *lab.Machine, port int) (stop func(), err error) {
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("serve on %s: %w", m.Name(), err)
	}
	return props.Serve(l, props.Named(m.Name())), nil
}

// loadBeat makes enough requests for a table in a moment.
const loadBeat = 5 * time.Millisecond

func startLoad(ctx context.Context, from *lab.Machine, addrs []string) *traffic.Load {
	return traffic.Start(ctx, traffic.Options{Ask: traffic.HTTP(from.DialContext), Beat: loadBeat}, addrs...)
}
