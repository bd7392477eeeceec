package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// rerun is a room in which weir is started again.
type rerun struct{ *room }

// resumed is how a node started again on what is there.
type resumed struct {
	total time.Duration // until READY, and until it has compared the API server's objects with the kernel
	saved time.Duration // of that until READY with the objects of the snapshot; 0 if the API server's came first
	ops   int           // written to the kernel since the start
	reads time.Duration // other programs read virtual servers and sets
}

// resumes starts weir again some times. The best counts, of either side.
func (r rerun) resumes(ctx context.Context) (best resumed, err error) {
	for i := range r.rounds {
		if err := r.stop(ctx); err != nil {
			return best, err
		}
		var reads time.Duration
		reading, err := starved(r.box, func() (err error) {
			reads, err = r.timed(ctx, "(ipvsadm -Sn; ipset save) > /dev/null") // no audit disturbs it now
			return err
		})
		if err != nil {
			return best, err
		}
		var got resumed
		starting, err := starved(r.box, func() (err error) { got, err = r.resume(ctx); return err })
		if err != nil {
			return best, err
		}
		r.report("  weir: started again, ready after %s, of that %s without the API server; writes: %d; ipvsadm -Sn, ipset save: %s; waits for a processor of the host: %s, %s",
			span(got.total), span(got.saved), got.ops, span(reads), span(starting), span(reading))
		if i == 0 {
			best = got
			best.reads = reads
		}
		best.reads, best.ops = min(best.reads, reads), max(best.ops, got.ops)
		if got.total < best.total {
			best.total, best.saved = got.total, got.saved
		}
	}
	return best, nil
}

// listedLine comes when the API server's objects are ready for the kernel.
var listedLine = regexp.MustCompile(`time=(\S+) level=INFO msg="cluster synced" .*stale=false`)

// resume starts weir. When the API server is slow, weir is READY by its snapshot. A pass follows that has nothing to write,
// and so no line.
func (r rerun) resume(ctx context.Context) (got resumed, err error) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	first, err := r.start(ctx)
	if err != nil {
		return got, err
	}
	if err := r.daemon.Expect(ctx, "stale=false"); err != nil {
		return got, err
	}
	listed, err := timeOf(listedLine, r.daemon.Output())
	if err != nil {
		return got, err
	}
	for {
		now, err := r.scrape(ctx)
		if err != nil {
			return got, err
		}
		last := time.UnixMilli(int64(math.Round(now[lastSync] * 1000)))
		if got, ended := first.resumed(listed, last); ended {
			got.ops = now.operations()
			return got, nil
		}
		if err := traffic.Pause(ctx, 50*time.Millisecond); err != nil { // weir needs the box's processor
			return got, err
		}
	}
}

// resumed is a start that the API server's objects joined when they were listed; last is the end of the last pass. The
// pass of READY has them if it began after that, and else the next one.
func (first ready) resumed(listed, last time.Time) (got resumed, ended bool) {
	if !listed.After(first.at.Add(-first.took)) {
		return resumed{total: first.total}, true
	}
	const precision = 2 * time.Millisecond // of the log and the metric
	got = resumed{saved: first.total, total: first.total + last.Sub(first.at)}
	return got, last.After(first.at.Add(precision)) && !last.Before(listed.Truncate(time.Millisecond))
}

// starved gives how long a box has waited for a processor of the host during f, without the waits of programs that have
// ended since. User-mode Linux counts some of that as processor time.
func starved(box *lab.Machine, f func() error) (time.Duration, error) {
	before, err := lab.ProcessorWaits(box)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := lab.ProcessorWaits(box)
	return after.Since(before), err
}

// lastSync is the time of weir's last pass.
const lastSync = "weir_last_sync_timestamp_seconds"

// operations is how much was written to the kernel.
func (c counts) operations() (n int) {
	for name, v := range c {
		if strings.HasPrefix(name, "weir_ops_total{") {
			n += int(v)
		}
	}
	return n
}

// againLines are about a node that was started again.
func (b clusterBench) againLines(n int, s stay) {
	what := fmt.Sprintf("%s x %d", count(n), perService)
	objects := "the API server's objects came before READY"
	if s.again.saved > 0 {
		objects = "READY by the snapshot after " + span(s.again.saved)
	}
	b.table.times(what+": started again, to READY", s.again.total, "ipvsadm -Sn, ipset save", s.again.reads, 0)
	b.table.add(figure{what: "  writes", ours: count(s.again.ops), peer: objects})
	b.table.idle(what, b.restTime, s.idle)
	if s.again.ops > 0 {
		b.table.miss("a restart with %s Services wrote %d operations, want 0", count(n), s.again.ops)
	}
}

// syncPeriod is the default of kernel.sync_period.
const syncPeriod = 10 * time.Second

// idleness is what weir takes with nothing to do but its audits.
type idleness struct {
	cpu    time.Duration
	then   usage
	audits int
	scrape time.Duration // the shortest
	reads  time.Duration // the system time in which one process reads the same of the kernel as often
}

// idles takes the processor time of a process that has nothing to do.
func (r *room) idles(ctx context.Context) (time.Duration, usage, error) {
	before, err := r.usage(ctx)
	if err != nil {
		return 0, before, err
	}
	if err := traffic.Pause(ctx, r.restTime); err != nil {
		return 0, before, err
	}
	after, err := r.usage(ctx)
	return after.cpu - before.cpu, after, err
}

// idlesAfterScrapes has a weir with the default sync_period, just started, do nothing but its audits after scrapes.
// Beside it is the system time in which one process reads the same of the kernel as often, and nothing else: no audit can
// take less.
func (r rerun) idlesAfterScrapes(ctx context.Context) (got idleness, err error) {
	floor, err := lab.Binary("weir/cmd/weirlab/internal/reads")
	if err != nil {
		return got, err
	}
	got.scrape = longEnough
	for range 3 {
		took, err := r.timed(ctx, "curl -sSf http://"+metricsAddr+"/metrics > /dev/null")
		if err != nil {
			return got, err
		}
		got.scrape = min(got.scrape, took)
	}
	if err := traffic.Pause(ctx, r.restTime); err != nil {
		return got, err
	}
	idle, err := starved(r.box, func() (err error) { got.cpu, got.then, err = r.idles(ctx); return err })
	if err != nil {
		return got, err
	}
	got.audits = max(1, int(r.restTime/syncPeriod))
	var out string
	reading, err := starved(r.box, func() (err error) {
		out, err = r.sh(ctx, fmt.Sprintf("%s %d", floor, got.audits))
		return err
	})
	if err != nil {
		return got, err
	}
	var reads float64
	if _, err := fmt.Sscan(out, &reads); err != nil {
		return got, fmt.Errorf("system time of reads: %q: %w", out, err)
	}
	got.reads = time.Duration(reads * float64(time.Second))
	r.report("  weir: %s of processor time in an idle %s; %d reads: %s; waits for a processor of the host: %s, %s",
		span(got.cpu), r.restTime, got.audits, span(got.reads), span(idle), span(reading))
	return got, nil
}

// idle adds the line of a rest for so long.
func (t *table) idle(what string, rest time.Duration, got idleness) {
	t.times(fmt.Sprintf("%s: processor time of an idle %s", what, rest), got.cpu,
		fmt.Sprintf("system time of %d reads of IPVS, sets, addresses", got.audits), got.reads, 0)
	t.add(figure{what: "  a scrape, by curl", ours: span(got.scrape)})
}

// usage is what the process has taken so far, with the programs that it has run.
type usage struct {
	rss, own, peak int // MiB: in memory, of that anonymous, and the most so far
	cpu            time.Duration
}

// usage reads /proc of what runs in the room.
func (r *room) usage(ctx context.Context) (usage, error) {
	pid := r.daemon.Pid()
	out, err := r.sh(ctx, fmt.Sprintf(
		`for i in VmRSS RssAnon VmHWM; do awk "/^$i/"'{print $2}' /proc/%d/status; done; awk '{print $14+$15+$16+$17}' /proc/%d/stat; getconf CLK_TCK`, pid, pid))
	if err != nil {
		return usage{}, err
	}
	var rss, own, peak, ticks, hertz int
	if _, err := fmt.Sscan(out, &rss, &own, &peak, &ticks, &hertz); err != nil {
		return usage{}, fmt.Errorf("/proc/%d: %q: %w", pid, out, err)
	}
	return usage{rss >> 10, own >> 10, peak >> 10, time.Duration(ticks) * time.Second / time.Duration(hertz)}, nil
}
