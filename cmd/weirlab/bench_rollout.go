package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// rolloutBench is the bench of a rollout among connections.
type rolloutBench struct{ *bench }

// slowestPass is the promise for a pass of the loop during a rollout.
const slowestPass = 50 * time.Millisecond

// The hosts of a rollout are networks behind the client and the web server.
const (
	rollingVIP  = "192.0.2.30"
	rollingNet  = "10.3.0.0/16"
	closingAddr = "10.3.0.1" // closes its connections, so that each count of drains has to read the table of connections
)

// rolling is a service of n backends, one of which has another weight. Each generation has backends of its own.
func rolling(generation, n, weight int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[kernel]\n%s\n[[service]]\nname = \"rolling\"\nvips = [%q]\nports = [80]\ndrain_timeout = \"1h\"\n", quiet, rollingVIP)
	for i := range n {
		fmt.Fprintf(&b, "[[service.backend]]\naddress = \"10.3.%d.%d\"\nweight = %d\n", generation, 1+i, weight)
		weight = 1
	}
	return b.String()
}

// rolled is what the passes of a rollout took, and the counts of drains beside them.
type rolled struct {
	passes   []replacement // the slowest of each change, by the log
	all      int           // also those that wrote nothing
	within   time.Duration // the bucket of weir_sync_duration_seconds of the slowest of all
	counts   int
	count    time.Duration // the mean
	counting float64       // the share of the time
	read     time.Duration // of the table by cat
}

// rollout replaces all backends of a service, and then changes the weight of a new one many times while the old
// ones drain: once without connections, and once with as many as there are.
func (b rolloutBench) rollout(ctx context.Context) error {
	least, err := b.roll(ctx, 0)
	if err != nil {
		return err
	}
	most, err := b.roll(ctx, b.rolling)
	if err != nil {
		return fmt.Errorf("%d connections: %w", b.rolling, err)
	}
	b.table.line("  connections: established in IPVS and conntrack, by ends without sockets")
	b.table.times(fmt.Sprintf("%s connections, %d backends replaced: slowest pass", count(b.rolling), b.replaced), slowest(durations(most.passes)),
		"without connections", slowest(durations(least.passes)), 0)
	b.table.times("  the median of the changes", median(durations(most.passes)), "", median(durations(least.passes)), 0)
	b.table.times(fmt.Sprintf("  by weir's metrics all %d took at most", most.all), most.within, fmt.Sprintf("  all %d", least.all), least.within, 0)
	b.table.times(fmt.Sprintf("  a count beside them; %d ran %.0f%% of the time", most.counts, 100*most.counting), most.count, "cat /proc/net/ip_vs_conn", most.read, 0)
	for _, pass := range most.passes {
		if pass.took-pass.starved > slowestPass { // even if all waits for a processor of the host fell into it
			b.table.miss("a pass during a rollout took %s, want at most %s; the box waited %s for the host", span(pass.took), slowestPass, span(pass.starved))
		}
	}
	return nil
}

// roll measures the rollout with so many connections.
func (b rolloutBench) roll(ctx context.Context, connections int) (got rolled, err error) {
	b.report("replace %d backends with %s connections", b.replaced, count(connections))
	if err := b.configure(ctx, rolling(0, b.replaced, 1)); err != nil {
		return got, err
	}
	if _, err := b.home.start(ctx); err != nil {
		return got, err
	}
	defer func() {
		_, failed := b.home.sh(ctx, b.weir+" cleanup")
		err = errors.Join(err, failed)
	}()
	defer func() { err = errors.Join(err, b.home.stop(ctx)) }()
	if connections > 0 {
		stop, err := b.connect(ctx, connections)
		defer stop()
		if err != nil {
			return got, err
		}
	}
	if err := traffic.Pause(ctx, b.settle); err != nil {
		return got, err
	}
	before, err := b.home.scrape(ctx)
	if err != nil {
		return got, err
	}
	begin := time.Now()
	if got.passes, err = b.replaceAll(ctx); err != nil {
		return got, err
	}
	after := before
	counted, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	for after[drainCounts+"_count"] == before[drainCounts+"_count"] { // the first count comes after a second
		if err := traffic.Pause(counted, 500*time.Millisecond); err != nil {
			return got, fmt.Errorf("wait for a count of the drains: %w", err)
		}
		if after, err = b.home.scrape(ctx); err != nil {
			return got, err
		}
	}
	if drains := int(after["weir_drains"]); connections > 0 && drains < b.replaced-1 {
		return got, fmt.Errorf("%d of %d backends drain, which have connections", drains, b.replaced)
	}
	got.add(after.minus(before), time.Since(begin))
	got.read, err = b.home.timed(ctx, "cat /proc/net/ip_vs_conn >/dev/null")
	return got, err
}

const drainCounts = "weir_drain_count_duration_seconds"

// add takes the figures of weir's metrics.
func (r *rolled) add(delta counts, took time.Duration) {
	const passes = "weir_sync_duration_seconds"
	r.all, r.within = int(delta[passes+"_count"]), math.MaxInt64
	for name, n := range delta {
		var le float64
		if _, err := fmt.Sscanf(name, passes+`_bucket{le="%g"}`, &le); err == nil && int(n) == r.all && !math.IsInf(le, 1) {
			r.within = min(r.within, time.Duration(le*float64(time.Second)))
		}
	}
	sum := delta[drainCounts+"_sum"]
	r.counts, r.counting = int(delta[drainCounts+"_count"]), sum/took.Seconds()
	r.count = time.Duration(sum / max(1, delta[drainCounts+"_count"]) * float64(time.Second))
}

// replaceAll makes the changes, and returns the slowest pass of each.
func (b rolloutBench) replaceAll(ctx context.Context) (out []replacement, err error) {
	waits, err := lab.ProcessorWaits(b.box)
	if err != nil {
		return nil, err
	}
	passes := len(appliedLine.FindAllString(b.home.daemon.Output(), -1))
	for i := range b.changesDuringRollout {
		if err := b.configure(ctx, rolling(1, b.replaced, 1+i%2)); err != nil {
			return nil, err
		}
		if _, err := b.home.sh(ctx, b.weir+" reload"); err != nil {
			return nil, err
		}
		if _, err := b.applied(ctx, passes); err != nil {
			return nil, err
		}
		now, err := lab.ProcessorWaits(b.box)
		if err != nil {
			return nil, err
		}
		this := replacement{starved: now.Since(waits)}
		all := appliedLine.FindAllStringSubmatch(b.home.daemon.Output(), -1)
		for _, line := range all[passes:] {
			took, err := time.ParseDuration(line[1])
			if err != nil {
				return nil, err
			}
			this.took = max(this.took, took)
		}
		out, waits, passes = append(out, this), now, len(all)
	}
	return out, nil
}

// connect makes n connections by way of the service, or some more, in case that packets are lost. All of them stay open,
// those to one of the servers half: IPVS keeps these as long as the others.
func (b rolloutBench) connect(ctx context.Context, n int) (stop func(), err error) {
	stop = func() {}
	if _, err := b.home.sh(ctx, fmt.Sprintf("ip route replace %s via 10.2.0.11; ip route replace %s via 10.1.0.2; ipvsadm --set 0 900 0; sysctl -qw net.netfilter.nf_conntrack_max=%d",
		rollingNet, callerNet, max(2*n, 1<<18))); err != nil {
		return stop, err
	}
	server := &closer{addr: netip.MustParseAddr(closingAddr)}
	if server.tun, err = openEnd(ctx, b.site.Host("web"), rollingNet, server.note); err != nil {
		return stop, err
	}
	begin := time.Now()
	client, err := connectAll(ctx, b.site.Host("client"), netip.MustParseAddrPort(rollingVIP+":80"), n+n/100)
	stop = func() { client(); _ = server.tun.Close() }
	if err == nil {
		err = server.closeAll(ctx)
	}
	if err != nil {
		return stop, err
	}
	out, err := b.home.sh(ctx, "ipvsadm -Ln -t "+rollingVIP+`:80 | awk '$1 == "->" {open += $5; others += $6} $2 == "`+closingAddr+`:80" {left = $5} END {print open+0, others+0, left+0}'`)
	if err != nil {
		return stop, err
	}
	var open, others, left int
	if _, err := fmt.Sscan(out, &open, &others, &left); err != nil || open+others < n || others == 0 || left > 0 {
		return stop, fmt.Errorf("IPVS has %q connections: open, closed by one end, and open to the server that has closed all; want %d", out, n)
	}
	b.report("  %d connections open, %d closed by the server, after %s", open, others, span(time.Since(begin)))
	return stop, nil
}
