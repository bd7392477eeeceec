package metallb

import (
	"slices"
	"strings"

	"weir/cmd/weir/internal/draft"
)

// l2 writes [l2], and the fleet that says who answers: as comments where nobody says
// who the other boxes are, since two that don't know of each other would both answer.
func (c *converter) l2() {
	ads := c.of("L2Advertisement")
	if len(ads) == 0 {
		return
	}
	w := &draft.Writer{}
	w.Text("[cluster]\n")
	w.Key("name", "edge", "as you like, the same on all boxes")
	join, from := []string{"10.0.0.6"}, "the other boxes"
	if len(c.opts.Join) > 0 {
		join, from = c.opts.Join, "--join"
	}
	w.Key("join", join, from)
	w.Key("keys", []string{"credential:cluster.key"}, "/etc/weir/credentials/cluster.key, for root alone")
	w.Table("[l2]")
	var interfaces []string
	for _, ad := range ads {
		list, _ := take[[]string](ad, "interfaces")
		for _, name := range list {
			if !slices.Contains(interfaces, name) {
				interfaces = append(interfaces, name)
			}
		}
	}
	if len(interfaces) > 0 {
		w.Key("interfaces", interfaces, "L2Advertisement")
	} else {
		w.Key("interfaces", []string{"eth0"}, "MetalLB answers on all: name those that lead to clients")
	}
	if pools, all := c.answered(ads); !all {
		w.Key("pools", pools, "L2Advertisement")
	}
	c.out.Text("\n")
	if len(c.opts.Join) > 0 {
		c.out.Remark("In place of MetalLB's speakers. Give all boxes the same key: `openssl rand -base64 32` makes one.")
		c.out.Text(w.String())
		return
	}
	c.out.Remark("In place of MetalLB's speakers. A fleet of boxes shares what is answered for by ARP and NDP: write the others to join, " +
		"or import with --join, and take the # off these lines; on a box alone, those of [l2] will do. Give all boxes the same key: " +
		"`openssl rand -base64 32` makes one.")
	for l := range strings.Lines(w.String()) {
		c.out.Text("#" + l)
	}
}

// answered gives the pools that L2Advertisements choose, and whether these are all.
func (c *converter) answered(ads []*object) (pools []string, all bool) {
	all = true
	for _, p := range c.of("IPAddressPool") {
		if slices.ContainsFunc(ads, func(ad *object) bool { return c.chooses(ad, p) }) {
			pools = append(pools, p.name)
		} else {
			all = false
		}
	}
	return pools, all || len(pools) == 0
}
