package keepalived

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/draft"
	"weir/cmd/weir/internal/keepalived/lines"
)

// Options are settings that the file does not have.
type Options struct {
	// ID is keepalived's config-id, and Host the default (lines.Options).
	ID, Host string
	// Strict refuses unknown directives.
	Strict bool
	// Join are the other boxes, for [fleet]. The default is those of unicast_peer.
	Join []string
	// Files has the included files; nil means none.
	Files lines.Files
}

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
	// programs means that a check runs one.
	programs bool
	// vips are the addresses of virtual servers; true means that a service has them.
	vips map[netip.Addr]bool
	// services has the virtual_server of each service, by the name of the service.
	services map[string]*node
	// lost are the virtual servers that are not imported, or only in part.
	lost map[*node]bool
	// refused has the reasons of virtual servers that package load does not accept.
	refused map[*node]string
	// errors are the directives without which some traffic is not served.
	errors map[*node]bool
}

func newConverter(top *node, opts Options, refused map[*node]string) *converter {
	return &converter{
		opts: opts, top: top, out: &draft.Writer{}, done: map[*node]bool{}, left: map[*node]string{},
		vips: map[netip.Addr]bool{}, services: map[string]*node{}, lost: map[*node]bool{}, errors: map[*node]bool{},
		refused: refused,
	}
}

// refuse records the virtual servers of the services in an error of package load. It
// reports whether there is one.
func (c *converter) refuse(problems error) bool {
	found := false
	for l := range strings.Lines(problems.Error()) {
		for name, n := range c.services {
			if rest, ok := strings.CutPrefix(l, "service."+name+"."); ok && c.refused[n] == "" {
				c.refused[n] = strings.TrimSpace(rest)
				found = true
			}
		}
	}
	return found
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
func (c *converter) leave(n *node, reason string) { c.left[n] = reason }

// lose records that a directive is not converted, so that a virtual_server loses traffic.
// The server is nil if the directive belongs to none.
func (c *converter) lose(server, n *node, reason string) {
	c.left[n] = reason
	c.errors[n] = true
	if server != nil {
		c.lost[server] = true
	}
}

// severity returns the effect of a directive that is not converted.
func (c *converter) severity(n *node, reason string) draft.Severity {
	switch {
	case c.errors[n]:
		return draft.Error
	case slices.Contains(harmless, reason):
		return draft.Note
	}
	return draft.Warning
}

// from returns a directive and its position.
func from(n *node) string { return n.name() + ", " + n.at.Brief() }

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

// seconds reads a time as keepalived writes it: seconds, with or without decimals.
func seconds(s string) (time.Duration, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e9 {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)).Round(time.Millisecond), true
}

// walk visits the directives that are not converted. Of a block that is not converted it
// visits only the block.
func (c *converter) walk(in *node, visit func(*node, string)) {
	for _, n := range in.block {
		d, _ := lookup(n.in, n.name())
		reason, left := c.left[n]
		switch {
		case n.isUnknown:
			visit(n, "keepalived has no such directive "+place(n.in))
			continue
		case left:
			visit(n, reason)
		case c.done[n] || n.in == entries:
		case d.opens == entries, d.opens == "", d.key == "" && n.name() != "global_defs":
			visit(n, d.reason)
			continue
		}
		if !left {
			c.walk(n, visit)
		}
	}
}
