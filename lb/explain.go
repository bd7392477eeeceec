package lb

import (
	"cmp"
	"fmt"
	"strings"
)

// Explain returns the result of a new connection, by the last known state of the kernel. It is
// right after Adopt or a Sync. It reads everything: its cost is the size of the box.
func (r *Reconciler) Explain(q Query) Explanation { return r.ExplainAll([]Query{q})[0] }

// ExplainAll answers several queries for little more than the cost of one.
func (r *Reconciler) ExplainAll(queries []Query) []Explanation {
	notes := map[ServiceID][]Note{}
	for _, n := range r.Notes() {
		notes[n.Service] = append(notes[n.Service], n)
	}
	out := make([]Explanation, len(queries))
	for i, q := range queries {
		x := explainer{claimants: &claimants{
			question: &question{model: r.model, Query: q, device: r.opts.Base.Device, f: q.Frontend, face: q.Frontend},
			notes:    notes,
		}}
		out[i] = x.explain(&r.failed)
	}
	return out
}

// explainer follows the packet of a question and records its steps.
type explainer struct {
	*claimants
	e      Explanation
	direct bool // all backends that take connections are direct
}

func (x *explainer) explain(failed *failures) Explanation {
	x.e.Frontend = x.f.String()
	x.e.From = x.from()
	if x.Client.IsValid() {
		x.e.Client = x.Client.String()
	}
	x.find()
	x.e.Claims, x.e.Notes = x.list, x.noted
	x.walk()
	all := candidates{x.claimants, failed}
	x.e.Candidates = all.list()
	if x.e.Fate != Served {
		x.e.Source = ""
		x.e.Reason = x.reason()
		x.e.Nearest = x.nearest()
	}
	x.survival()
	return x.e
}

func (x *explainer) step(name string, object fmt.Stringer, format string, args ...any) {
	s := Step{Name: name, Result: fmt.Sprintf(format, args...)}
	if object != nil {
		s.Object = object.String()
	}
	if m, ok := object.(Member); ok { // the name that ipset list shows
		name := m.Set.Name(cmp.Or(x.Names.Prefix, "KUBE"), m.Family())
		s.Object = strings.Replace(s.Object, m.Set.String(), name, 1)
	}
	x.e.Steps = append(x.e.Steps, s)
}

// end records the last step of a packet.
func (x *explainer) end(fate Fate, name string, object fmt.Stringer, format string, args ...any) {
	x.e.Fate = fate
	x.step(name, object, format, args...)
}
