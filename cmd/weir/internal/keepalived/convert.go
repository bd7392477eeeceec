package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/draft"
)

const head = `# weir in place of keepalived, converted by weir import keepalived. Each key has a comment with the
# original line. Check it, stop keepalived, remove its VIPs from the
# interfaces if any are left, then start weir. weir.toml, the reference, has all other keys.
`

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
