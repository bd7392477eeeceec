package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
	"weir/configs"
)

func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "show weir at work: one box, three web servers, one of which fails",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return runDemo(ctx, cmd.OutOrStdout())
		},
	}
}

// The site of the demo. The router only knows that the VIPs are behind the box.
//
//	client -- lan -- router -- front -- box -- back -- web1, web2, web3
var demoSite = lab.Site{
	Hosts: []lab.Host{
		{Name: "client", Nets: lab.Nets{"lan": "10.0.0.2/24 fd00::2/64"}, Routes: []string{"default via 10.0.0.1", "default via fd00::1"}},
		{Name: "router", Forward: true,
			Nets:   lab.Nets{"lan": "10.0.0.1/24 fd00::1/64", "front": "10.1.0.254/24 fd00:1::fe/64"},
			Routes: []string{"192.0.2.0/24 via 10.1.0.1", "2001:db8::/32 via fd00:1::1"}},
		{Name: "web1", Nets: lab.Nets{"back": "10.2.0.11/24 fd00:2::11/64"}, Routes: []string{"default via 10.2.0.1", "default via fd00:2::1"}},
		{Name: "web2", Nets: lab.Nets{"back": "10.2.0.12/24 fd00:2::12/64"}, Routes: []string{"default via 10.2.0.1", "default via fd00:2::1"}},
		{Name: "web3", Nets: lab.Nets{"back": "10.2.0.13/24 fd00:2::13/64"}, Routes: []string{"default via 10.2.0.1", "default via fd00:2::1"}},
	},
	Boxes: []lab.Box{{
		Name:   "box",
		Nets:   lab.Nets{"front": "10.1.0.1/24 fd00:1::1/64", "back": "10.2.0.1/24 fd00:2::1/64"},
		Routes: []string{"default via 10.1.0.254", "default via fd00:1::fe"},
	}},
}

var demoVIPs = []string{"192.0.2.10:80", "[2001:db8:2::10]:80"}

// demo is a site at work.
type demo struct {
	*lab.Lab
	out   io.Writer
	begin time.Time
	weir  string
	box   *lab.Machine
	stop  map[string]func() // ends a web server
}

// step says what is done now, and when.
func (d *demo) step(format string, args ...any) {
	fmt.Fprintf(d.out, "\n[%4.1fs] %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...))
}

// show prints a command and what it says.
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

func runDemo(ctx context.Context, out io.Writer) (err error) {
	d := &demo{out: out, begin: time.Now(), stop: map[string]func(){}}
	d.step("building weir; the first time that takes a minute")
	if d.weir, err = lab.Binary("weir/cmd/weir"); err != nil {
		return err
	}
	d.step("booting a site: client -- router -- box -- web1, web2, web3, IPv4 and IPv6")
	if d.Lab, err = lab.Open(ctx, demoSite); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	d.box = d.Box("box")
	for _, name := range []string{"web1", "web2", "web3"} {
		if d.stop[name], err = startWeb(d.Host(name), 8080); err != nil {
			return err
		}
		defer d.stop[name]()
	}
	if err := d.startWeir(ctx); err != nil {
		return err
	}
	if err := d.spread(ctx); err != nil {
		return err
	}
	if err := d.failOne(ctx); err != nil {
		return err
	}
	for _, c := range [][]string{
		{"weir status", d.weir, "status"},
		{"weir services", d.weir, "services"},
		{"ipvsadm -Ln", "ipvsadm", "-Ln"},
	} {
		if err := d.show(ctx, c[0], c[1:]...); err != nil {
			return err
		}
	}
	d.step("done; the site is taken down and leaves nothing behind")
	return nil
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

// spread shows how requests spread over the web servers.
func (d *demo) spread(ctx context.Context) error {
	const n = 150
	d.step("the client sends %d requests to each VIP:", n)
	fmt.Fprintf(d.out, "\n  %-22s %6s %6s %6s   the web servers saw\n", "VIP", "web1", "web2", "web3")
	for _, vip := range demoVIPs {
		count, saw := map[string]int{}, map[string]bool{}
		for range n {
			a, err := props.Ask(ctx, d.Host("client").DialContext, vip)
			if err != nil {
				return fmt.Errorf("ask %s: %w", vip, err)
			}
			count[a.Server]++
			saw[a.Saw] = true
		}
		fmt.Fprintf(d.out, "  %-22s %6d %6d %6d   %s (the box: masqueraded)\n",
			vip, count["web1"], count["web2"], count["web3"], strings.Join(sorted(saw), " "))
	}
	return nil
}

// failOne stops a web server under load, and shows when weir noticed and what
// that cost.
func (d *demo) failOne(ctx context.Context) error {
	d.step("under load, web2 stops. Its check fails twice, a second apart, and its weight becomes 0:")
	load := startLoad(ctx, d.Host("client"), demoVIPs)
	defer load.stop()
	if err := load.wait(ctx, 200); err != nil {
		return err
	}
	stopped := time.Now()
	d.stop["web2"]()
	if err := d.drained(ctx, "10.2.0.12:8080", "[fd00:2::12]:8080"); err != nil {
		return err
	}
	noticed := time.Now()
	if err := load.wait(ctx, load.count()+600); err != nil {
		return err
	}
	load.stop()
	before, between, after := load.failed(stopped, noticed)
	fmt.Fprintf(d.out, "\n  %-42s %8s %8s\n", "", "requests", "failed")
	for _, row := range []struct {
		what string
		t    tally
	}{
		{"before web2 stopped", before},
		{fmt.Sprintf("until weir noticed (%.1f s)", noticed.Sub(stopped).Seconds()), between},
		{"after that, with two web servers", after},
	} {
		fmt.Fprintf(d.out, "  %-42s %8d %8d\n", row.what, row.t.requests, row.t.failed)
	}
	if before.failed+after.failed > 0 {
		return fmt.Errorf("%d requests failed that should not have: %w", before.failed+after.failed, load.firstError())
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
