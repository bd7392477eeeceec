package linux

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"weir/lb"
)

// text returns the input of iptables-restore --noflush that changes NAT services to their new
// state: only the differences, "" without any.
func (d *dnat) text(next map[lb.Frontend]*natService) string {
	e := natEdit{referenced: d.referenced}
	for _, f := range slices.SortedFunc(maps.Keys(next), lb.Frontend.Compare) {
		dispatched := e.service(d, f, next[f])
		switch rule := d.dispatchRule(f).String(); {
		case dispatched && next[f] == nil:
			fmt.Fprintf(&e.jumps, "-D %s %s\n", d.dispatch(), rule)
		case dispatched || next[f] == nil:
		case f.Mark != 0:
			fmt.Fprintf(&e.jumps, "-I %s 1 %s\n", d.dispatch(), rule)
		default:
			fmt.Fprintf(&e.jumps, "-A %s %s\n", d.dispatch(), rule)
		}
	}
	if !d.dispatches && e.jumps.Len() > 0 {
		e.declare(d.dispatch())
	}
	return e.String()
}

// natEdit is a change of table nat.
type natEdit struct {
	referenced                      map[string]bool
	chains, rules, jumps, deletions bytes.Buffer
}

// declare creates a chain, or empties it.
func (e *natEdit) declare(name string) { fmt.Fprintf(&e.chains, ":%s - [0:0]\n", name) }

// remove empties a chain and deletes it. It may be missing.
func (e *natEdit) remove(name string) {
	e.declare(name)
	if !e.referenced[name] {
		fmt.Fprintf(&e.deletions, "-X %s\n", name)
	}
}

// service writes the chains of f that differ, and reports whether VIRTUAL-SERVERS jumps to it
// so far.
func (e *natEdit) service(d *dnat, f lb.Frontend, to *natService) (dispatched bool) {
	have := map[string][]string{}
	from, held := d.services[f]
	dispatched, damaged := d.damaged[f]
	if held {
		dispatched = dispatched || !damaged
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
	return dispatched
}

func (e *natEdit) String() string {
	if e.chains.Len()+e.jumps.Len() == 0 {
		return ""
	}
	return "*nat\n" + e.chains.String() + e.rules.String() + e.jumps.String() + e.deletions.String() + "COMMIT\n"
}
