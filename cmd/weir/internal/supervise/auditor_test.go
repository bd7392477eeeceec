package supervise

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// gated is a kernel that is read when the test lets it.
type gated struct {
	*lb.Fake
	begun, release chan struct{}
}

func (k gated) Observe(ctx context.Context, expected *lb.Table, only ...lb.Frontend) (lb.Observation, error) {
	if len(only) > 0 {
		return k.Fake.Observe(ctx, expected, only...)
	}
	k.begun <- struct{}{}
	select {
	case <-ctx.Done():
		return lb.Observation{}, ctx.Err()
	case _, ok := <-k.release:
		if !ok {
			panic("no table")
		}
	}
	return k.Fake.Observe(ctx, expected)
}

// A change during an audit is applied before the audit ends, which neither undoes nor reports it.
func TestChangesAreAppliedDuringAnAudit(t *testing.T) {
	t.Parallel()
	service := func(port uint16) lb.Update {
		return lb.Update{Source: "static", Synced: true, Put: []lb.Service{{
			ID: lb.ServiceID{Source: "static", Name: "web"}, Scheduler: lb.Scheduler{Name: "rr"}, VIPs: []lb.VIP{{Addr: netip.MustParseAddr("192.0.2.1")}},
			Ports: []lb.Port{{Proto: lb.TCP, Port: 80, Backends: []lb.Backend{{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Weight: 1}}}},
		}}}
	}
	backend := func(port uint16) lb.RealServer {
		return lb.RealServer{
			Frontend: lb.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP}, Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Weight: 1,
		}
	}
	fake := &lb.Fake{}
	rec := lb.NewReconciler(fake, lb.Options{Base: lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4}}}, "static")
	rec.Update(service(8080))
	now := time.Now()
	if _, err := rec.Sync(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	kernel := gated{fake, make(chan struct{}), make(chan struct{})}
	a := NewAuditor(slog.New(slog.DiscardHandler), kernel)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()

	a.Ask(rec.BeginAudit())
	<-kernel.begun
	rec.Update(service(9090))
	if _, err := rec.Sync(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if fake.Objects()[backend(9090).ID()] == nil {
		t.Error("the change waits for the audit")
	}
	kernel.release <- struct{}{}
	rep, err := rec.EndAudit(t.Context(), now, <-a.Done)
	if err != nil || len(rep.Drift)+len(rep.Ops) > 0 {
		t.Errorf("the audit found %v, and did %v: %v", rep.Drift, rep.Ops, err)
	}

	a.Ask(rec.BeginAudit())
	<-kernel.begun
	close(kernel.release)
	if rep, err := rec.EndAudit(t.Context(), now, <-a.Done); err == nil || len(rep.Ops) > 0 {
		t.Errorf("a panic: %v, %v", rep, err)
	}
	kernel.release = nil
	a.kernel = kernel
	a.Ask(rec.BeginAudit())
	<-kernel.begun
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
