package keepalived

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/draft"
	"weir/cmd/weir/internal/keepalived/lines"
)

const head = `# weir in place of keepalived, converted by weir import keepalived. Each key has a comment with the
# original line. Check it, stop keepalived, remove its VIPs from the
# interfaces if any are left, then start weir. weir.toml, the reference, has all other keys.
`

// convert converts the tree. The result has no service of a refused virtual_server.
func (c *converter) convert(lost []lines.Line) draft.Result {
	services := &draft.Writer{}
	servers := c.top.all("virtual_server")
	for _, n := range (markConverter{c}).marksLast(servers) {
		if reason, ok := c.refused[n]; ok {
			c.lose(n, n, reason)
			c.unserved(n)
			continue
		}
		c.virtualServer(services, n)
	}
	for _, g := range c.top.all("virtual_server_group") {
		if !slices.ContainsFunc(servers, func(n *node) bool { return n.word(1) == "group" && n.word(2) == g.word(1) }) {
			c.leave(g, unusedGroup)
		}
	}
	summary := fmt.Sprintf("%d of %d virtual servers imported", len(servers)-len(c.lost), len(servers))
	c.out.Text(head + "# " + summary + ".\n")
	c.globals()
	c.out.Text(services.String())
	fleetConverter{c}.fleet()
	c.hooks()
	left := c.rest(lost)
	return draft.Result{TOML: c.out.String(), Summary: summary, Left: left}
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
	flush := c.global("lvs_flush_on_stop", "lvs_flush_onstop")
	if flush == nil && !c.programs {
		return
	}
	c.out.Table("[daemon]")
	if flush != nil {
		c.out.Key("on_stop", "cleanup", from(flush))
	}
	if c.programs {
		c.out.Remark("Programs run as user weir-exec, without rights. Start their unit: systemctl enable --now weir-exec.socket.")
		c.out.Key("allow_exec", true, "MISC_CHECK")
	}
}

// entry lists directives that are not converted for the same reason.
type entry struct {
	name, reason, value string
	severity            draft.Severity
	at                  lines.Line // the first
	places              []string
}

// rest lists the directives that are not converted.
func (c *converter) rest(lost []lines.Line) []draft.Item {
	var list []*entry
	add := func(severity draft.Severity, name, reason, value string, at lines.Line) {
		for _, e := range list {
			if e.name == name && e.reason == reason {
				if e.value != value {
					e.value = ""
				}
				e.places = append(e.places, at.Brief())
				return
			}
		}
		list = append(list, &entry{name, reason, value, severity, at, []string{at.Brief()}})
	}
	for _, l := range lost {
		add(draft.Error, "include", "the file does not exist", l.Text, l)
	}
	c.walk(c.top, func(n *node, reason string) {
		name := path(n.in, n.name())
		value := n.value()
		if n.list != "" {
			name, value = n.list, strings.Join(n.words, " ")
		}
		if n.name() == "auth_pass" || n.name() == "password" {
			value = "" // a secret goes no further
		}
		add(c.severity(n, reason), name, reason, value, n.at)
	})
	slices.SortStableFunc(list, func(a, b *entry) int { return cmp.Compare(b.severity, a.severity) })
	var items []draft.Item
	for i, e := range list {
		if i == 0 {
			c.out.Text("\n# Settings without a key, or with a value that weir does not support:\n")
		}
		value := ""
		if e.value != "" {
			value = " = " + draft.Literal(e.value)
		}
		c.out.Remark(fmt.Sprintf("%s: %s%s (%s): %s.", e.severity, e.name, value, places(e.places), e.reason))
		name := e.name
		if e.value != "" && e.severity == draft.Error {
			name += " " + e.value
		}
		items = append(items, draft.Item{Severity: e.severity, At: e.at.String(), Name: name, Reason: e.reason})
	}
	return items
}

// places returns several positions: the lines of the first file only by their numbers.
func places(list []string) string {
	list = slices.Compact(list)
	for i := 1; i < len(list); i++ {
		list[i] = strings.TrimPrefix(list[i], "line ")
	}
	return strings.Join(list, ", ")
}
