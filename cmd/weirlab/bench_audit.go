package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	all, rest := durations(audited), durations(quiet)
	b.table.times(fmt.Sprintf("%s: endpoint changed while audits run", count(n)), median(all), "without an audit", median(rest), 0)
	b.table.times(fmt.Sprintf("  the slowest of %d; audits ran %.0f%% of the time", len(all), 100*share), slices.Max(all),
		fmt.Sprintf("  of %d", len(rest)), slices.Max(rest), 0)
	b.table.times("  the slowest without the time of the API server", slices.Max(afterAPI(audited)), "", slices.Max(afterAPI(quiet)), 0)
	ours, peer := afterAPI(unstarved(audited)), afterAPI(unstarved(quiet))
	b.table.times(fmt.Sprintf("  of %d for which the host had a processor", len(ours)), slowest(ours), fmt.Sprintf("  of %d", len(peer)), slowest(peer), 0)
	return nil
}

// afterAPI gives how long changes took after the answer of the API server, which sends the change at the same time.
func afterAPI(changes []replacement) (out []time.Duration) {
	for _, c := range changes {
		out = append(out, max(0, c.took-c.api))
	}
	return out
}

// mayWait is how long the tasks of a short change may wait for a processor of the host, all together.
const mayWait = 5 * time.Millisecond

// unstarved gives the changes that waited so long at most, or for a tenth of their time.
func unstarved(changes []replacement) (out []replacement) {
	for _, c := range changes {
		if c.starved <= max(mayWait, c.took/10) {
			out = append(out, c)
		}
	}
	return out
}

// slowest is 0 if there are none.
func slowest(of []time.Duration) time.Duration { return slices.Max(append(of, 0)) }

// passLine is a pass of weir with its end.
var passLine = regexp.MustCompile(`time=(\S+) level=INFO msg=applied ops=\d+ .*took=(\S+)`)

// reportSlowest reports where the time of the slowest changes went. The clock of the box is that of the host.
func (b clusterBench) reportSlowest(r *room, changes []replacement) {
	sorted := slices.SortedFunc(slices.Values(changes), func(a, b replacement) int { return cmp.Compare(b.took, a.took) })
	for _, c := range sorted[:min(5, len(sorted))] {
		var passes []string
		for _, line := range passLine.FindAllStringSubmatch(r.daemon.Output(), -1) {
			end, err1 := time.Parse(time.RFC3339Nano, line[1])
			took, err2 := time.ParseDuration(line[2])
			if at := end.Sub(c.begin); err1 == nil && err2 == nil && at > 0 && at < c.took+50*time.Millisecond {
				passes = append(passes, fmt.Sprintf("%s to %s", span(max(0, at-took)), span(at)))
			}
		}
		b.report("    %s: the API server answered after %s, weir wrote from %s; waits for a processor of the host %s",
			span(c.took), span(c.api), cmp.Or(strings.Join(passes, ", "), "no time that its log has"), span(c.starved))
	}
}

// auditing gives the changes with audits so often, and in which share of the time one ran.
func (b clusterBench) auditing(ctx context.Context, n int, period string) (changes []replacement, share float64, err error) {
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
	if changes, err = r.changes(ctx, b.changesDuringAudits, false); err != nil {
		return nil, 0, err
	}
	took := time.Since(begin)
	after, err := r.scrape(ctx)
	if err != nil {
		return nil, 0, err
	}
	delta := after.minus(before)
	b.report("  %d audits of %s; median %s, slowest %s", int(delta[audits]), span(time.Duration(delta[auditTime]/max(delta[audits], 1)*float64(time.Second))),
		span(median(durations(changes))), span(slices.Max(durations(changes))))
	b.reportSlowest(r, changes)
	return changes, delta[auditTime] / took.Seconds(), nil
}
