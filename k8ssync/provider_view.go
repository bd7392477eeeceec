package k8ssync

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// Status is safe for concurrent use. It costs some work for each Service that wants
// an address.
func (p *Provider) Status() ProviderStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := ProviderStatus{
		LeaseCluster: p.cfg.LeaseCluster, Namespace: p.cfg.Namespace, Identity: p.cfg.Identity,
		Writer: p.election.writer(now), Writing: p.writer(),
		Known: p.claims.current().listed,
		Usage: p.alloc.Usage(), Claims: p.alloc.Claims(),
		Decisions: p.decisions(), Counters: p.counters,
	}
	if s.Writer != "" {
		s.Since = p.election.since
	}
	if !s.Writing {
		s.Error = p.obstacle()
	}
	s.Clusters = p.problems()
	s.Usage.Pending = map[ipam.Reason]int{} // as the writer has them, whichever box it is
	for _, d := range s.Decisions {
		if d.Pending.Reason != "" {
			s.Usage.Pending[d.Pending.Reason]++
		}
	}
	return s
}

// changedView reports whether Status or Notes have changed since its last call. It does
// not check each Service: changes of one call update.
func (p *Provider) changedView() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := overview{
		writer: p.election.writer(time.Now()), since: p.election.since.UnixNano(),
		writing: p.writer(), known: p.claims.current().listed,
		obstacle: p.obstacle(), problems: fmt.Sprint(p.problems()),
	}
	changed := p.updated.Swap(false) || o != p.reported
	p.reported = o
	return changed
}

// problems returns Status.Clusters. p.mu is held.
func (p *Provider) problems() map[string]string {
	out := map[string]string{}
	for name, m := range p.members {
		if why := m.problem(); why != "" {
			out[name] = why
		}
	}
	if why := p.claimProblem(); why != "" && out[p.cfg.LeaseCluster] == "" {
		out[p.cfg.LeaseCluster] = why
	}
	return out
}

// obstacle returns the error that prevents this box from becoming the writer.
func (p *Provider) obstacle() string {
	switch {
	case len(p.cfg.IPAM.Pools) == 0:
		return ""
	case p.election.err != nil:
		return p.election.err.Error()
	case p.claims.current().err != nil:
		return p.claims.current().err.Error()
	case !p.claims.current().listed:
		return "the claims have not been read yet"
	}
	return ""
}

// claimProblem returns the error of the watch of claims, or that of the write of one: it is
// mostly the same for all.
func (p *Provider) claimProblem() string {
	if p.claims.current().err != nil {
		return p.claims.current().err.Error()
	}
	return first(p.claimErrors, lb.ServiceID.Compare)
}

// first returns the text of the error of the first key; "" if there is none.
func first[K comparable](errs map[K]error, compare func(a, b K) int) string {
	if len(errs) == 0 {
		return ""
	}
	return errs[slices.MinFunc(slices.Collect(maps.Keys(errs)), compare)].Error()
}

// problem returns why statuses of a cluster can't be written, or why it is not synced.
func (m *member) problem() string {
	switch {
	case !m.synced:
		if err := m.cluster.complete(); err != nil {
			return err.Error()
		}
		return errNotRead.Error()
	}
	return first(m.errs, key.compare)
}

// Decision returns the decision for a Service; false is none: weir does not manage its
// addresses, or does not know it yet.
func (p *Provider) Decision(id lb.ServiceID) (Decision, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, k := p.members[id.Source], key{id.Namespace, id.Name}
	if m == nil || !m.manages(k) {
		return Decision{}, false
	}
	return p.reader().decision(m, k), true
}

// decisions returns those of all managed Services. p.mu is held.
func (p *Provider) decisions() []Decision {
	var out []Decision
	r := p.reader()
	for _, m := range p.members {
		for k := range m.services {
			if m.manages(k) {
				out = append(out, r.decision(m, k))
			}
		}
	}
	slices.SortFunc(out, func(a, b Decision) int { return a.Service.Compare(b.Service) })
	return out
}

// decisionReader has what the decisions of many Services have in common: clocks are slow on
// some kernels.
type decisionReader struct {
	*Provider
	writer    bool // this box writes
	anyWriter bool
	reasons   map[string]ipam.Reason
}

// reader returns a decisionReader for as long as p.mu is held.
func (p *Provider) reader() decisionReader {
	r := decisionReader{Provider: p, writer: p.writer(), reasons: map[string]ipam.Reason{}}
	r.anyWriter = r.writer || p.election.writer(time.Now()) != ""
	for _, why := range ipam.Reasons() {
		r.reasons[why.CamelCase()] = why
	}
	return r
}

// decision returns the decision of the writer, or the one that the status shows.
func (r decisionReader) decision(m *member, k key) Decision {
	s, w, id := m.services[k], m.statuses[k], m.id(k)
	out := Decision{Service: id}
	if err := r.claimErrors[id]; err != nil {
		out.Error = err.Error()
	}
	if r.writer && w != nil && w.decision.Apply {
		d := w.decision
		out.Addrs, out.Pending, out.Notes = d.Addrs, d.Pending, d.Notes
		if d.UID == s.UID && d.Version == s.Version {
			out.Written = s.Condition.Status == conditionOf(d, s.Condition).Status && s.matches(r.cfg.status(m.conditionType(), s, d))
		}
		if err := m.errs[k]; err != nil {
			out.Error = err.Error()
		}
		return out
	}
	r.asWritten(&out, s)
	return out
}

// asWritten reads a decision from a Service's status.
func (r decisionReader) asWritten(out *Decision, s *service) {
	c := s.Condition
	if c != (condition{}) {
		out.Addrs, out.Written = s.assigned(), true
		slices.SortFunc(out.Addrs, netip.Addr.Compare)
	}
	reason := r.reasons[c.Reason] // empty for a reason that is not ipam's
	switch {
	case c.Status == "False":
		out.Pending = ipam.Pending{Reason: reason, Rule: c.Message}
	case c.Status == "True" && reason != "":
		out.Notes = []ipam.Note{{Service: out.Service, Reason: reason, Text: c.Message}}
	case c.Status == "True" || r.anyWriter:
	default:
		out.Pending = ipam.Pending{Reason: ipam.NoWriter, Rule: r.noWriter()}
	}
}

// noWriter returns why no address is assigned now.
func (p *Provider) noWriter() string {
	if why := p.obstacle(); why != "" {
		return fmt.Sprintf("no address is assigned while the lease cluster %s can't be written to: %s", p.cfg.LeaseCluster, why)
	}
	return fmt.Sprintf("no box has the lease %s in namespace %s of cluster %s yet", writerLease, p.cfg.Namespace, p.cfg.LeaseCluster)
}

// Notes returns the Notes of all Services about addresses, sorted: address-pending,
// outside-pool and others. Every box has them.
func (p *Provider) Notes() []lb.Note {
	p.mu.Lock()
	all := p.decisions()
	p.mu.Unlock()
	var out []lb.Note
	for _, d := range all {
		if d.Pending.Reason != "" {
			out = append(out, lb.Note{Service: d.Service, Reason: lb.AddressPending, Text: string(d.Pending.Reason) + ": " + d.Pending.Text()})
		} else if d.Error != "" && len(d.Addrs) == 0 {
			out = append(out, lb.Note{Service: d.Service, Reason: lb.AddressPending, Text: d.Error})
		}
		for _, n := range d.Notes {
			out = append(out, lb.Note{Service: d.Service, Reason: noteReason(n.Reason), Text: n.Text})
		}
	}
	slices.SortFunc(out, func(a, b lb.Note) int {
		return cmp.Or(a.Service.Compare(b.Service), strings.Compare(string(a.Reason), string(b.Reason)), strings.Compare(a.Text, b.Text))
	})
	return slices.Compact(out)
}

// noteReason returns lb's reason for one of ipam's.
func noteReason(r ipam.Reason) lb.Reason {
	switch r {
	case ipam.OutsidePool:
		return lb.OutsidePool
	case ipam.FamilyLeft:
		return lb.FamilyLeft
	}
	return lb.Conflict
}
