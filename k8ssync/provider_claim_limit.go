package k8ssync

import (
	"context"
	"errors"
	"time"

	"weir/k8ssync/ipam"
)

// Package ipam limits the claims. Those of a list are limited while it comes, by the same rule, so
// that none is kept that would be ignored.

// errRoom ends a watch of the claims.
var errRoom = errors.New("the claims are listed again: some were ignored, and there is room for them")

// begins implements limiter.
func (s claimSink) begins() { s.p.locked(func() { s.p.intake = ipam.Intake{} }) }

// fits implements limiter.
func (s claimSink) fits(it *item) (fits bool) {
	c, ok := it.object.(*ipam.Claim)
	if !ok {
		return true
	}
	s.p.locked(func() { fits = s.p.alloc.Admit(&s.p.intake, c, s.p.alloc.Matters(c.Addr)) })
	return fits
}

// left implements sink: fits decides.
func (s claimSink) left(string) {}

// ignored returns the limit that leaves out a claim; empty is none. p.mu is held.
func (p *providerState) ignored(c *ipam.Claim) string {
	if p.alloc.HasClaim(c.Addr) {
		return ""
	}
	return p.alloc.ClaimProblem()
}

// littleRoom is after how many polls a list may follow for the room of a single claim: a list costs much.
const littleRoom = 10

// followUntilRoom watches the claims in a session, until ctx ends, or claims that were ignored may fit, which it
// reports. The next watch begins with a list, which finds them.
func (p *providerState) followUntilRoom(ctx context.Context, sess *session) (room bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		poll := time.NewTicker(p.timing.last)
		defer poll.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-poll.C:
			}
			room := false
			p.locked(func() { room = p.alloc.HasRoom(n%littleRoom == 0) })
			if room && !p.claims.current().listing {
				stop(errRoom)
			}
		}
	}()
	sess.follow(ctx, p.claims, p.timing.last)
	return context.Cause(ctx) == errRoom
}
