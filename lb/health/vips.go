package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

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

// vipsAtOnce is the largest number of VIPs that one check asks side by side: each needs a socket.
const vipsAtOnce = 32

// askVIPs asks each VIP of the backend's family at the backend, with the port of the target. All
// have the whole timeout, and with more than vipsAtOnce VIPs an equal part of it.
//
// If a VIP has not answered in half of its time, the own address of the server is asked, too, to
// distinguish a server without the VIP from one that is down.
func askVIPs(vips []netip.Addr, ask asker, box VIPs) asker {
	return func(ctx context.Context, dial Dial, t target) error {
		own, err := netip.ParseAddrPort(t.address)
		if err != nil || box == nil {
			return errors.Join(err, lb.ErrNoCheckServer)
		}
		vips := slices.DeleteFunc(slices.Clone(vips), func(vip netip.Addr) bool { return vip.Is4() != own.Addr().Is4() })
		t.timeout /= time.Duration(max(1, (len(vips)+vipsAtOnce-1)/vipsAtOnce))
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(vipsAtOnce)
		comparison := compareLater(ctx, t.timeout/2, func(ctx context.Context) error { return ask(ctx, dial, t) })
		silent := make([]error, len(vips)) // their failures end no other one: the first VIP of them is the reason
		at := lb.CheckTarget{Service: t.service, Backend: own.Addr()}
		for i, vip := range vips {
			group.Go(func() error {
				var datagrams atomic.Bool // gRPC connects in a goroutine of its own
				answered, err := askVIP(ctx, ask, t, vip, func(ctx context.Context, network, address string) (net.Conn, error) {
					datagrams.Store(network == "udp")
					return box.Dial(ctx, network, address, at)
				})
				if answered {
					return err
				}
				silent[i] = err
				missing := comparison.replied()
				if missing {
					silent[i] = &missingVIPError{vip, t.address, t.timeout}
				}
				// A server that is up may not answer datagrams at its own address.
				if missing || datagrams.Load() {
					silent[i] = cmp.Or(box.Fault(context.WithoutCancel(ctx), at), silent[i])
				}
				return nil
			})
		}
		err = group.Wait()
		comparison.end()
		return cmp.Or(append([]error{err}, silent...)...)
	}
}

// askVIP asks one VIP. It reports whether anything answered.
func askVIP(ctx context.Context, ask asker, t target, vip netip.Addr, open Dial) (answered bool, err error) {
	var connected atomic.Bool // gRPC connects in a goroutine of its own
	t.address = netip.AddrPortFrom(vip, netip.MustParseAddrPort(t.address).Port()).String()
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err = ask(ctx, func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := open(ctx, network, address)
		connected.Store(err == nil && network == "tcp")
		return c, err
	}, t)
	_, silent := errors.AsType[timeoutError](err)
	return connected.Load() || !silent, err
}

// comparison asks the own address of a server, if its VIPs take long.
type comparison struct {
	begun atomic.Bool
	timer *time.Timer
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// compareLater begins a comparison after a time, which takes no longer than that again.
func compareLater(ctx context.Context, after time.Duration, ask func(context.Context) error) *comparison {
	c := &comparison{ended: make(chan struct{})}
	ctx, c.stop = context.WithCancel(ctx)
	c.timer = time.AfterFunc(after, func() {
		defer close(c.ended)
		c.begun.Store(true)
		ctx, cancel := context.WithTimeout(ctx, after)
		defer cancel()
		c.err = ask(ctx)
	})
	return c
}

// replied reports whether the own address replies. It waits for a reply if it has been asked.
func (c *comparison) replied() bool {
	if !c.begun.Load() {
		return false
	}
	<-c.ended
	return replied(c.err)
}

// end ends what is left of it.
func (c *comparison) end() {
	if c.stop(); !c.timer.Stop() {
		<-c.ended
	}
}

// replied reports whether a server has answered, even by a refusal.
func replied(err error) bool {
	_, silent := errors.AsType[timeoutError](err)
	return !silent && !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, context.Canceled)
}
