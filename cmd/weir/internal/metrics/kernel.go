package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/lb/linux"
)

var (
	descMessages       = desc("netlink_messages_total", "Netlink requests sent to the kernel.", "part")
	descSends          = desc("netlink_sends_total", "System calls that carried netlink requests.", "part")
	descRefused        = desc("netlink_errors_total", "Netlink requests that the kernel refused.", "part")
	descRetries        = desc("netlink_retries_total", "Batches repeated because a reply was lost.", "part")
	descMoved          = desc("mh_reordered_total", "Real servers of scheduler mh that were moved to the common order of all members.")
	descRuleset        = desc("ruleset_reads_total", "Audits by their reading of sets and rules: read, or unchanged since the last one and not read.", "result")
	descExecs          = desc("execs_total", "Programs run: iptables-save and iptables-restore.")
	descConntrack      = desc("conntrack_entries", "Connections in conntrack, of all programs.")
	descConntrackLimit = desc("conntrack_limit", "Greatest number of connections in conntrack; the kernel drops further ones. 0 is no limit.")
)

// kernel exports the requests to the kernel.
func (x Sample) kernel(out chan<- prometheus.Metric) {
	conntrack(out)
	if x.Kernel == nil {
		return
	}
	n := x.Kernel
	for part, t := range map[string]*linux.Traffic{
		"ipvs": &n.IPVS, "ipset": &n.IPSet, "route": &n.Route, "conntrack": &n.Conntrack, "reader": &n.Reader,
	} {
		count(out, descMessages, t.Messages.Load(), part)
		count(out, descSends, t.Sends.Load(), part)
		count(out, descRefused, t.Errors.Load(), part)
		count(out, descRetries, t.Retries.Load(), part)
	}
	count(out, descExecs, n.Execs.Load())
	count(out, descMoved, n.Moved.Load())
	count(out, descRuleset, n.RulesRead.Load(), "read")
	count(out, descRuleset, n.RulesKept.Load(), "unchanged")
}

// conntrack exports the size of the connection table, if there is one.
func conntrack(out chan<- prometheus.Metric) {
	entries, limit, ok := linux.ConntrackRoom()
	if !ok {
		return
	}
	gauge(out, descConntrack, float64(entries))
	gauge(out, descConntrackLimit, float64(limit))
}
