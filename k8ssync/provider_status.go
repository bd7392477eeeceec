package k8ssync

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weir/k8ssync/ipam"
)

// fieldManager is who weir is to the API server.
const fieldManager = "weir"

// applied is a status as weir applies it: what it says is weir's, and what weir said
// before and does not say any more goes. UID and resourceVersion are of what was
// read, so that nothing is written onto another Service of the name, nor by a writer
// that has slept while another decided otherwise. An empty status is left out: {} would
// be a field of weir's, too.
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
	LoadBalancer *corev1.LoadBalancerStatus `json:"loadBalancer,omitempty"`
	Conditions   []metav1.Condition         `json:"conditions,omitempty"`
}

// writeStatuses writes those of one cluster until ctx or the member ends.
func (p *Provider) writeStatuses(ctx context.Context, m *member) {
	for {
		k, over := m.queue.Get()
		if over {
			return
		}
		p.writeStatus(ctx, m, k)
		m.queue.Done(k)
	}
}

// writeStatus brings the status of one Service to what it is to be.
func (p *Provider) writeStatus(ctx context.Context, m *member, k key) {
	if p.relook(ctx, m, k) {
		return
	}
	var s *service
	var body *applied
	var wait time.Duration
	p.locked(func() { s, body, wait = p.next(m, k) })
	switch {
	case wait > 0:
		m.queue.AddAfter(k, wait)
		return
	case body == nil:
		return
	}
	version, err := m.apply(ctx, k, body, p.timing.request)
	late := apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	p.locked(func() {
		delete(m.errs, k)
		switch {
		case err != nil && ctx.Err() == nil:
			p.counters.Errors++
		case err == nil && m.service(k) != nil:
			p.wrote(m.want(k), body, version)
		}
		if err != nil && !late && m.service(k) != nil {
			m.errs[k] = err
			m.queue.AddAfter(k, max(m.backoff.When(k), asked(err)))
		} else {
			m.backoff.Forget(k)
		}
	})
	switch {
	case err == nil:
		p.tell(m, s, body)
	case late:
		// It has changed, or gone: the watch brings it, and it is decided again. Should
		// it bring nothing, it is tried again all the same.
		m.queue.AddAfter(k, p.timing.last)
	}
	p.news()
}

// relook looks at a Service that the watch does not show; true is that it has gone.
func (p *Provider) relook(ctx context.Context, m *member, k key) bool {
	p.mu.Lock()
	hidden := m.hidden[k] != nil
	p.mu.Unlock()
	if !hidden {
		return false
	}
	s, err := m.look(ctx, k, p.timing.request)
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
		p.news()
		return true
	default:
		m.hidden[k] = s
		m.queue.AddAfter(k, p.timing.hidden)
	}
	return false
}

// next gives what is to be written now, nothing, or how long to wait with it. p.mu is
// held.
func (p *Provider) next(m *member, k key) (*service, *applied, time.Duration) {
	s, w := m.service(k), m.wants[k]
	if s == nil || !p.writer() {
		delete(m.errs, k) // it is nobody's to write, or another box's
		return nil, nil, 0
	}
	body := &applied{
		APIVersion: "v1", Kind: "Service",
		Metadata: appliedMeta{s.Name, s.Namespace, s.UID, s.Version},
	}
	if m.ours(k) {
		d := ipam.Decision{}
		if w != nil {
			d = w.decision
		}
		if d.UID != s.UID || d.Version != s.Version || !d.Apply || len(d.Addrs) == 0 && d.Pending.Reason == "" {
			return nil, nil, 0 // it is decided again
		}
		body.Status = p.cfg.status(s, d)
	}
	if s.says(body.Status) {
		if w != nil {
			w.since = time.Time{}
		}
		if m.errs[k] != nil {
			delete(m.errs, k)
			m.backoff.Forget(k)
			p.news()
		}
		return nil, nil, 0
	}
	if w == nil {
		w = m.want(k)
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	if w.wrote == body.Status.text() {
		if version(s.Version) < w.version || w.version == 0 {
			return nil, nil, 0 // it is written, and the watch has not brought it yet
		}
		if w.again.IsZero() {
			w.again = time.Now().Add(m.fights.When(k))
		}
		if wait := time.Until(w.again); wait > 0 {
			return nil, nil, wait
		}
		w.again = time.Time{}
	} else {
		m.fights.Forget(k)
	}
	return s, body, 0
}

// status is what the status of a Service of ours is to be.
func (cfg *ProviderConfig) status(s *service, d ipam.Decision) appliedStatus {
	c := conditionOf(d)
	since := s.Condition.Since
	if s.Condition.Status != c.Status {
		since = time.Now()
	}
	out := appliedStatus{Conditions: []metav1.Condition{{
		Type: conditionType, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		LastTransitionTime: metav1.NewTime(since.UTC().Truncate(time.Second)),
	}}}
	if len(d.Addrs) == 0 {
		return out
	}
	mode := corev1.LoadBalancerIPModeVIP
	if cfg.IPMode == ModeProxy {
		mode = corev1.LoadBalancerIPModeProxy
	}
	out.LoadBalancer = &corev1.LoadBalancerStatus{}
	for _, a := range d.Addrs {
		out.LoadBalancer.Ingress = append(out.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return out
}

// Reasons of the condition beside those of ipam.
const reasonAssigned = "Assigned"

// conditionOf says a Decision as a condition: True, if the Service has what it asks
// for.
func conditionOf(d ipam.Decision) condition {
	var notes []string
	reason := reasonAssigned
	for _, n := range d.Notes {
		notes = append(notes, n.Text)
		if n.Reason == ipam.PoolStranded {
			reason = n.Reason.CamelCase()
		}
	}
	if d.Pending.Reason != "" {
		return condition{Status: "False", Reason: d.Pending.Reason.CamelCase(), Message: cut(strings.Join(append([]string{d.Pending.Text}, notes...), "; "), maxMessage)}
	}
	return condition{Status: "True", Reason: reason, Message: cut(strings.Join(append([]string{addrText(d.Addrs)}, notes...), "; "), maxMessage)}
}

// addrText writes addresses for people.
func addrText(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// says tells whether a Service's status is so already.
func (s *service) says(want appliedStatus) bool {
	var c condition
	if len(want.Conditions) > 0 {
		w := want.Conditions[0]
		c = condition{string(w.Status), w.Reason, w.Message, s.Condition.Since}
	}
	if !s.Condition.equal(c) {
		return false
	}
	if want.LoadBalancer == nil {
		// What is there is others', or was taken away when the condition was written.
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

// text is what it says, but for times.
func (s appliedStatus) text() string {
	for i := range s.Conditions {
		s.Conditions = slices.Clone(s.Conditions)
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	b, _ := json.Marshal(s) //nolint:errcheck // strings alone
	return string(b)
}

// apply writes a status, and gives the Service's resourceVersion.
func (m *member) apply(ctx context.Context, k key, body *applied, within time.Duration) (uint64, error) {
	l := m.cluster.borrow()
	if l == nil {
		return 0, fmt.Errorf("cluster %s: %w", m.name, errNotRead)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var out corev1.Service
	err = l.client.statuses.Patch(types.ApplyPatchType).Namespace(k.Namespace).Resource("services").Name(k.Name).SubResource("status").
		Param("fieldManager", fieldManager).Param("force", "true").MaxRetries(0).Body(text).Do(ctx).Into(&out)
	if err != nil {
		return 0, fmt.Errorf("cluster %s: patch services/status of %s: %w", m.name, k, short(err))
	}
	return version(out.ResourceVersion), nil
}

// wrote notes that a status was written. p.mu is held.
func (p *Provider) wrote(w *want, body *applied, version uint64) {
	now := time.Now()
	w.wrote, w.version, w.again = body.Status.text(), version, time.Time{}
	p.counters.StatusWrites++
	if !w.since.IsZero() && body.Status.LoadBalancer != nil {
		p.latencies = append(p.latencies, now.Sub(w.since))
		if n := len(p.latencies) - maxLatencies; n > 0 {
			p.latencies = slices.Delete(p.latencies, 0, n)
		}
	}
	w.since = time.Time{}
}

// maxLatencies bounds what TakeLatencies gives.
const maxLatencies = 1000
