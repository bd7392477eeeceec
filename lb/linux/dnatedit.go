package linux

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"weir/lb"
)

// text is what iptables-restore --noflush has to be told to turn portals into what
// they will be: nothing but what differs, "" if nothing does.
func (d *dnat) text(next map[lb.Frontend]*portal) string {
	e := natEdit{pinned: d.pinned}
	for _, f := range slices.SortedFunc(maps.Keys(next), lb.Frontend.Compare) {
		led := e.portal(d, f, next[f])
		switch way := d.way(f).String(); {
		case led && next[f] == nil:
			fmt.Fprintf(&e.ways, "-D %s %s\n", d.dispatch(), way)
		case led || next[f] == nil:
		case f.Mark != 0:
			fmt.Fprintf(&e.ways, "-I %s 1 %s\n", d.dispatch(), way)
		default:
			fmt.Fprintf(&e.ways, "-A %s %s\n", d.dispatch(), way)
		}
	}
	if !d.there && e.ways.Len() > 0 {
		e.declare(d.dispatch())
	}
	return e.String()
}

// natEdit is a change of table nat.
type natEdit struct {
	pinned                     map[string]bool
	chains, rules, ways, going bytes.Buffer
}

// declare makes a chain, or empties it.
func (e *natEdit) declare(name string) { fmt.Fprintf(&e.chains, ":%s - [0:0]\n", name) }

// remove empties a chain and deletes it. Until then it is there in any case.
func (e *natEdit) remove(name string) {
	e.declare(name)
	if !e.pinned[name] {
		fmt.Fprintf(&e.going, "-X %s\n", name)
	}
}

// portal writes the chains of f that differ, and tells whether VIRTUAL-SERVERS
// leads to it so far.
func (e *natEdit) portal(d *dnat, f lb.Frontend, to *portal) (led bool) {
	have := map[string][]string{}
	from, held := d.portals[f]
	led, damaged := d.damaged[f]
	if held {
		led = led || !damaged
		for _, c := range d.chains(from) {
			have[c.name] = c.rules
		}
	}
	if to != nil {
		for _, c := range d.chains(*to) {
			if was, ok := have[c.name]; !ok || damaged || !slices.Equal(was, c.rules) {
				e.declare(c.name)
				for _, spec := range c.rules {
					fmt.Fprintf(&e.rules, "-A %s %s\n", c.name, spec)
				}
			}
			delete(have, c.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		e.remove(name)
	}
	return led
}

func (e *natEdit) String() string {
	if e.chains.Len()+e.ways.Len() == 0 {
		return ""
	}
	return "*nat\n" + e.chains.String() + e.rules.String() + e.ways.String() + e.going.String() + "COMMIT\n"
}
