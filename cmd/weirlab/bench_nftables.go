package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"weir/cmd/weirlab/lab"
)

// nftBench is the bench of both products without IPVS, iptables and ipset.
type nftBench struct{ *bench }

// nftStay is what was measured of an engine.
type nftStay struct {
	stay
	rules   int
	connect latency
	floor   time.Duration // processor time of nft for the same sets and maps
}

// The promises beside kube-proxy's nftables mode, in parts of its time.
const (
	nftStartLimit  = 0.3
	nftChangeLimit = 0.1
)

// tables measures weir in mode netfilter with nftables, and kube-proxy in nftables mode.
func (b nftBench) tables(ctx context.Context) error {
	weir, proxy := b.byWeirWith("netfilter", "rules = \"nftables\"\n"), b.byKubeProxy("nftables")
	for _, n := range alike(b.scale, append([]int{10}, b.sizes...)...) {
		if err := b.populate(ctx, n, "ClusterIP"); err != nil {
			return err
		}
		ours, err := b.visit(ctx, weir, n, weirBackends(n))
		if err != nil {
			return err
		}
		if ours.floor, err = b.floor(ctx); err != nil {
			return err
		}
		theirs, err := b.visit(ctx, proxy, n, content{script: "echo synced", want: "synced"})
		if err != nil {
			return err
		}
		b.lines(n, ours, proxy.name, theirs)
		b.table.point("nftables: start until complete", "s", n, ours.all.Seconds())
		b.table.point("nftables: memory when complete", "MiB", n, float64(ours.used.rss))
		b.table.point("nftables: endpoint changed, reached", "s", n, median(ours.delays).Seconds())
		b.table.point("nftables: new connection", "s", n, ours.connect.median.Seconds())
	}
	return nil
}

// weirBackends returns the content of the maps with n Services.
func weirBackends(n int) content {
	return content{
		script: `echo $(nft list map ip weir KUBE-BACKENDS | grep -c ' : 10\.') backends
echo $(nft list map ip weir KUBE-SERVERS | grep -c ' 10\.97\.') virtual servers`,
		want: fmt.Sprintf("%d backends\n%d virtual servers", n*perService+1, n),
	}
}

// visit starts an engine in a room of its own and measures it there.
func (b nftBench) visit(ctx context.Context, e engine, n int, complete content) (s nftStay, err error) {
	b.report("%s: %s Services", e.name, count(n))
	r, err := b.enterWired(ctx)
	if err != nil {
		return s, err
	}
	defer func() { _ = r.leave(ctx) }()
	s.services = n
	if s.began, err = r.awaits(ctx, e, complete); err != nil {
		return s, err
	}
	if err := b.rest(ctx); err != nil {
		return s, err
	}
	if s.rules, err = r.nftRules(ctx); err != nil {
		return s, err
	}
	// Without the owner of the table, which must stay when nft ends, and without rules, which nft can't read back.
	if _, err = r.sh(ctx, `nft list ruleset | awk '/^\tflags owner/{next} /^\tchain /{c=1} /^\t}/{c=0} !c || /^\tchain / || / hook /' > `+rulesetFile); err != nil {
		return s, err
	}
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = clusterIP(i) + ":80"
	}
	if s.connect, err = dataBench(b).knock(ctx, addrs); err != nil {
		return s, err
	}
	measured, err := r.changes(ctx, b.changesAmongMany, e.rests)
	if err != nil {
		return s, err
	}
	s.delays = durations(measured)
	s.cost, err = r.costOfChange(ctx)
	b.report("  %s: %s rules, a connection %s, a change %s", e.name, count(s.rules), span(s.connect.median), span(median(s.delays)))
	return s, err
}

// rulesetFile has the sets and maps of the engine that was visited last.
const rulesetFile = "/tmp/bench/ruleset.nft"

// floor returns the processor time in which nft loads the sets and maps of the engine that was visited last,
// in a room of its own.
func (b nftBench) floor(ctx context.Context) (time.Duration, error) {
	r, err := b.enter(ctx, "floor")
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.leave(ctx) }()
	out, err := r.sh(ctx, "nft -f "+rulesetFile+"; awk '{print $16+$17}' /proc/$$/stat; getconf CLK_TCK")
	if err != nil {
		return 0, err
	}
	var ticks, hertz int
	if _, err := fmt.Sscan(out, &ticks, &hertz); err != nil {
		return 0, fmt.Errorf("processor time of nft: %q: %w", out, err)
	}
	return time.Duration(ticks) * time.Second / time.Duration(hertz), nil
}

// nftRules counts the rules of all tables.
func (r *room) nftRules(ctx context.Context) (int, error) {
	out, err := r.sh(ctx, `nft -t list ruleset | awk '/^\tchain /{in_chain=1} /^\t}/{in_chain=0} in_chain && /^\t\t/ && !/^\t\ttype /{n++} END{print n+0}'`)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

// lines are those of n Services.
func (b nftBench) lines(n int, ours nftStay, peer string, theirs nftStay) {
	start := 0.0
	if n == 1000 { // with more, weir takes as long as with IPVS
		start = nftStartLimit
	}
	what := fmt.Sprintf("%s x %d", count(n), perService)
	b.table.counts(what+", nftables: rules", ours.rules, peer, theirs.rules)
	b.table.times("  from the start until complete", ours.all, "  its first sync", theirs.all, start)
	b.table.times("  processor time until then", ours.used.cpu, "", theirs.used.cpu, 0)
	b.table.times("", ours.used.cpu, "  nft -f of weir's sets and maps", ours.floor, 0)
	b.table.memory("  memory then", ours.used.rss, "", theirs.used.rss)
	b.table.times("  endpoint changed until reached", median(ours.delays), "", median(theirs.delays), limitFor(n, nftChangeLimit))
	if b.kernel != lab.HostKernel {
		b.table.counts("  netlink buffers to and fro", ours.cost.buffers, "", theirs.cost.buffers)
	}
	b.table.times("  a connection to a ClusterIP, median", ours.connect.median, "", theirs.connect.median, 0)
}
