package supervise

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"weir/lb"
)

// slowCounter counts when the test lets it.
type slowCounter struct{ begun, release chan struct{} }

func (k slowCounter) CountConns(ctx context.Context, servers []lb.RealServer) (map[lb.Object]lb.Conns, error) {
	k.begun <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case _, ok := <-k.release:
		if !ok {
			panic("no table")
		}
	}
	return map[lb.Object]lb.Conns{servers[0].ID(): {Active: 7}}, nil
}

func TestDrainsAreCountedBesideTheLoop(t *testing.T) {
	t.Parallel()
	rs := lb.RealServer{Frontend: lb.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, Addr: netip.MustParseAddrPort("10.0.0.1:80")}
	kernel := slowCounter{make(chan struct{}), make(chan struct{})}
	c := NewDrainCounter(slog.New(slog.DiscardHandler), kernel, func(time.Duration) {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	c.Ask(nil)
	c.Ask([]lb.RealServer{rs})
	<-kernel.begun
	kernel.release <- struct{}{} // the loop has not waited for it
	if got := <-c.Counts; got.Conns[rs.ID()].Active != 7 || got.Begun.IsZero() || got.Ended.Before(got.Begun) {
		t.Errorf("a count: %+v", got)
	}
	c.Ask([]lb.RealServer{rs})
	<-kernel.begun
	close(kernel.release)
	if got := <-c.Counts; got.Conns != nil || got.Ended.IsZero() {
		t.Errorf("a panic: %+v", got)
	}
	kernel.release = nil
	c.kernel = slowCounter{begun: kernel.begun}
	c.Ask([]lb.RealServer{rs})
	<-kernel.begun
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
