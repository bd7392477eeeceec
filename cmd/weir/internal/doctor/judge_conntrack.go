package doctor

import (
	"fmt"
	"strconv"
)

const (
	// bytesOfConnection is the memory of one connection with its NAT extension.
	bytesOfConnection = 320
	// minMax is the minimum limit of a box that forwards connections.
	minMax = 262144
)

// fullConntrack reports a nearly full table, which would drop new connections.
func fullConntrack(f box) []Finding {
	c := f.Conntrack
	used := c.Count * 100 / c.Max
	if used < 80 {
		return nil
	}
	x := Finding{Severity: Warning, Text: fmt.Sprintf("conntrack has %d of at most %d connections (%d%%)", c.Count, c.Max, used)}
	if used >= 95 {
		x.Severity = Error
	}
	more := max(minMax, 4*c.Count)
	x.Fix = fmt.Sprintf("raise the limit, which takes at most %d MiB of memory; write it into /etc/sysctl.d too", more*bytesOfConnection>>20)
	x.Command = set("net.netfilter.nf_conntrack_max", strconv.Itoa(more)) +
		" && echo net.netfilter.nf_conntrack_max=" + strconv.Itoa(more) + " >/etc/sysctl.d/90-weir-conntrack.conf"
	return []Finding{x}
}

// droppingConntrack reports dropped packets.
func droppingConntrack(f box) []Finding {
	c := f.Conntrack
	switch {
	case c.Growing > 0:
		return []Finding{{
			Severity: Error, Text: fmt.Sprintf("conntrack has dropped %d packets in one second", c.Growing),
			Fix: "raise the limit and the number of buckets; see dmesg", Command: set("net.netfilter.nf_conntrack_max", strconv.Itoa(2*c.Max)),
		}}
	case c.Dropped > 0:
		return []Finding{{Severity: Info, Text: fmt.Sprintf("conntrack has dropped %d packets since boot, none in the last second", c.Dropped)}}
	}
	return nil
}

// longConntrack reports too few buckets.
func longConntrack(f box) []Finding {
	c := f.Conntrack
	if c.Buckets == 0 || c.Count/c.Buckets < longChain {
		return nil
	}
	return []Finding{{
		Severity: Warning, Text: fmt.Sprintf("conntrack has %d buckets for %d connections", c.Buckets, c.Count),
		Fix: "make one for two connections", Command: set("net.netfilter.nf_conntrack_buckets", strconv.Itoa(c.Count/2)),
	}}
}
