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

const head = `# weir in place of keepalived, made of its configuration by weir import keepalived. Each key names
# the line that it comes from. Look it over, stop keepalived, take its VIPs off the interfaces if it
# has left them, then start weir. weir.toml, the reference, has all other keys.
`

// converter makes weir's configuration of a tree.
type converter struct {
	opts Options
	top  *node
	out  *draft.Writer
	// done are the directives that have become keys; blocks need not be in it.
	done map[*node]bool
	// left says of a directive, and all in its block, why it becomes no key, where
	// that is not for the reason of the table.
	left map[*node]string
	// marks tells that a virtual server by packet marks was left out.
	marks bool
	// vips are the addresses that virtual servers speak of, and whether a service
	// has them.
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
	c.fleet()
	left := c.rest(lost)
	return draft.Result{TOML: c.out.String(), Left: left}
}

// take gives a directive of a block that becomes a key.
func (c *converter) take(in *node, names ...string) *node {
	var found *node
	for _, n := range in.all(names...) {
		found = n
		c.done[n] = true
	}
	return found
}

// leave has a directive with all that is in it become nothing.
func (c *converter) leave(n *node, why string) { c.left[n] = why }

// from names a directive and its place.
func from(n *node) string { return n.name() + ", " + n.at.brief() }

// global gives a directive of any of the blocks global_defs.
func (c *converter) global(names ...string) *node {
	var found *node
	for _, g := range c.top.all("global_defs") {
		if n := c.take(g, names...); n != nil {
			found = n
		}
	}
	return found
}

// globals writes what becomes of global_defs, but for what is the fleet's.
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

// entry is what is said of directives that have become nothing for the same reason.
type entry struct {
	name, why, value string
	places           []string
}

// rest names what was said and has become nothing.
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
		add("include", "there is no such file", l.text, l)
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
			c.out.Text("\n# What was set and weir has no key for, or none for this value:\n")
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

// places writes several: the lines of the first file by their numbers alone.
func places(list []string) string {
	list = slices.Compact(list)
	for i := 1; i < len(list); i++ {
		list[i] = strings.TrimPrefix(list[i], "line ")
	}
	return strings.Join(list, ", ")
}

// walk visits the directives that become nothing. Of a block that becomes nothing
// as a whole only the block is visited.
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
