package query

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/lb"
	"weir/lb/health"
)

// TestServicesByMarkShareABackend shows the health of one backend by two firewall marks.
func TestServicesByMarkShareABackend(t *testing.T) {
	t.Parallel()
	rec := lb.NewReconciler(&lb.Fake{}, lb.Options{}, config.Source)
	rec.Update(lb.Update{Source: config.Source, Synced: true, Put: parse(t, `
[[service]]
name = "a"
fwmark = 7
backends = ["10.0.0.1"]
[[service]]
name = "b"
fwmark = 8
backends = ["10.0.0.1"]
`).Services})
	backend := netip.MustParseAddrPort("10.0.0.1:0")
	doc := status.Services{}
	for mark := range uint32(3) {
		doc.Frontends = append(doc.Frontends, status.Frontend{
			Key: lb.GivenFrontend(lb.IPv4, 7+mark), Mark: 7 + mark, Given: true, Servers: []status.Server{{Key: backend}},
		})
	}
	port := lb.PortKey{Proto: lb.TCP}
	ShowHealth(&doc, NewOwners(rec, nil), []health.Backend{
		{Service: static("a"), Port: port, Backend: backend, State: "down", Error: "timeout"},
		{Service: static("b"), Port: port, Backend: backend, State: "up"},
	}, nil)
	for i, want := range []string{"down", "up", ""} { // the third is foreign
		if got := doc.Frontends[i].Servers[0].Health; got != want {
			t.Errorf("%s: health %q, want %q", doc.Frontends[i].Key, got, want)
		}
	}
}

// TestChecksWithoutAResultAreShown cannot run the program of a check: the last good result is out of date.
func TestChecksWithoutAResultAreShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		checks := health.New(health.Options{Run: func(context.Context, health.Program) (int, string, error) {
			if broken.Load() {
				return 0, "", errors.New("no such socket")
			}
			return 0, "", nil
		}})
		checks.Set(parse(t, `
[daemon]
allow_exec = true
[[service]]
name = "a"
vips = ["192.0.2.1"]
ports = [80]
backends = ["10.0.0.1"]
[service.check]
type = "exec"
exec = ["/bin/check"]
`).Checks)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- checks.Run(ctx) }()
		time.Sleep(time.Second)
		broken.Store(true)
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		want := status.Backends{Up: 1, Void: 1, VoidError: "program not run: no such socket"}
		if got := CountBackends(checks); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		doc := Health(checks, NewOwners(lb.NewReconciler(&lb.Fake{}, lb.Options{}, config.Source), nil))
		if b := doc.Backends[0]; !b.Void || b.Error != want.VoidError || doc.Line() != "0 of 1 backends are down, and the checks of 1 have no result" {
			t.Errorf("%s: %+v", doc.Line(), b)
		}
		s := status.Status{Backend: want}
		s.Judge(time.Now())
		if got := s.Line(); got != "weir is degraded: the checks of 1 of 1 backend have no result: program not run: no such socket" {
			t.Error(got)
		}
		var table strings.Builder
		doc.Table(&table, time.Now())
		if !strings.Contains(table.String(), "no result: program not run: no such socket") {
			t.Errorf("no error in\n%s", table.String())
		}
	})
}

// TestExplanationHasTheErrorsOfChecks shows the error of the Service that has the frontend.
func TestExplanationHasTheErrorsOfChecks(t *testing.T) {
	t.Parallel()
	one, two := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	packet := lb.Explanation{
		Claims:     []lb.Claim{{Service: "static/b"}, {Service: "static/a", Wins: true}},
		Candidates: []lb.Candidate{{Addr: one, Reason: lb.CheckFailed}, {Addr: two, Reason: "it drains: its old connections may end"}},
	}
	ShowFailures(explain.Answer{Packet: &packet}, []health.Backend{
		{Service: static("b"), Backend: one, State: "down", Error: "of another service"},
		{Service: static("a"), Backend: one, State: "down", Error: "the server does not have VIP 192.0.2.1"},
		{Service: static("a"), Backend: two, State: "down", Error: "timeout"},
	})
	for i, want := range []string{"its health check failed: the server does not have VIP 192.0.2.1", "it drains: its old connections may end"} {
		if got := packet.Candidates[i].Reason; got != want {
			t.Errorf("backend %d: %q, want %q", i+1, got, want)
		}
	}
	ShowFailures(explain.Answer{}, nil) // a question about all ports has no packet
}

// TestManyFailuresAreExplainedAtOnce has a limit against a cost that grows with candidates times checks.
func TestManyFailuresAreExplainedAtOnce(t *testing.T) {
	t.Parallel()
	packet := lb.Explanation{Claims: []lb.Claim{{Service: "static/a", Wins: true}}}
	for range 2000 {
		packet.Candidates = append(packet.Candidates, lb.Candidate{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Reason: lb.CheckFailed})
	}
	checked := slices.Repeat([]health.Backend{{Service: static("b"), State: "down", Error: "timeout"}}, 100_000)
	begin := time.Now()
	if ShowFailures(explain.Answer{Packet: &packet}, checked); time.Since(begin) > 5*time.Second {
		t.Errorf("it took %s", time.Since(begin))
	}
}
