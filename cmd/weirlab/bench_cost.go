package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// cost is what one change takes, as the kernel counts it.
type cost struct {
	processes int // /proc/stat: processes and threads that were started in the box
	buffers   int // nlmon: netlink buffers, requests, answers and notices alike; 0 where a kernel has no nlmon
}

// costOfChange replaces one endpoint some times. The least counts: audits, or syncs
// that come at their time, may fall into the others. On this machine's own kernel it counts nothing.
func (r *room) costOfChange(ctx context.Context) (least cost, err error) {
	if r.kernel == lab.HostKernel { // other programs of the machine would count, too
		return least, nil
	}
	if _, err := r.sh(ctx, "ip link add nlmon0 type nlmon && ip link set nlmon0 up"); err != nil && !r.unmonitored {
		r.unmonitored = true
		r.table.line("  (netlink buffers are not counted: this kernel has no nlmon)")
	}
	for i := range r.costs {
		before, err := r.counters(ctx)
		if err != nil {
			return least, err
		}
		if err := r.replace(ctx, fmt.Sprintf("10.252.%d.1", i)); err != nil {
			return least, err
		}
		after, readings, err := r.quiet(ctx, before)
		if err != nil {
			return least, err
		}
		// Each reading is a process itself.
		this := cost{after.processes - before.processes - readings, after.buffers - before.buffers}
		if i == 0 || this.buffers < least.buffers {
			least = this
		}
	}
	return least, nil
}

// quiet waits until nothing has been counted for a second but the readings, and
// returns their number.
func (r *room) quiet(ctx context.Context, last cost) (now cost, readings int, err error) {
	for begin := time.Now(); ; {
		if err := traffic.Pause(ctx, time.Second); err != nil {
			return now, readings, err
		}
		if now, err = r.counters(ctx); err != nil {
			return now, readings, err
		}
		readings++
		if now.buffers == last.buffers && now.processes == last.processes+1 && readings > 1 {
			return now, readings, nil
		}
		if time.Since(begin) > 3*time.Minute {
			return now, readings, fmt.Errorf("the box is never quiet")
		}
		last = now
	}
}

// counters reads both counters by one process, which is a shell that starts no other.
func (r *room) counters(ctx context.Context) (c cost, err error) {
	out, err := r.sh(ctx, `n=0; [ ! -e /sys/class/net/nlmon0 ] || read n < /sys/class/net/nlmon0/statistics/rx_packets; echo $n
while read name n rest; do if [ $name = processes ]; then echo $n; fi; done < /proc/stat`)
	if err != nil {
		return c, err
	}
	if _, err := fmt.Sscan(out, &c.buffers, &c.processes); err != nil {
		return c, fmt.Errorf("counters %q: %w", out, err)
	}
	return c, nil
}

// counts are samples of weir's own metrics, by name and labels.
type counts map[string]float64

// The parts of the kernel that weir sends messages to, as its metrics name them.
var parts = []string{"ipvs", "ipset", "route", "conntrack"}

func messages(part string) string { return fmt.Sprintf("weir_netlink_messages_total{part=%q}", part) }

const (
	execs     = "weir_execs_total"
	audits    = "weir_audit_duration_seconds_count"
	auditTime = "weir_audit_duration_seconds_sum"
)

// scrape reads the metrics that are about weir itself, not about each service:
// those of 100,000 backends would only have to be carried out of the box.
func (r *room) scrape(ctx context.Context) (counts, error) {
	text, err := r.sh(ctx, "curl -sSf http://"+metricsAddr+"/metrics | grep -E '^weir_(netlink|execs|ops|audit|sync|last_sync|drain)'")
	if err != nil {
		return nil, err
	}
	out := counts{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		var v float64
		if _, err := fmt.Sscan(line[at+1:], &v); err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		out[line[:at]] = v
	}
	return out, nil
}

// minus gives what was added since before.
func (c counts) minus(before counts) counts {
	out := counts{}
	for name, v := range c {
		out[name] = v - before[name]
	}
	return out
}

// messages formats the number of messages by part: "1 ipvs".
func (c counts) messages() (total int, text string) {
	var words []string
	for _, p := range parts {
		if n := int(c[messages(p)]); n != 0 {
			total += n
			words = append(words, fmt.Sprintf("%d %s", n, p))
		}
	}
	if total == 0 {
		return 0, "none"
	}
	return total, strings.Join(words, ", ")
}
