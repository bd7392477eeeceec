package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/lb"
)

// VIPs connects to VIPs at one backend each.
type VIPs interface {
	// Dial opens a connection to address, a VIP and port. An error that wraps
	// lb.ErrNoCheckServer is no result about the backend.
	Dial(ctx context.Context, network, address string, at lb.CheckTarget) (net.Conn, error)
	// Fault returns an error that wraps lb.ErrRepliesDropped if this box drops the replies of VIPs at
	// a backend; nil if it does not.
	Fault(ctx context.Context, at lb.CheckTarget) error
}

// missingVIPError is the result of a check of a VIP at a server that answers at its own address
// only.
type missingVIPError struct {
	vip      netip.Addr
	own      string
	duration time.Duration
}

func (e *missingVIPError) Error() string {
	return fmt.Sprintf("the server does not have VIP %s: no answer from it within %s, and one from %s", e.vip, e.duration, e.own)
}

// askVIPs asks each VIP of the backend's family at the backend, with the port of the target.
func askVIPs(vips []netip.Addr, ask asker, box VIPs) asker {
	return func(ctx context.Context, dial Dial, t target) error {
		own, err := netip.ParseAddrPort(t.address)
		if err != nil || box == nil {
			return errors.Join(err, lb.ErrNoCheckServer)
		}
		at := lb.CheckTarget{Service: t.service, Backend: own.Addr()}
		for _, vip := range vips {
			if vip.Is4() != own.Addr().Is4() {
				continue
			}
			var datagrams atomic.Bool // gRPC connects in a goroutine of its own
			err := askVIP(ctx, ask, dial, t, vip, func(ctx context.Context, network, address string) (net.Conn, error) {
				datagrams.Store(network == "udp")
				return box.Dial(ctx, network, address, at)
			})
			// A server that is up may not answer datagrams at its own address.
			var silent timeoutError
			if missing := (*missingVIPError)(nil); errors.As(err, &missing) || datagrams.Load() && errors.As(err, &silent) {
				return cmp.Or(box.Fault(context.WithoutCancel(ctx), at), err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// askVIP asks one VIP. If there is no answer in half of the time, it also asks the own address of
// the server, to distinguish a server without the VIP from one that is down.
func askVIP(ctx context.Context, ask asker, dial Dial, t target, vip netip.Addr, open Dial) error {
	own := t
	var connected atomic.Bool // gRPC connects in a goroutine of its own
	t.address = netip.AddrPortFrom(vip, netip.MustParseAddrPort(t.address).Port()).String()
	ctx, cancel := context.WithCancel(ctx)
	var fromOwn error
	ended := make(chan struct{})
	timer := time.AfterFunc(t.timeout/2, func() {
		defer close(ended)
		fromOwn = ask(ctx, dial, own)
	})
	begun := sync.OnceValue(func() bool { return !timer.Stop() })
	defer func() {
		if cancel(); begun() {
			<-ended
		}
	}()
	err := ask(ctx, func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := open(ctx, network, address)
		connected.Store(err == nil && network == "tcp")
		return c, err
	}, t)
	var silent timeoutError
	if connected.Load() || !errors.As(err, &silent) || !begun() {
		return err
	}
	if <-ended; !replied(fromOwn) {
		return err
	}
	return &missingVIPError{vip, own.address, t.timeout}
}

// replied reports whether a server has answered, even by a refusal.
func replied(err error) bool {
	var silent timeoutError
	return !errors.As(err, &silent) && !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, context.Canceled)
}
