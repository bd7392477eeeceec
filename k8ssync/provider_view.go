package k8ssync

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// Status is safe for concurrent use. It costs some work for each Service that wants
// an address.
func (p *Provider) Status() ProviderStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status()
	s.Claims, s.Decisions = p.alloc.Claims(), p.decisions()
	for _, d := range s.Decisions {
		s.countPending(d)
	}
	return s
}

// Summary returns Status without Claims and Decisions. It also returns the Notes of all
// Services about addresses, sorted: address-pending, outside-pool and others. Every box has
// them. It costs less than Status, and is safe for concurrent use.
func (p *Provider) Summary() (ProviderStatus, []lb.Note) {
	p.mu.Lock()
	s := p.status()
	var notes []lb.Note
	r := p.reader()
	for m, k := range p.managed() {
		d := r.choice(m, k)
		s.countPending(d)
		notes = appendNotes(notes, d)
	}
	p.mu.Unlock()
	slices.SortFunc(notes, lb.Note.Compare)
	return s, slices.Compact(notes)
}

// Counters returns those of Status, at a cost that does not depend on the number of
// Services. It is safe for concurrent use.
func (p *Provider) Counters() ProviderCounters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters
}

// status returns what Status has besides claims and Services. p.mu is held.
func (p *Provider) status() ProviderStatus {
	s := ProviderStatus{
		LeaseCluster: p.cfg.LeaseCluster, Namespace: p.cfg.Namespace, Identity: p.cfg.Identity,
		Writer: p.election.writer(time.Now()), Writing: p.writer(),
		Known: p.claims.current().listed,
		Usage: p.alloc.Usage(), Counters: p.counters, Clusters: p.problems(), IgnoredNodes: p.ignoredNodes(),
	}
	if s.Writer != "" {
		s.Since = p.election.since
	}
	if s.Error = p.alloc.Obstacle(); !s.Writing {
		s.Error = p.obstacle()
	}
	s.Usage.Pending = map[ipam.Reason]int{} // as the writer has them, whichever box it is
	return s
}

func (s *ProviderStatus) countPending(d Decision) {
	if d.Pending.Reason != "" {
		s.Usage.Pending[d.Pending.Reason]++
	}
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
		if reason := m.problem(); reason != "" {
			out[name] = reason
		}
	}
	if reason := p.claimProblem(); reason != "" && out[p.cfg.LeaseCluster] == "" {
		out[p.cfg.LeaseCluster] = reason
	}
	return out
}

// ignoredNodes returns Status.IgnoredNodes. p.mu is held.
func (p *Provider) ignoredNodes() map[string]IgnoredNodes {
	out := map[string]IgnoredNodes{}
	for name, m := range p.members {
		out[name] = m.ignored.IgnoredNodes
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
	if limit := p.alloc.ClaimProblem(); limit != "" {
		return limit
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
	for m, k := range p.managed() {
		out = append(out, r.decision(m, k))
	}
	slices.SortFunc(out, func(a, b Decision) int { return a.Service.Compare(b.Service) })
	return out
}

// managed are the Services that get addresses. p.mu is held.
func (p *Provider) managed() iter.Seq2[*member, key] {
	return func(yield func(*member, key) bool) {
		for _, m := range p.members {
			for k := range m.services {
				if m.manages(k) && !yield(m, k) {
					return
				}
			}
		}
	}
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
	for _, reason := range ipam.Reasons() {
		r.reasons[reason.CamelCase()] = reason
	}
	return r
}

// decided returns the decision of this box for a Service; nil if the one that the status
// shows counts.
func (r decisionReader) decided(m *member, k key) *ipam.Decision {
	if w := m.statuses[k]; r.writer && w != nil && w.decision.Apply {
		return &w.decision
	}
	return nil
}

// written reports whether a Service's status has the decision.
func (r decisionReader) written(m *member, k key) bool {
	s, d := m.services[k], r.decided(m, k)
	if d == nil {
		return s.Condition != (condition{})
	}
	return d.UID == s.UID && d.Version == s.Version &&
		s.Condition.Status == conditionOf(*d, s.Condition).Status && s.matches(r.cfg.status(m.conditionType(), s, *d))
}

// decision returns the decision of the writer, or the one that the status shows.
func (r decisionReader) decision(m *member, k key) Decision {
	d := r.choice(m, k)
	d.Written = r.written(m, k)
	return d
}

// choice is decision without Written, which costs the most.
func (r decisionReader) choice(m *member, k key) Decision {
	id := m.id(k)
	out := Decision{Service: id}
	if err := r.claimErrors[id]; err != nil {
		out.Error = err.Error()
	}
	if d := r.decided(m, k); d != nil {
		out.Addrs, out.Pending, out.Notes = d.Addrs, d.Pending, d.Notes
		if err := m.errs[k]; err != nil {
			out.Error = err.Error()
		}
		return out
	}
	r.asWritten(&out, m.services[k])
	return out
}

// asWritten reads a decision from a Service's status.
func (r decisionReader) asWritten(out *Decision, s *service) {
	c := s.Condition
	if c != (condition{}) {
		out.Addrs = s.assigned()
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
	if reason := p.obstacle(); reason != "" {
		return fmt.Sprintf("no address is assigned while the lease cluster %s can't be written to: %s", p.cfg.LeaseCluster, reason)
	}
	return fmt.Sprintf("no box has the lease %s in namespace %s of cluster %s yet", writerLease, p.cfg.Namespace, p.cfg.LeaseCluster)
}

// appendNotes appends the Notes of a decision.
func appendNotes(out []lb.Note, d Decision) []lb.Note {
	if d.Pending.Reason != "" {
		out = append(out, lb.Note{Service: d.Service, Reason: lb.AddressPending, Text: string(d.Pending.Reason) + ": " + d.Pending.Text()})
	} else if d.Error != "" && len(d.Addrs) == 0 {
		out = append(out, lb.Note{Service: d.Service, Reason: lb.AddressPending, Text: d.Error})
	}
	for _, n := range d.Notes {
		out = append(out, lb.Note{Service: d.Service, Reason: noteReason(n.Reason), Text: n.Text})
	}
	return out
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
