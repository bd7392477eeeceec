package metallb

import (
	"slices"
	"strings"

	"weir/cmd/weir/internal/draft"
)

// l2 writes [fleet] and [l2]. They are comments if the other boxes are unknown, because two
// boxes without contact would both answer.
func (c *converter) l2() {
	ads := c.of("L2Advertisement")
	pools, all := c.answered(ads)
	if len(ads) == 0 {
		return
	}
	if len(pools) == 0 && !all { // weir's empty list means all pools
		const reason = "no pool is chosen, so there is nothing to answer for"
		for _, ad := range ads {
			ad.left["ipAddressPools"], ad.left["ipAddressPoolSelectors"] = reason, reason
		}
		return
	}
	w := &draft.Writer{}
	w.Text("[fleet]\n")
	w.Key("name", "edge", "any name, the same on all boxes")
	join, from := []string{"10.0.0.6"}, "the other boxes"
	if len(c.opts.Join) > 0 {
		join, from = c.opts.Join, "--join"
	}
	w.Key("join", join, from)
	w.Key("keys", []string{"credential:fleet.key"}, "/etc/weir/credentials/fleet.key, readable only by root")
	w.Table("[l2]")
	var interfaces []string
	from = "L2Advertisement"
	for _, ad := range ads {
		list, some := take[[]string](ad, "interfaces")
		if !some {
			from = ad.String() + " has none and means all: name those to its clients, too"
		}
		for _, name := range list {
			if !slices.Contains(interfaces, name) {
				interfaces = append(interfaces, name)
			}
		}
	}
	if len(interfaces) > 0 {
		w.Key("interfaces", interfaces, from)
	} else {
		w.Key("interfaces", []string{"eth0"}, "MetalLB answers on all: name the interfaces to clients")
	}
	if !all {
		w.Key("pools", pools, "L2Advertisement")
	}
	c.out.Text("\n")
	if len(c.opts.Join) > 0 {
		c.out.Remark("In place of MetalLB's speakers. All boxes need the same key: `openssl rand -base64 32` creates one.")
		c.out.Text(w.String())
		return
	}
	c.out.Remark("In place of MetalLB's speakers. The boxes of a fleet answer ARP and NDP for the VIPs: add the other boxes to join, " +
		"or import with --join, and uncomment these lines; a single box needs only those of [l2]. All boxes need the same key: " +
		"`openssl rand -base64 32` creates one.")
	for l := range strings.Lines(w.String()) {
		c.out.Text("#" + l)
	}
}

// answered returns the pools that L2Advertisements choose, and whether these are all.
func (c *converter) answered(ads []*object) (pools []string, all bool) {
	all = true
	for _, p := range c.of("IPAddressPool") {
		if slices.ContainsFunc(ads, func(ad *object) bool { return c.chooses(ad, p) }) {
			pools = append(pools, p.name)
		} else {
			all = false
		}
	}
	return pools, all
}
