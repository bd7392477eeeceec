package k8ssync

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// fieldManager is the name of weir as an owner of fields.
const fieldManager = "weir"

// applied is a status for server-side apply: weir owns its fields, and those that weir
// owned before and that are not in it are removed. UID and resourceVersion are those of
// the decision: another Service of the name is never written, and a suspended writer does
// not undo a later decision. An empty status is left out: {} would be a field of weir's,
// too.
type applied struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   appliedMeta   `json:"metadata"`
	Status     appliedStatus `json:"status,omitzero"`
}

type appliedMeta struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

type appliedStatus struct {
	LoadBalancer *appliedIngress    `json:"loadBalancer,omitempty"`
	Conditions   []metav1.Condition `json:"conditions,omitempty"`
}

// appliedIngress are the addresses: [] removes those of other owners, too.
type appliedIngress struct {
	Ingress []corev1.LoadBalancerIngress `json:"ingress"`
}

// addrs returns the addresses of an applied status.
func (a *applied) addrs() []netip.Addr {
	if a.Status.LoadBalancer == nil {
		return nil
	}
	var out []netip.Addr
	for _, i := range a.Status.LoadBalancer.Ingress {
		out = append(out, netip.MustParseAddr(i.IP))
	}
	return out
}

// statusWriter writes the statuses of Services of one cluster.
type statusWriter struct {
	*providerState
	m *member
}

// run writes statuses until ctx or the member ends.
func (p statusWriter) run(ctx context.Context) {
	for {
		k, over := p.m.queue.Get()
		if over {
			return
		}
		p.write(ctx, k)
		p.m.queue.Done(k)
	}
}

// write makes the status of one Service the wanted one.
func (p statusWriter) write(ctx context.Context, k key) {
	m := p.m
	if p.refetch(ctx, k) {
		return
	}
	var s *service
	var body *applied
	var wait time.Duration
	p.locked(func() { s, body, wait = p.next(k) })
	switch {
	case wait > 0:
		m.queue.AddAfter(k, wait)
		return
	case body == nil:
		return
	}
	version, err := m.cluster.applyStatus(ctx, k, body, p.timing.request)
	late := apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	p.locked(func() {
		delete(m.errs, k)
		switch {
		case err != nil && ctx.Err() == nil:
			p.counters.Errors++
		case err == nil && m.service(k) != nil:
			p.wrote(m.status(k), body, version)
		}
		if err != nil && !late && m.service(k) != nil {
			m.errs[k] = err
			m.queue.AddAfter(k, max(m.backoff.When(k), requestedDelay(err)))
		} else {
			m.backoff.Forget(k)
		}
	})
	switch {
	case err == nil:
		p.report(s, body)
	case late:
		// It has changed, or is gone: the watch brings that, with another decision. A
		// retry follows in any case.
		m.queue.AddAfter(k, p.timing.last)
	}
	p.update()
}

// refetch reads a Service that the watch does not show, and reports whether it is gone.
func (p statusWriter) refetch(ctx context.Context, k key) bool {
	m := p.m
	p.mu.Lock()
	hidden := m.hidden[k] != nil
	p.mu.Unlock()
	if !hidden {
		return false
	}
	s, err := m.cluster.fetch(ctx, k, p.timing.request)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.hidden[k] == nil: // the watch shows it by now
	case err != nil:
		m.queue.AddAfter(k, m.backoff.When(k))
	case s == nil:
		delete(m.hidden, k)
		p.alloc.Delete(m.id(k))
		m.drop(k)
		p.update()
		return true
	default:
		p.hide(m, s)
		m.queue.AddAfter(k, p.timing.hidden)
	}
	return false
}

// next returns the status to write now, none, or the time to wait before it. p.mu is held.
func (p statusWriter) next(k key) (*service, *applied, time.Duration) {
	m := p.m
	s, w := m.service(k), m.statuses[k]
	if s == nil || !p.writer() {
		delete(m.errs, k) // no box must write it, or another one does
		return nil, nil, 0
	}
	body := &applied{
		APIVersion: "v1", Kind: "Service",
		Metadata: appliedMeta{s.Name, s.Namespace, s.UID, s.Version},
	}
	if m.manages(k) {
		d := ipam.Decision{}
		if w != nil {
			d = w.decision
		}
		if d.UID != s.UID || d.Version != s.Version || !d.Apply || len(d.Addrs) == 0 && d.Pending.Reason == "" {
			return nil, nil, 0 // it is decided again
		}
		body.Status = p.cfg.status(m.conditionType(), s, d)
	}
	if s.matches(body.Status) {
		if w != nil {
			w.since = time.Time{}
		}
		if m.errs[k] != nil {
			delete(m.errs, k)
			m.backoff.Forget(k)
			p.update()
		}
		return nil, nil, 0
	}
	if w == nil {
		w = m.status(k)
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	if w.wrote == body.Status.text() {
		if version(s.Version) < w.version || w.version == 0 {
			return nil, nil, 0 // the watch has not brought the last write yet
		}
		if w.again.IsZero() {
			w.again = time.Now().Add(m.conflicts.When(k))
		}
		if wait := time.Until(w.again); wait > 0 {
			return nil, nil, wait
		}
		w.again = time.Time{}
	} else {
		m.conflicts.Forget(k)
	}
	return s, body, 0
}

// status returns the wanted status of a managed Service.
func (cfg *ProviderConfig) status(conditionType string, s *service, d ipam.Decision) appliedStatus {
	c := conditionOf(d, s.Condition)
	since := s.Condition.Since
	if s.Condition.Status != c.Status {
		since = time.Now()
	}
	out := appliedStatus{Conditions: []metav1.Condition{{
		Type: conditionType, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		LastTransitionTime: metav1.NewTime(since.UTC().Truncate(time.Second)),
	}}}
	if len(d.Addrs)+len(s.assigned()) == 0 {
		return out
	}
	mode := corev1.LoadBalancerIPModeVIP
	if cfg.IPMode == ModeProxy {
		mode = corev1.LoadBalancerIPModeProxy
	}
	out.LoadBalancer = &appliedIngress{Ingress: []corev1.LoadBalancerIngress{}}
	for _, a := range d.Addrs {
		out.LoadBalancer.Ingress = append(out.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return out
}

// reasonAssigned is a reason of the condition, beside those of ipam.
const reasonAssigned = "Assigned"

// conditionOf returns the condition for a Decision: True if the Service has all that it
// requests. The nearest available address changes with other Services, for all pending ones
// at a time: by itself it is no reason to replace the condition that the Service had.
func conditionOf(d ipam.Decision, had condition) condition {
	c := condition{Status: "True", Reason: reasonAssigned, Message: addrText(d.Addrs)}
	for _, n := range d.Notes {
		if n.Reason == ipam.OutsidePool {
			c.Reason = n.Reason.CamelCase()
		}
	}
	if d.Pending.Reason != "" {
		c = condition{Status: "False", Reason: d.Pending.Reason.CamelCase(), Message: d.Pending.Rule}
	}
	for _, n := range d.Notes {
		c.Message += "; " + n.Text
	}
	c.Message = forTenant(c.Message, d.Service)
	if near := d.Pending.Near; near != "" {
		c.Message += "; "
		old, same := strings.CutPrefix(had.Message, c.Message)
		if same && had.Status == c.Status && had.Reason == c.Reason && !strings.Contains(old, "; ") {
			near = old
		}
		c.Message += near
	}
	c.Message = cut(c.Message, maxMessage)
	return c
}

// addrText returns addresses as text.
func addrText(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// matches reports whether a Service has a status.
func (s *service) matches(want appliedStatus) bool {
	var c condition
	if len(want.Conditions) > 0 {
		w := want.Conditions[0]
		c = condition{string(w.Status), w.Reason, w.Message, s.Condition.Since}
	}
	if !s.Condition.equal(c) {
		return false
	}
	if want.LoadBalancer == nil {
		// There are no addresses, or those of another controller, or they went with the condition.
		return true
	}
	var vips, proxied []netip.Addr
	for _, i := range want.LoadBalancer.Ingress {
		if a := netip.MustParseAddr(i.IP); *i.IPMode == corev1.LoadBalancerIPModeVIP {
			vips = append(vips, a)
		} else {
			proxied = append(proxied, a)
		}
	}
	return !s.Named && slices.Equal(s.Ingress, vips) && slices.Equal(s.Proxied, proxied)
}

// text returns the status without its times.
func (s appliedStatus) text() string {
	for i := range s.Conditions {
		s.Conditions = slices.Clone(s.Conditions)
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	b, _ := json.Marshal(s) //nolint:errcheck // only strings
	return string(b)
}

// wrote records a write. p.mu is held.
func (p statusWriter) wrote(w *wantedStatus, body *applied, version uint64) {
	now := time.Now()
	w.wrote, w.version, w.again = body.Status.text(), version, time.Time{}
	p.counters.StatusWrites++
	if !w.since.IsZero() && len(body.addrs()) > 0 {
		p.latencies = append(p.latencies, now.Sub(w.since))
		if n := len(p.latencies) - maxLatencies; n > 0 {
			p.latencies = slices.Delete(p.latencies, 0, n)
		}
	}
	w.since = time.Time{}
}

// maxLatencies limits the result of TakeLatencies.
const maxLatencies = 1000

// report writes Events for a status that was written over s.
func (p statusWriter) report(s *service, body *applied) {
	had, has := s.assigned(), body.addrs()
	event := func(r lb.Reason, normal bool, text string) {
		p.m.event(subject{key: s.key, uid: s.UID, reason: r, text: text, normal: normal})
	}
	gained, lost := without(has, had), without(had, has)
	if s.Condition == (condition{}) && body.Status.LoadBalancer == nil {
		lost = nil // of another controller
	}
	p.locked(func() {
		p.counters.Assigned += uint64(len(gained))
	})
	p.log.Info("status written", "cluster", p.m.name, "service", s.String(), "addresses", addrText(has))
	if len(gained) > 0 {
		event(eventAssigned, true, "assigned "+addrText(gained))
	}
	if len(lost) > 0 {
		event(eventReleased, true, addrText(lost)+" is no longer this Service's")
	}
	if len(body.Status.Conditions) == 0 {
		return
	}
	c := body.Status.Conditions[0]
	switch {
	case c.Reason == s.Condition.Reason && c.Message == s.Condition.Message:
	case c.Status == "False":
		event(eventPending, false, c.Reason+": "+c.Message)
	case c.Reason == ipam.OutsidePool.CamelCase():
		event(eventOutsidePool, false, c.Message)
	}
}
