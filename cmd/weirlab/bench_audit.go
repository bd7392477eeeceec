package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// audits changes one endpoint among as many Services as there are: at rest, and while weir audits every second. There an
// audit takes longer than that, so that most changes come during one.
func (b clusterBench) audits(ctx context.Context) error {
	n := b.sizes[len(b.sizes)-1]
	if err := b.populate(ctx, n, "ClusterIP"); err != nil {
		return err
	}
	quiet, _, err := b.auditing(ctx, n, "1h")
	if err != nil {
		return err
	}
	audited, share, err := b.auditing(ctx, n, "1s")
	if err != nil {
		return err
	}
	slowest := slices.Max(audited)
	b.table.times(fmt.Sprintf("%s: endpoint changed while audits run", count(n)), median(audited), "without an audit", median(quiet), 0)
	b.table.times(fmt.Sprintf("  the slowest of %d; audits ran %.0f%% of the time", len(audited), 100*share), slowest,
		fmt.Sprintf("  of %d", len(quiet)), slices.Max(quiet), 0)
	return nil
}

// auditing gives how long changes took with audits so often, and in which share of the time one ran.
func (b clusterBench) auditing(ctx context.Context, n int, period string) (delays []time.Duration, share float64, err error) {
	b.report("%s Services, an audit every %s", count(n), period)
	r, err := b.enterWired(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = r.leave(ctx) }()
	if _, err := r.awaits(ctx, b.byWeirWith("ipvs", inIPTables+fmt.Sprintf("sync_period = %q\n", period)), clusterIPs(n)); err != nil {
		return nil, 0, err
	}
	before, err := r.scrape(ctx)
	if err != nil {
		return nil, 0, err
	}
	begin := time.Now()
	if delays, err = r.delays(ctx, b.changesDuringAudits, false); err != nil {
		return nil, 0, err
	}
	took := time.Since(begin)
	after, err := r.scrape(ctx)
	if err != nil {
		return nil, 0, err
	}
	delta := after.minus(before)
	b.report("  %d audits of %s; median %s, slowest %s", int(delta[audits]), span(time.Duration(delta[auditTime]/max(delta[audits], 1)*float64(time.Second))),
		span(median(delays)), span(slices.Max(delays)))
	return delays, delta[auditTime] / took.Seconds(), nil
}
