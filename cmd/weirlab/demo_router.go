package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weir/cmd/weirlab/lab"
)

// demoRouter is BIRD on the router: it routes packets as the box announces.
const demoRouter = `
router id 10.1.0.254;
protocol device { }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol kernel { ipv6 { export where source = RTS_BGP; }; }
protocol bgp box {
	local as 65000; neighbor 10.1.0.1 as 65001; passive on; error wait time 1, 2;
	ipv4 { import all; export none; };
	ipv6 { import all; export none; };
}
`

// announced waits until the router knows the static VIPs.
func (d *demo) announced(ctx context.Context) error {
	d.step("weir announces the VIPs to the router, which is BIRD:")
	return d.showRoutes(ctx, demoVIPs)
}

// announcedShop waits until the cluster's Service has addresses and the router knows them.
func (d *demo) announcedShop(ctx context.Context) error {
	d.step("weir allocates addresses of the pool to the Service, serves them, and announces them:")
	if err := d.showRoutes(ctx, shopVIPs); err != nil {
		return err
	}
	return d.show(ctx, "weir pools", d.weir, "pools")
}

// showRoutes waits until the router's kernel has routes to VIPs, and shows them.
func (d *demo) showRoutes(ctx context.Context, vips []string) error {
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, vip := range vips {
		addr := netip.MustParseAddrPort(vip).Addr()
		for {
			route, err := d.Host("router").KernelRoute(wait, netip.PrefixFrom(addr, addr.BitLen()).String())
			if err == nil && len(route.Via) > 0 {
				break
			}
			if wait.Err() != nil {
				_ = d.show(ctx, "weir status", d.weir, "status") // beside the error that counts
				return fmt.Errorf("the router has no route to %s: %w", addr, wait.Err())
			}
		}
	}
	for _, command := range []string{"ip -4 route show proto bird", "ip -6 route show proto bird"} {
		out, err := d.Host("router").Run(ctx, strings.Fields(command)...)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "\nrouter# %s\n%s", command, indent(out.Stdout))
	}
	return nil
}

// startDemoRouter starts the router's BGP.
func startDemoRouter(ctx context.Context, l *lab.Lab) error {
	_, err := lab.StartRouter(ctx, l.Host("router"), lab.BIRD, demoRouter)
	return err
}
