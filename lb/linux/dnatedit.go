package linux

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"weir/lb"
)

// plan returns the NAT services that ops change, in their new state; nil is a deletion.
func (d *dnat) plan(ops []lb.Op) (next map[lb.Frontend]*natService, errs []error) {
	next, errs = map[lb.Frontend]*natService{}, make([]error, len(ops))
	for i, op := range ops {
		f := serverOf(op.Object)
		p, planned := next[f]
		if !planned {
			if now, held := d.services[f]; held {
				now = now.clone()
				p = &now
			}
		}
		if p, errs[i] = changed(p, op); errs[i] == nil {
			next[f] = p
		}
	}
	return next, errs
}

// plainName matches the names of schedulers.
var plainName = regexp.MustCompile(`^[a-z0-9_-]{1,15}$`)

// changed returns the state of a NAT service after op; nil if there is none.
func changed(p *natService, op lb.Op) (*natService, error) {
	switch o := op.Object.(type) {
	case lb.VirtualServer:
		switch {
		case op.Verb == lb.Delete:
			return nil, nil
		case !plainName.MatchString(o.Scheduler.Name):
			return p, fmt.Errorf("%q is no scheduler", o.Scheduler.Name)
		case o.Frontend.Given:
			return p, fmt.Errorf("%s: a given firewall mark needs IPVS", o)
		case o.Mask != 0:
			return p, fmt.Errorf("%s: affinity of networks needs IPVS", o)
		case p == nil:
			return &natService{server: o}, nil
		}
		p.server = o
	case lb.RealServer:
		switch {
		case op.Verb == lb.Delete && p != nil:
			p.remove(o.Addr)
		case op.Verb == lb.Delete:
		case p == nil:
			return nil, errors.New("its virtual server is missing")
		case lb.FamilyOf(o.Addr.Addr()) != lb.FamilyOf(o.Frontend.Addr):
			return p, fmt.Errorf("a backend can't be of another family without IPVS")
		case o.Addr.Port() == 0:
			return p, fmt.Errorf("%s: a group of ports needs IPVS", o)
		case o.Forward != lb.Masquerading:
			return p, fmt.Errorf("%s: this forwarding method needs IPVS", o)
		default:
			p.add(o)
		}
	}
	return p, nil
}

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
