package announce

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// slowSpeaker is a speaker that needs longer than any test for its changes.
type slowSpeaker struct{ waiting atomic.Int32 }

func (s *slowSpeaker) Configure(context.Context, bgp.Config) error { return nil }
func (s *slowSpeaker) Set(map[netip.Prefix][]advertise.Path) error { return nil }
func (s *slowSpeaker) Status() bgp.Status                          { return bgp.Status{} }
func (s *slowSpeaker) AnyEstablished() bool                        { return true }
func (s *slowSpeaker) Close() error                                { return nil }
func (s *slowSpeaker) Leave(context.Context) error                 { return nil }
func (s *slowSpeaker) Flush(ctx context.Context) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseEndsTheMeasurements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowSpeaker{}
		cfg := &config.BGP{Policy: advertise.Policy{Rules: []advertise.Rule{{Name: "all"}}, Peers: []advertise.Peer{{Name: "tor1", Families: advertise.Families{IPv4: true}}}}}
		a := New(Options{
			Log: slog.New(slog.DiscardHandler), Speaker: s,
			Announced: func(time.Duration) { t.Error("measured a delivery that has not ended") },
		}, cfg, time.Now())
		vip := netip.MustParseAddr("192.0.2.1")
		a.Update(Inputs{
			Routes: []lb.Route{{Addr: vip, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}},
			Labels: func(lb.ServiceID) map[string]string { return nil },
		}, time.Now())
		a.Deliver(func(netip.Prefix) bool { return true }, time.Now())
		if synctest.Wait(); s.waiting.Load() != 1 {
			t.Fatalf("%d deliveries are measured", s.waiting.Load())
		}
		begin := time.Now()
		a.Close(false)
		if s.waiting.Load() != 0 || time.Since(begin) != 0 {
			t.Errorf("%d measurements are left after %s", s.waiting.Load(), time.Since(begin))
		}
	})
}

// busySpeaker needs a while to take changes.
type busySpeaker struct {
	slowSpeaker
	takes time.Duration
}

func (s *busySpeaker) Flush(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Routers have their time from the moment at which the speaker has the withdrawal, which is late on a busy box.
func TestWithdrawWaitsForABusySpeaker(t *testing.T) {
	tests := []struct{ takes, want time.Duration }{
		{0, LeaveWait},
		{150 * time.Millisecond, 150*time.Millisecond + LeaveWait},
		{600 * time.Millisecond, 600*time.Millisecond + LeaveWait},
		{time.Hour, takeTimeout}, // it may never take it
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s := &busySpeaker{takes: tt.takes}
			cfg := &config.BGP{Policy: advertise.Policy{Rules: []advertise.Rule{{Name: "all"}}, Peers: []advertise.Peer{{Name: "tor1", Families: advertise.Families{IPv4: true}}}}}
			cfg.Speaker.RouterID = netip.MustParseAddr("192.0.2.254")
			a := New(Options{Log: slog.New(slog.DiscardHandler), Speaker: s}, cfg, time.Now())
			defer a.Close(false)
			vip := netip.MustParseAddr("192.0.2.1")
			in := Inputs{
				Routes: []lb.Route{{Addr: vip, Serves: []lb.Serving{{Service: lb.ServiceID{Source: config.Source, Name: "web"}}}}},
				Labels: func(lb.ServiceID) map[string]string { return nil },
			}
			a.Begin(t.Context(), time.Now())
			a.Update(in, time.Now())
			a.Deliver(func(netip.Prefix) bool { return true }, time.Now())
			begin := time.Now()
			in.Routes = []lb.Route{{Addr: vip}} // nothing serves it
			a.Withdraw(in, begin)
			if took := time.Since(begin); took != tt.want {
				t.Errorf("a speaker that takes it after %s: the kernel is written after %s, want %s", tt.takes, took, tt.want)
			}
		})
	}
}
