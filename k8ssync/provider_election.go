package k8ssync

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// election is the state of the election of the writer. It works like client-go's leader
// election, on the same fields of a Lease; client-go's would double the size of weir, with
// a client for every kind of Kubernetes.
//
// Only the holder and, once its term is over, the others send requests. All learn the lease
// from the watch of the claims, so that a thousand boxes cost the API server one renewal
// each interval.
//
// Correctness does not depend on it: two writers at a time are harmless, since claims and
// statuses are written only onto the versions that were read.
type election struct {
	identity string
	timing   electionTiming
	renewed  time.Time // the last renewal that this box tried, as in the Lease; of the elector's goroutine

	// The other fields are under providerState.mu.
	writing bool      // at the last try
	until   time.Time // the end of this box's term
	lapsed  bool      // the term had ended before its renewal, so that work may have been skipped
	since   time.Time // the beginning of the holder's term
	holder  string    // as last seen
	seen    string    // the resourceVersion that was last seen
	at      time.Time // when that was
	lasts   time.Duration
	held    *coordinationv1.Lease // as this box wrote it last; nil: it has changed since
	err     error
}

// electionTiming has the duration of a lease, the time within which its holder renews it,
// and the interval of tries of all boxes.
type electionTiming struct{ lease, deadline, retry time.Duration }

// defaultElection is that of Kubernetes' own controllers.
var defaultElection = electionTiming{lease: 15 * time.Second, deadline: 10 * time.Second, retry: 2 * time.Second}

// writes reports whether this box is the writer.
func (e *election) writes(now time.Time) bool { return now.Before(e.until) }

// writer returns the holder of the lease; empty is none or unknown.
func (e *election) writer(now time.Time) string {
	if e.holder != "" && now.Before(e.at.Add(e.lasts)) {
		return e.holder
	}
	return ""
}

// observe takes the lease from the watch, nil if it is gone, and reports whether its holder
// has changed. A watch may be late: older versions are ignored.
func (e *election) observe(lease *coordinationv1.Lease, at uint64, now time.Time) (changed bool) {
	if at <= version(e.seen) {
		return false
	}
	before := e.writer(now)
	if lease == nil {
		lease = &coordinationv1.Lease{}
		lease.ResourceVersion = fmt.Sprint(at)
	}
	e.saw(lease, now)
	if e.holder != e.identity {
		e.until = time.Time{}
	}
	return e.writer(now) != before
}

// mustAsk reports whether this box must read or write the lease: it holds it, or no box
// does as far as it knows.
func (e *election) mustAsk(now time.Time) bool {
	writer := e.writer(now)
	return writer == "" || writer == e.identity
}

// mayTake records the lease, and reports whether this box may hold it: it does already,
// or the lease has no holder, or it has expired. The duration counts from the time at which
// this box saw the lease change, so that clocks of other boxes don't matter.
func (e *election) mayTake(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.ResourceVersion != e.seen {
		e.saw(lease, now)
	}
	mine := e.holder == e.identity
	if !mine {
		e.until = time.Time{}
	}
	return mine || e.writer(now) == ""
}

// longestLease is how many times as long as this box's a lease of others lasts at most: one
// without an end would stop all assignments when its holder is gone.
const longestLease = 10

// saw records a lease.
func (e *election) saw(lease *coordinationv1.Lease, now time.Time) {
	e.seen, e.at, e.held = lease.ResourceVersion, now, nil
	e.holder, e.lasts, e.since = "", e.timing.lease, time.Time{}
	if h := lease.Spec.HolderIdentity; h != nil {
		e.holder = *h
	}
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		e.lasts = min(time.Duration(*s)*time.Second, longestLease*e.timing.lease)
	}
	if t := lease.Spec.AcquireTime; t != nil {
		e.since = t.Time
	}
}

// renew makes this box the holder of a lease.
func (e *election) renew(lease *coordinationv1.Lease, namespace string, now time.Time) {
	lease.Name, lease.Namespace = writerLease, namespace
	lease.Labels = managed(lease.Labels)
	stamp, seconds := metav1.NewMicroTime(now), int32(max(1, e.timing.lease/time.Second))
	s := &lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != e.identity {
		transitions := int32(1)
		if s.LeaseTransitions != nil {
			transitions = max(transitions, transitions+*s.LeaseTransitions) // the API server refuses a negative number
		}
		identity := e.identity // the answer is decoded into it
		s.HolderIdentity, s.AcquireTime, s.LeaseTransitions = &identity, &stamp, &transitions
	}
	s.RenewTime, s.LeaseDurationSeconds = &stamp, &seconds
	e.renewed = now
}

// wrote reports whether a lease is as this process last wrote it. The answer to that write
// may have been cut off by the shutdown.
func (e *election) wrote(lease *coordinationv1.Lease) bool {
	s := lease.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity == e.identity && s.RenewTime != nil && s.RenewTime.UnixMicro() == e.renewed.UnixMicro()
}
