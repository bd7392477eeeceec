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
		Home: p.cfg.Home, Namespace: p.cfg.Namespace, Identity: p.cfg.Identity,
		Writer: p.election.writer(now), Writing: p.writer(),
		Known: p.claims.listed,
		Usage: p.alloc.Usage(), Claims: p.alloc.Claims(),
		Decisions: p.decisions(), Counters: p.counters,
	}
	if s.Writer != "" {
		s.Since = p.election.since
	}
	if !s.Writing {
		s.Error = p.hindered()
	}
	s.Clusters = p.troubles()
	s.Usage.Pending = map[ipam.Reason]int{} // the writer's, whichever box it is
	for _, d := range s.Decisions {
		if d.Pending.Reason != "" {
			s.Usage.Pending[d.Pending.Reason]++
		}
	}
	return s
}

// glance is what Status says of all together, and what may change without anybody's
// saying so, such as by time.
type glance struct {
	writer         string
	since          int64
	writing, known bool
	hindered       string
	troubles       string
}

// noticed tells whether Status or Notes say something else than at its last call. It
// does not look at each Service: who changes something of one calls news.
func (p *Provider) noticed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := glance{
		writer: p.election.writer(time.Now()), since: p.election.since.UnixNano(),
		writing: p.writer(), known: p.claims.listed,
		hindered: p.hindered(), troubles: fmt.Sprint(p.troubles()),
	}
	news := p.fresh.Swap(false) || g != p.seen
	p.seen = g
	return news
}

// troubles are what Status says of Clusters. p.mu is held.
func (p *Provider) troubles() map[string]string {
	out := map[string]string{}
	for name, m := range p.members {
		if why := m.trouble(); why != "" {
			out[name] = why
		}
	}
	if why := p.claimTrouble(); why != "" && out[p.cfg.Home] == "" {
		out[p.cfg.Home] = why
	}
	return out
}

// hindered tells what keeps this box from being the writer, should no other be it.
func (p *Provider) hindered() string {
	switch {
	case len(p.cfg.IPAM.Pools) == 0:
		return ""
	case p.election.err != nil:
		return p.election.err.Error()
	case p.claims.err != nil:
		return p.claims.err.Error()
	case !p.claims.listed:
		return "the claims have not been read yet"
	}
	return ""
}

// claimTrouble tells why claims can't be followed, or why one can't be written: of one
// Service, as it is mostly the same for all.
func (p *Provider) claimTrouble() string {
	if p.claims.err != nil {
		return p.claims.err.Error()
	}
	return first(p.claimErrors, lb.ServiceID.Compare)
}

// first gives the text of the error of the first key; "" if there is none.
func first[K comparable](errs map[K]error, compare func(a, b K) int) string {
	if len(errs) == 0 {
		return ""
	}
	return errs[slices.MinFunc(slices.Collect(maps.Keys(errs)), compare)].Error()
}

// trouble tells why statuses of a cluster can't be written, or it is not known.
func (m *member) trouble() string {
	switch {
	case !m.synced:
		if err := m.cluster.believable(); err != nil {
			return err.Error()
		}
		return errNotRead.Error()
	}
	return first(m.errs, key.compare)
}

// Decision tells what is decided for a Service; false is nothing: it is not one
// that weir gives addresses to, or it is not known yet.
func (p *Provider) Decision(id lb.ServiceID) (Decision, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, k := p.members[id.Source], key{id.Namespace, id.Name}
	if m == nil || !m.ours(k) {
		return Decision{}, false
	}
	return p.look().decision(m, k), true
}

// decisions are those of all Services of ours. p.mu is held.
func (p *Provider) decisions() []Decision {
	var out []Decision
	l := p.look()
	for _, m := range p.members {
		for k := range m.services {
			if m.ours(k) {
				out = append(out, l.decision(m, k))
			}
		}
	}
	slices.SortFunc(out, func(a, b Decision) int { return a.Service.Compare(b.Service) })
	return out
}

// look is what one asks once to look at many Services: clocks are slow on some kernels.
type look struct {
	*Provider
	mine    bool // this box is the writer
	some    bool // there is one
	reasons map[string]ipam.Reason
}

// look is for as long as p.mu is held.
func (p *Provider) look() look {
	l := look{Provider: p, mine: p.writer(), reasons: map[string]ipam.Reason{}}
	l.some = l.mine || p.election.writer(time.Now()) != ""
	for _, r := range ipam.Reasons() {
		l.reasons[r.CamelCase()] = r
	}
	return l
}

// decision is what the writer has decided, or what the status says of it.
func (l look) decision(m *member, k key) Decision {
	s, w, id := m.services[k], m.wants[k], m.id(k)
	out := Decision{Service: id}
	if err := l.claimErrors[id]; err != nil {
		out.Error = err.Error()
	}
	if l.mine && w != nil && w.decision.Apply {
		d := w.decision
		out.Addrs, out.Pending, out.Notes = d.Addrs, d.Pending, d.Notes
		if d.UID == s.UID && d.Version == s.Version {
			out.Written = s.Condition.Status == conditionOf(d).Status && s.says(l.cfg.status(s, d))
		}
		if err := m.errs[k]; err != nil {
			out.Error = err.Error()
		}
		return out
	}
	l.asWritten(&out, s)
	return out
}

// asWritten says what a Service's status does.
func (l look) asWritten(out *Decision, s *service) {
	c := s.Condition
	if c != (condition{}) {
		out.Addrs, out.Written = s.given(), true
		slices.SortFunc(out.Addrs, netip.Addr.Compare)
	}
	reason := l.reasons[c.Reason] // empty is none of ipam's
	switch {
	case c.Status == "False":
		out.Pending = ipam.Pending{Reason: reason, Text: c.Message}
	case c.Status == "True" && reason != "":
		out.Notes = []ipam.Note{{Service: out.Service, Reason: reason, Text: c.Message}}
	case c.Status == "True" || l.some:
	default:
		out.Pending = ipam.Pending{Reason: ipam.NoWriter, Text: l.noWriter()}
	}
}

// noWriter says why no address is given now.
func (p *Provider) noWriter() string {
	if why := p.hindered(); why != "" {
		return fmt.Sprintf("addresses are given when the home cluster %s can be written to: %s", p.cfg.Home, why)
	}
	return fmt.Sprintf("no box holds the lease %s in namespace %s of cluster %s yet", writerLease, p.cfg.Namespace, p.cfg.Home)
}

// Notes are what could not be done for Services, sorted: address-pending,
// pool-stranded and the like. Every box tells them, whoever writes.
func (p *Provider) Notes() []lb.Note {
	p.mu.Lock()
	all := p.decisions()
	p.mu.Unlock()
	var out []lb.Note
	for _, d := range all {
		if d.Pending.Reason != "" {
			out = append(out, lb.Note{Service: d.Service, Reason: lb.AddressPending, Text: string(d.Pending.Reason) + ": " + d.Pending.Text})
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

// noteReason gives lb's reason for one of ipam's.
func noteReason(r ipam.Reason) lb.Reason {
	switch r {
	case ipam.PoolStranded:
		return lb.PoolStranded
	case ipam.FamilyLeft:
		return lb.FamilyLeft
	}
	return lb.Conflict
}
