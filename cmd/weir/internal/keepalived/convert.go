package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/draft"
)

const head = `# weir in place of keepalived, converted by weir import keepalived. Each key has a comment with the
# original line. Check it, stop keepalived, remove its VIPs from the
# interfaces if any are left, then start weir. weir.toml, the reference, has all other keys.
`

// converter converts a tree to weir's configuration.
type converter struct {
	opts Options
	top  *node
	out  *draft.Writer
	// done are the converted directives; blocks need not be in it.
	done map[*node]bool
	// left has the reason for directives that are not converted with all in their block,
	// if it differs from that of the table.
	left map[*node]string
	// marks means that a virtual server by packet marks is not converted.
	marks bool
	// vips are the addresses of virtual servers; true means that a service has them.
	vips map[netip.Addr]bool
	// names are those of services.
	names map[string]bool
}

func convert(top *node, lost []line, opts Options) draft.Result {
	c := &converter{
		opts: opts, top: top, out: &draft.Writer{}, done: map[*node]bool{}, left: map[*node]string{},
		vips: map[netip.Addr]bool{}, names: map[string]bool{},
	}
	c.out.Text(head)
	services := &draft.Writer{}
	for _, n := range top.all("virtual_server") {
		c.virtualServer(services, n)
	}
	c.globals()
	c.out.Text(services.String())
	fleetConverter{c}.fleet()
	left := c.rest(lost)
	return draft.Result{TOML: c.out.String(), Left: left}
}

// take returns a directive of a block and marks it as converted.
func (c *converter) take(in *node, names ...string) *node {
	var found *node
	for _, n := range in.all(names...) {
		found = n
		c.done[n] = true
	}
	return found
}

// leave records that a directive with its block is not converted.
func (c *converter) leave(n *node, why string) { c.left[n] = why }

// from returns a directive and its position.
func from(n *node) string { return n.name() + ", " + n.at.brief() }

// global returns a directive of any block global_defs.
func (c *converter) global(names ...string) *node {
	var found *node
	for _, g := range c.top.all("global_defs") {
		if n := c.take(g, names...); n != nil {
			found = n
		}
	}
	return found
}

// globals converts global_defs, except for directives of the fleet.
func (c *converter) globals() {
	if n := c.global("lvs_timeouts"); n != nil {
		c.out.Table("[kernel]")
		for i := 1; i+1 < len(n.words); i += 2 {
			key := map[string]string{"tcp": "tcp_timeout", "tcpfin": "tcp_fin_timeout", "udp": "udp_timeout"}[n.words[i]]
			if d, ok := seconds(n.words[i+1]); ok && key != "" {
				c.out.Key(key, d, from(n))
			}
		}
	}
	if n := c.global("lvs_flush_on_stop", "lvs_flush_onstop"); n != nil {
		c.out.Table("[daemon]")
		c.out.Key("on_stop", "cleanup", from(n))
	}
}

// seconds reads a time as keepalived writes it: seconds, with or without decimals.
func seconds(s string) (time.Duration, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e9 {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)).Round(time.Millisecond), true
}

// entry lists directives that are not converted for the same reason.
type entry struct {
	name, why, value string
	places           []string
}

// rest lists the directives that are not converted.
func (c *converter) rest(lost []line) []string {
	var list []*entry
	add := func(name, why, value string, at line) {
		for _, e := range list {
			if e.name == name && e.why == why {
				if e.value != value {
					e.value = ""
				}
				e.places = append(e.places, at.brief())
				return
			}
		}
		list = append(list, &entry{name, why, value, []string{at.brief()}})
	}
	for _, l := range lost {
		add("include", "the file does not exist", l.text, l)
	}
	c.walk(c.top, func(n *node, why string) {
		name := path(n.in, n.name())
		value := n.value()
		if n.list != "" {
			name, value = n.list, strings.Join(n.words, " ")
		}
		if n.name() == "auth_pass" || n.name() == "password" {
			value = "" // a secret goes no further
		}
		add(name, why, value, n.at)
	})
	var names []string
	for i, e := range list {
		if i == 0 {
			c.out.Text("\n# Settings without a key, or with a value that weir does not support:\n")
		}
		value := ""
		if e.value != "" {
			value = " = " + draft.Literal(e.value)
		}
		c.out.Remark(fmt.Sprintf("%s%s (%s): %s.", e.name, value, places(e.places), e.why))
		if !slices.Contains(names, e.name) {
			names = append(names, e.name)
		}
	}
	return names
}

// places returns several positions: the lines of the first file only by their numbers.
func places(list []string) string {
	list = slices.Compact(list)
	for i := 1; i < len(list); i++ {
		list[i] = strings.TrimPrefix(list[i], "line ")
	}
	return strings.Join(list, ", ")
}

// walk visits the directives that are not converted. Of a block that is not converted it
// visits only the block.
func (c *converter) walk(in *node, visit func(*node, string)) {
	for _, n := range in.block {
		d, _ := lookup(n.in, n.name())
		why, left := c.left[n]
		switch {
		case left:
			visit(n, why)
		case c.done[n] || n.in == entries:
		case d.opens == entries, d.opens == "", d.key == "" && n.name() != "global_defs":
			visit(n, d.why)
			continue
		}
		if !left {
			c.walk(n, visit)
		}
	}
}
