package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routing is how long many routes took to be in the router's kernel, and to be gone.
type routing struct{ come, away time.Duration }

// providerBench is the bench of addresses given to Services, and the routes to them.
type providerBench struct{ *bench }

// routes has weir announce and withdraw many routes at once, and then BIRD in weir's
// place do the same with the same ones.
func (b providerBench) routes(ctx context.Context) error {
	b.report("weir: %s routes", count(b.announced))
	if err := b.configure(ctx, "[kernel]\n"+quiet+"[daemon]\nstate_dir = \"/tmp/bench/state\"\n"+toEdge+props.Services(0, b.announced)); err != nil {
		return err
	}
	if err := b.begins(ctx); err != nil {
		return err
	}
	if _, err := b.installed(ctx, b.announced); err != nil {
		return fmt.Errorf("%w\n%s", err, b.home.daemon.Output())
	}
	drain := func(verb string) string { return b.weir + " " + verb + " --all --config " + configFile }
	weir, err := b.rerouted(ctx, drain("undrain"), drain("drain"))
	if err != nil {
		return err
	}
	// Withdrawn before the end: after it the router keeps them, for weir to restart gracefully.
	if _, err := b.awaitRoutes(ctx, drain("drain"), 0); err != nil {
		return err
	}
	if err := b.ends(ctx); err != nil {
		return err
	}
	b.report("BIRD on the same box: %s routes", count(b.announced))
	bird, err := b.routesByBIRD(ctx)
	if err != nil {
		return err
	}
	b.table.times(count(b.announced)+" routes announced until in the router", weir.come, "BIRD in its place: static routes", bird.come, 0)
	b.table.times("  withdrawn until gone there", weir.away, "", bird.away, 0)
	return nil
}

// rerouted has scripts on the box withdraw and announce the routes, which are there,
// some rounds; the best counts.
func (b providerBench) rerouted(ctx context.Context, announce, withdraw string) (best routing, err error) {
	for i := range b.rounds + 1 {
		var now routing
		if now.away, err = b.awaitRoutes(ctx, withdraw, 0); err != nil {
			return best, err
		}
		if err := b.rest(ctx); err != nil {
			return best, err
		}
		if now.come, err = b.awaitRoutes(ctx, announce, b.announced); err != nil {
			return best, err
		}
		if err := b.rest(ctx); err != nil {
			return best, err
		}
		b.report("  gone after %s, back after %s", span(now.away), span(now.come))
		if i == 0 {
			best = now
		}
		best.come, best.away = min(best.come, now.come), min(best.away, now.away)
	}
	return best, nil
}

// awaitRoutes takes the time from the start of a command until the router has its result. weir's
// command answers with all that it did, and that answer is no part of it.
func (b providerBench) awaitRoutes(ctx context.Context, script string, want int) (time.Duration, error) {
	ended := make(chan error, 1)
	begin := time.Now()
	go func() {
		_, err := b.home.sh(ctx, script)
		ended <- err
	}()
	at, err := b.installed(ctx, want)
	return at.Sub(begin), errors.Join(err, <-ended)
}

// installed waits until the router's kernel has so many routes of BGP's.
func (b providerBench) installed(ctx context.Context, want int) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		var have []netlink.Route
		err := b.site.Host(edgeHost).Do(func() (err error) {
			have, err = netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: unix.RTPROT_BIRD}, netlink.RT_FILTER_PROTOCOL)
			return err
		})
		if at = time.Now(); err == nil && len(have) == want {
			return at, nil
		}
		if stop := traffic.Pause(ctx, 2*time.Millisecond); stop != nil {
			return at, fmt.Errorf("the router has %d routes, want %d: %w", len(have), want, errors.Join(stop, err))
		}
	}
}

// routesByBIRD has BIRD on the box announce what weir has announced.
func (b providerBench) routesByBIRD(ctx context.Context) (routing, error) {
	var config strings.Builder
	config.WriteString(`router id 10.1.0.1;
protocol device { }
protocol bgp edge { local as 65001; neighbor 10.1.0.254 as 65000; connect delay time 1; ipv4 { import none; export all; next hop self; }; }
protocol static many { ipv4;
`)
	for i := range b.announced {
		fmt.Fprintf(&config, "route 100.64.%d.%d/32 blackhole;\n", i>>8, i&0xff)
	}
	config.WriteString("}\n")
	const file = "/tmp/bench/bird.conf"
	if err := b.box.WriteFile(ctx, file, config.String(), 0o644); err != nil {
		return routing{}, err
	}
	if _, err := b.home.sh(ctx, "mkdir -p /run/bird"); err != nil {
		return routing{}, err
	}
	p, err := b.box.Start("bird", "-f", "-c", file)
	if err != nil {
		return routing{}, err
	}
	defer func() { _ = p.Signal(syscall.SIGTERM) }()
	if _, err := b.installed(ctx, b.announced); err != nil {
		return routing{}, fmt.Errorf("%w\n%s", err, p.Output())
	}
	return b.rerouted(ctx, "birdc enable many", "birdc disable many")
}
