package kernelmode

import (
	"context"
	"log/slog"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/lb/linux"
)

// Timeouts sets IPVS's timeouts, which apply to the whole box. A value that a configuration no longer has becomes
// again that of before. The zero value has set none.
type Timeouts struct {
	set    linux.Timeouts // by the last configuration; 0 keeps the kernel's value
	before linux.Timeouts // of the kernel, before a configuration had one
}

// timeoutKernel is the part of linux.Kernel for timeouts.
type timeoutKernel interface {
	Timeouts(ctx context.Context) (linux.Timeouts, error)
	SetTimeouts(ctx context.Context, t linux.Timeouts) error
}

// Set sets the timeouts of a configuration.
func (t *Timeouts) Set(ctx context.Context, kernel timeoutKernel, m Mode, cfg *config.Config, log *slog.Logger) error {
	seconds := func(d time.Duration) uint32 { return uint32(d / time.Second) }
	want := linux.Timeouts{TCP: seconds(cfg.Kernel.TCPTimeout), TCPFin: seconds(cfg.Kernel.TCPFinTimeout), UDP: seconds(cfg.Kernel.UDPTimeout)}
	switch {
	case want == t.set:
		return nil
	case m.Use == linux.ModeNetfilter:
		if t.set = want; want != (linux.Timeouts{}) {
			log.Warn("kernel.tcp_timeout, tcp_fin_timeout and udp_timeout have no effect without IPVS; conntrack's timeouts apply")
		}
		return nil
	}
	now, err := kernel.Timeouts(ctx)
	if err != nil {
		return err
	}
	next, before := want, t.before
	for _, x := range []struct{ next, before, was, now *uint32 }{
		{&next.TCP, &before.TCP, &t.set.TCP, &now.TCP},
		{&next.TCPFin, &before.TCPFin, &t.set.TCPFin, &now.TCPFin},
		{&next.UDP, &before.UDP, &t.set.UDP, &now.UDP},
	} {
		switch {
		case *x.was == 0:
			*x.before = *x.now
		case *x.next == 0:
			*x.next = *x.before
		}
	}
	if err := kernel.SetTimeouts(ctx, next); err != nil {
		return err
	}
	t.set, t.before = want, before
	return nil
}
