package daemon

import (
	"context"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// lastTraffic is what the kernel had counted a moment ago. Whoever asks within trafficAge
// of another one gets what that one got, for a reading costs a question to the kernel for
// each virtual server: 10,000 of ten real servers each took 3.6 to 9 s on a simulated
// processor with much else to do, and are 14 MB of JSON. Make one with newLastTraffic.
type lastTraffic struct {
	turn chan struct{} // has a token in it while somebody reads
	doc  status.Traffic
}

func newLastTraffic() *lastTraffic { return &lastTraffic{turn: make(chan struct{}, 1)} }

const (
	// trafficAge is for how long a reading is given to others: less than anybody's interval.
	trafficAge = time.Second
	// trafficTimeout bounds a reading.
	trafficTimeout = 30 * time.Second
)

// traffic reads what the kernel has counted, of all virtual servers. It asks the kernel
// by a socket of its own, so neither the loop nor a change waits for it.
func (b *box) traffic(ctx context.Context) (status.Traffic, error) {
	return b.counted.get(ctx, func(ctx context.Context) (status.Traffic, error) {
		owners := b.owners(ctx) // which may take its time: the loop is asked
		begin := time.Now()
		doc, err := Services(ctx, b.kernel, owners)
		return doc.CountedAt(begin.Add(time.Since(begin) / 2)), err
	})
}

// get gives a reading; one that fails is not kept.
func (r *lastTraffic) get(ctx context.Context, read func(context.Context) (status.Traffic, error)) (status.Traffic, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return status.Traffic{}, ctx.Err()
	}
	if age := time.Since(r.doc.Time); age >= 0 && age < trafficAge {
		return r.doc, nil
	}
	ctx, cancel := context.WithTimeout(ctx, trafficTimeout)
	defer cancel()
	doc, err := read(ctx)
	if err == nil {
		r.doc = doc
	}
	return doc, err
}

// healthDoc is what the checks say of each backend, and what has no check.
func (b *box) healthDoc(ctx context.Context) status.Health {
	doc := status.Health{Backends: []status.CheckedBackend{}, Unchecked: []status.Unchecked{}}
	verdicts := b.checks.Health()
	for _, x := range b.checks.Backends() {
		doc.Backends = append(doc.Backends, status.CheckedBackend{
			Service: x.Service.String(), Port: x.Port.String(), Backend: x.Backend.String(), Verdict: x.Verdict, Since: x.Since,
			Checked: x.Checked, Took: x.Took.Seconds(), Error: x.Error, Checks: x.Checks, Failures: x.Failures,
			Lost: verdicts[x.Service].Lost[lb.FamilyPort{Port: x.Port, Family: lb.FamilyOf(x.Backend.Addr())}],
		})
	}
	doc.Unchecked = append(doc.Unchecked, b.owners(ctx).unchecked...)
	return doc
}
