package doctor

import (
	"fmt"
	"strconv"
)

const (
	// bytesOfConnection is what conntrack needs for one: the object and its NAT part.
	bytesOfConnection = 320
	// leastMax is the least that a box should track which carries others' connections.
	leastMax = 262144
)

// fullConntrack: the table of connections has little room left. A full one drops
// everybody's new connections.
func fullConntrack(f Facts) []Finding {
	c := f.Conntrack
	used := c.Count * 100 / c.Max
	if used < 80 {
		return nil
	}
	x := Finding{Severity: Warning, What: fmt.Sprintf("conntrack holds %d connections of at most %d (%d%%)", c.Count, c.Max, used)}
	if used >= 95 {
		x.Severity = Error
	}
	more := max(leastMax, 4*c.Count)
	x.Fix = fmt.Sprintf("make room, at most %d MiB of memory; write it into /etc/sysctl.d too", more*bytesOfConnection>>20)
	x.Command = set("net.netfilter.nf_conntrack_max", strconv.Itoa(more)) +
		" && echo net.netfilter.nf_conntrack_max=" + strconv.Itoa(more) + " >/etc/sysctl.d/90-weir-conntrack.conf"
	return []Finding{x}
}

// droppingConntrack: packets are dropped now.
func droppingConntrack(f Facts) []Finding {
	c := f.Conntrack
	switch {
	case c.Growing > 0:
		return []Finding{{
			Severity: Error, What: fmt.Sprintf("conntrack has dropped %d packets within a second", c.Growing),
			Fix: "make room and more buckets; see dmesg", Command: set("net.netfilter.nf_conntrack_max", strconv.Itoa(2*c.Max)),
		}}
	case c.Dropped > 0:
		return []Finding{{Severity: Info, What: fmt.Sprintf("conntrack has dropped %d packets since the box started, none just now", c.Dropped)}}
	}
	return nil
}

// longConntrack: there are so few buckets that each packet walks a long chain.
func longConntrack(f Facts) []Finding {
	c := f.Conntrack
	if c.Buckets == 0 || c.Count/c.Buckets < longChain {
		return nil
	}
	return []Finding{{
		Severity: Warning, What: fmt.Sprintf("conntrack has %d buckets for %d connections", c.Buckets, c.Count),
		Fix: "make more, one for two connections", Command: set("net.netfilter.nf_conntrack_buckets", strconv.Itoa(c.Count/2)),
	}}
}
