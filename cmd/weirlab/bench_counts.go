package main

import (
	"context"
	"fmt"
	"strings"
)

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
	text, err := r.sh(ctx, "curl -sSf http://"+metricsAddr+"/metrics | grep -E '^weir_(netlink|execs|ops|audit)'")
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
