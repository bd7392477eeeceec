package e2e

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// targets are the addresses of the clients of a trouble: web servers, an echo server, and a server of
// datagrams.
type targets struct {
	web, echo []string
	udp       string
}

// sharedTargets use the services of shared.
var sharedTargets = targets{[]string{at(vip4, 80), at(vip6, 80)}, []string{echo4, echo6}, at(vip4, 7000)}

// clients send requests over new connections, hold ten connections or more, and send datagrams.
type clients struct {
	fresh *load
	held  traffic.Holds
	udp   *flow
}

// startClients returns when all three kinds of client are served. All have the same patience: a machine that
// starves loses packets, and TCP sends a SYN for the third time after three seconds.
func startClients(t testing.TB, from *lab.Machine, to targets) *clients {
	t.Helper()
	return clientsAt(t, traffic.DefaultBeat, from, to)
}

// slowClients do so for troubles of many seconds that are no changes of weir's.
func slowClients(t testing.TB, from *lab.Machine, to targets) *clients {
	t.Helper()
	return clientsAt(t, 3*traffic.DefaultBeat, from, to)
}

func clientsAt(t testing.TB, beat time.Duration, from *lab.Machine, to targets) *clients {
	t.Helper()
	c := &clients{startLoad(t, from, traffic.Options{Beat: beat, Patience: holdPatience}, to.web...), holdMany(t, max(1, 10/len(to.echo)), from, to.echo...), startFlow(t, from, 0, to.udp)}
	c.served(t)
	return c
}

// served waits until all three are served again.
func (c *clients) served(t testing.TB) {
	t.Helper()
	c.fresh.more(t, 3)
	c.udp.answered(t, 3)
}

// ended waits until n more requests have ended, answered or not.
func (c *clients) ended(t testing.TB, n int) {
	t.Helper()
	before := len(c.fresh.Tries())
	eventually(t, 2*time.Minute, func() error {
		if now := len(c.fresh.Tries()); now < before+n {
			return fmt.Errorf("%d of %d requests have ended", now-before, n)
		}
		return nil
	})
}

// report ends the clients, which are all served again, and prints a row for the table of operations.md.
func (c *clients) report(t testing.TB, what string) traffic.Report {
	t.Helper()
	c.served(t)
	lost, gap := c.udp.Stop()
	tries := c.fresh.Stop()
	if err := tries.Err(3); err != nil {
		t.Log(err)
	}
	r := tries.Report().And(c.held.Release())
	figure(t, "trouble: "+what, fmt.Sprintf("%s; UDP: %d lost, longest gap %s", r, lost, traffic.Round(gap)))
	return r
}

// noneCut requires that no held connection was cut.
func (c *clients) noneCut(t testing.TB, what string) {
	t.Helper()
	if r := c.report(t, what); r.Cut > 0 {
		t.Errorf("%s: %s", what, r)
	}
}

// unhurt requires that clients did not notice.
func (c *clients) unhurt(t testing.TB, what string) {
	t.Helper()
	moves(t, c.held...)
	if r := c.report(t, what); r.Lost() > 0 || r.Cut > 0 {
		t.Errorf("%s: %s", what, r)
	}
}

// audits waits until weir has read the whole kernel two more times: one may have begun before.
func (s *site) audits(t testing.TB) {
	t.Helper()
	count := func() float64 { return s.metric(t, "weir_audit_duration_seconds_count") }
	before := count()
	eventually(t, time.Minute, func() error {
		if n := count() - before; n < 2 {
			time.Sleep(50 * time.Millisecond) // leaves the box some of its processor
			return fmt.Errorf("%v of 2 audits", n)
		}
		return nil
	})
}
