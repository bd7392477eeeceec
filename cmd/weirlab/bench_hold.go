package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
)

// holdBench is the bench of holding what is programmed.
type holdBench struct{ *bench }

// hold measures what it takes to go on: start again on what is there, audit,
// reload what has not changed, and the process itself.
func (b holdBench) hold(ctx context.Context) error {
	if err := b.holdLeast(ctx); err != nil {
		return err
	}
	for _, n := range b.sizes {
		b.report("hold %s services", count(n))
		if err := b.holdMany(ctx, n); err != nil {
			return fmt.Errorf("%d services: %w", n, err)
		}
		if !slices.Contains(alike(b.scale, b.sizes...), n) {
			continue
		}
		for _, mode := range []string{"ipvs", "netfilter"} {
			if err := b.idleInNFTables(ctx, n, mode); err != nil {
				return fmt.Errorf("%d services in nftables, mode %s: %w", n, mode, err)
			}
		}
	}
	return nil
}

// foreignChanges is a script that changes nf_tables often enough that each audit finds it changed.
const foreignChanges = "while sleep 2; do nft add table ip other; nft delete table ip other; done"

// idleInNFTables measures weir with nothing to do but its audits, with rules in nftables: first by itself, then
// beside another program that changes nf_tables, so that each audit reads all of it.
func (b holdBench) idleInNFTables(ctx context.Context, n int, mode string) error {
	if err := b.configure(ctx, fmt.Sprintf("[kernel]\nmode = %q\nrules = \"nftables\"\n", mode)+props.Services(0, n)); err != nil {
		return err
	}
	r, err := b.enter(ctx, "idle")
	if err != nil {
		return err
	}
	defer func() { _ = r.leave(ctx) }()
	if err := r.run(ctx); err != nil {
		return err
	}
	if err := traffic.Pause(ctx, r.restTime); err != nil {
		return err
	}
	alone, _, err := r.idles(ctx)
	if err != nil {
		return err
	}
	other, err := r.box.Start(r.args("sh", "-c", foreignChanges)...)
	if err != nil {
		return err
	}
	defer other.Kill()
	beside, _, err := r.idles(ctx)
	if err != nil {
		return err
	}
	r.table.times(fmt.Sprintf("%s, %s in nftables: processor time of an idle %s", count(n), mode, r.restTime), alone,
		"while another program changes nf_tables", beside, 0)
	return nil
}

// holdLeast measures the usage that the others are compared with.
func (b holdBench) holdLeast(ctx context.Context) error {
	if err := b.configure(ctx, manyServices(10, "")); err != nil {
		return err
	}
	r, err := b.enter(ctx, "least")
	if err != nil {
		return err
	}
	defer func() { _ = r.leave(ctx) }()
	if _, err := r.start(ctx); err != nil {
		return err
	}
	b.least, err = r.usage(ctx)
	return err
}

func (b holdBench) holdMany(ctx context.Context, n int) error {
	if err := b.configure(ctx, manyServices(n, "")); err != nil {
		return err
	}
	r, err := b.enter(ctx, "hold")
	if err != nil {
		return err
	}
	defer func() { _ = r.leave(ctx) }()
	stop := r.reportProgress(ctx, n)
	began, err := r.start(ctx)
	stop()
	if err != nil {
		return err
	}
	r.table.point("first sync, to READY", "s", n, began.total.Seconds())
	first, err := r.usage(ctx)
	if err != nil {
		return err
	}
	r.table.point("memory, ready", "MiB", n, float64(first.rss))
	read, err := r.timed(ctx, "ipvsadm -Sn > "+saved)
	if err != nil {
		return err
	}
	if err := r.restart(ctx, n, read); err != nil {
		return err
	}
	if err := r.audit(ctx, n, read); err != nil {
		return err
	}
	if err := r.reload(ctx, n); err != nil {
		return err
	}
	if err := r.process(ctx, n, first); err != nil {
		return err
	}
	return r.idle(ctx, n)
}

// reportProgress prints the line of weir status during a long first sync, until it is stopped. Of fewer services the
// command would take a part of the time that is measured.
func (r *room) reportProgress(ctx context.Context, n int) (stop func()) {
	if n <= 10_000 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for traffic.Pause(ctx, 2*time.Second) == nil {
			if out, err := r.sh(ctx, r.weir+" status | grep -m1 programming"); err == nil {
				r.report("  %s", out)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// restart ends weir and starts it on what is there.
func (r *room) restart(ctx context.Context, n int, read time.Duration) error {
	if err := r.stop(ctx); err != nil {
		return err
	}
	got, err := r.start(ctx)
	if err != nil {
		return err
	}
	r.table.times(fmt.Sprintf("%s: started again, to READY", count(n)), got.total, "ipvsadm -Sn reads IPVS", read, 0)
	r.table.point("restart, to READY", "s", n, got.total.Seconds())
	r.table.times(fmt.Sprintf("  of that reading all and comparing; writes: %d", got.ops), got.took, "", read, 0)
	return nil
}

// audit has weir read and compare everything, as it does every sync_period: a new
// address on the box brings that forward.
func (r *room) audit(ctx context.Context, n int, read time.Duration) error {
	before, err := r.scrape(ctx)
	if err != nil {
		return err
	}
	if _, err := r.sh(ctx, "ip addr add 203.0.113.77/32 dev lo"); err != nil {
		return err
	}
	var delta counts
	for begin := time.Now(); delta[audits] == 0; {
		if time.Since(begin) > longEnough {
			return fmt.Errorf("no audit after an address was added")
		}
		// Scrapes want the processor too: not while the audit runs.
		if _, err := r.sh(ctx, "sleep 3"); err != nil {
			return err
		}
		after, err := r.scrape(ctx)
		if err != nil {
			return err
		}
		delta = after.minus(before)
	}
	took := time.Duration(delta[auditTime] / delta[audits] * float64(time.Second))
	r.table.times(fmt.Sprintf("%s: audit", count(n)), took, "ipvsadm -Sn reads IPVS", read, 0)
	r.table.point("audit", "s", n, took.Seconds())
	return nil
}

// reload loads a configuration that has not changed.
func (r *room) reload(ctx context.Context, n int) error {
	// The exit code is 1, as sync_period is long enough for a warning.
	check, err := r.timed(ctx, r.weir+" check --config "+configFile+" || [ $? = 1 ]")
	if err != nil {
		return err
	}
	passes := len(appliedLine.FindAllString(r.daemon.Output(), -1))
	took, err := r.timed(ctx, r.weir+" reload")
	if err != nil {
		return err
	}
	if len(appliedLine.FindAllString(r.daemon.Output(), -1)) > passes {
		return fmt.Errorf("a reload of the same configuration has written to the kernel:\n%s", r.daemon.Output())
	}
	r.table.point("reload of the same", "s", n, took.Seconds())
	r.table.times(fmt.Sprintf("%s: reload of the same; writes: 0", count(n)), took, "weir check: only reading it", check, 0)
	return nil
}

// idle measures weir with nothing to do but its audits, started again with the default sync_period.
func (r *room) idle(ctx context.Context, n int) error {
	if err := r.configure(ctx, props.Services(0, n)); err != nil {
		return err
	}
	if err := r.stop(ctx); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	got, err := rerun{r}.idlesAfterScrapes(ctx)
	if err != nil {
		return err
	}
	r.table.idle(count(n), r.restTime, got)
	r.table.point("processor time, 30 s idle", "s", n, got.cpu.Seconds()*30/r.restTime.Seconds())
	r.table.point("scrape", "s", n, got.scrape.Seconds())
	r.table.point("memory, idle after audits", "MiB", n, float64(got.then.rss))
	r.table.memory(fmt.Sprintf("%s: memory then", count(n)), got.then.rss, "weir with 10 services", r.least.rss)
	r.table.memory("  of that not of the program's file", got.then.own, "weir with 10 services", r.least.own)
	return nil
}

// process returns the needs of weir itself, after programming everything and now,
// beside a weir with next to nothing to do.
func (r *room) process(ctx context.Context, n int, first usage) error {
	now, err := r.usage(ctx)
	if err != nil {
		return err
	}
	for _, at := range []struct {
		when string
		usage
	}{{"ready", first}, {"and after restart, audit, reload", now}} {
		r.table.memory(fmt.Sprintf("%s: memory, %s", count(n), at.when), at.rss, "weir with 10 services", r.least.rss)
		r.table.memory("  the most so far", at.peak, "weir with 10 services", r.least.peak)
		r.table.times("  processor time of the process so far", at.cpu, "weir with 10 services", r.least.cpu, 0)
	}
	return nil
}
