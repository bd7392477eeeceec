package linux

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// A drain waits for connections that can carry data. The template of a client with affinity
// may live for hours.
func TestCountLeavesOutEndedConnections(t *testing.T) {
	t.Parallel()
	p := netip.MustParseAddrPort
	f := lb.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP}
	server := func(f lb.Frontend, addr string) lb.Object { return lb.RealServer{Frontend: f, Addr: p(addr)} }
	const table = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0A000001 C8D4 C0000201 0050 0A000007 1F90 TIME_WAIT        90
TCP 0A000001 0000 C0000201 0050 0A000007 1F90 ASSURED         599
TCP 0A000002 0000 C0000201 0050 0A000007 1F90 NONE            299
TCP 0A000003 C8D4 C0000201 0050 0A000007 1F90 CLOSE             9
TCP 0A000001 C8D4 C0000201 0050 0A000008 1F90 FIN_WAIT         90
TCP 0A000001 C8D5 C0000201 0050 0A000008 1F90 TIME_WAIT        90
TCP 0A000001 C8D5 C0000201 0050 0A000008 1F90 TIME_WAIT        90
UDP 0A000001 C8D6 C0000201 0050 0A000009 1F90 UDP             290
`
	given := lb.GivenFrontend(lb.IPv4, 7) // for any protocol
	mark := lb.MarkFrontend(lb.IPv4, 7)
	mark.Proto = lb.TCP
	conns := map[lb.Object]lb.Conns{
		server(f, "10.0.0.7:8080"):    {Inactive: 2},
		server(f, "10.0.0.8:8080"):    {Inactive: 2},
		server(f, "10.0.0.9:8080"):    {Active: 1, Inactive: 5},
		server(mark, "10.0.0.8:8080"): {Inactive: 3},
		server(mark, "10.0.0.7:8080"): {Inactive: 3},

		server(mark, "10.0.0.9:8080"):  {Inactive: 3},
		server(given, "10.0.0.8:8080"): {Inactive: 3},
		server(given, "10.0.0.9:8080"): {Inactive: 3},
	}
	listed, err := leaveOutEnded(t.Context(), strings.NewReader(table), conns)
	must(t, err)
	want := map[lb.Object]lb.Conns{
		server(f, "10.0.0.7:8080"):    {},
		server(f, "10.0.0.8:8080"):    {Inactive: 1},
		server(f, "10.0.0.9:8080"):    {Active: 1, Inactive: 5},
		server(mark, "10.0.0.8:8080"): {Inactive: 1},
		server(mark, "10.0.0.7:8080"): {},

		server(mark, "10.0.0.9:8080"):  {},
		server(given, "10.0.0.8:8080"): {Inactive: 1},
		server(given, "10.0.0.9:8080"): {Inactive: 1},
	}
	if d := cmp.Diff(want, conns, compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// Linux 7.x has listed one of them twice, and not all.
	addUnlisted(conns, listed, map[lb.Object]lb.Conns{
		server(f, "10.0.0.7:8080"):    {Inactive: 3},
		server(f, "10.0.0.8:8080"):    {Active: 1, Inactive: 3},
		server(mark, "10.0.0.8:8080"): {Inactive: 3},
	})
	want[server(f, "10.0.0.7:8080")] = lb.Conns{Inactive: 1}
	want[server(f, "10.0.0.8:8080")] = lb.Conns{Active: 1, Inactive: 2}
	want[server(mark, "10.0.0.8:8080")] = lb.Conns{Inactive: 2}
	if d := cmp.Diff(want, conns, compareNetip); d != "" {
		t.Errorf("after the list (-want +got):\n%s", d)
	}
}

// A drain must not end before connections that the list leaves out: Linux 7.x lists a part of
// them while it resizes its table. Other kernels list all.
func TestCountHasConnectionsThatAreNotListed(t *testing.T) {
	placeBackends(t)
	k := newKernel(t)
	f := hashed(t, k)
	rs := lb.RealServer{Frontend: f, Addr: netip.MustParseAddrPort("10.99.1.1:8080"), Weight: 1}
	add(t, k, rs)
	const n, counts = 1000, 300
	mapping(t, k, f, 1000, n)
	resize := resizes(t)
	for i := range counts {
		resize(i)
		counted, err := k.CountConns(t.Context(), []lb.RealServer{rs})
		must(t, err)
		if got := counted[rs.ID()].Inactive; got < n {
			t.Errorf("count %d has %d of %d connections", i, got, n)
		}
	}
}

// resizes returns a function that lets Linux 7.x resize its table of connections, to another
// size by i.
func resizes(t *testing.T) func(i int) {
	t.Helper()
	const factor = "/proc/sys/net/ipv4/vs/conn_lfactor"
	before, err := os.ReadFile(factor)
	if err != nil {
		return func(int) {} // the kernel has a table of one size
	}
	set := func(text string) { must(t, os.WriteFile(factor, []byte(text), 0)) }
	t.Cleanup(func() { set(string(before)) })
	return func(i int) { set([]string{"8", "-8"}[i%2]) }
}

// A count of many connections finds each of them and ends with its context; beside it, a
// virtual server is read without the table of connections. WEIR_CONNS sets the number.
func TestCountOfManyConnections(t *testing.T) {
	placeBackends(t)
	n := 2000
	if s := os.Getenv("WEIR_CONNS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	k := newKernel(t)
	f := hashed(t, k)
	rs := lb.RealServer{Frontend: f, Addr: netip.MustParseAddrPort("10.99.1.1:8080"), Weight: 1}
	add(t, k, rs)
	mapping(t, k, f, 1000, n)
	begin := time.Now()
	counted, err := k.CountConns(t.Context(), []lb.RealServer{rs})
	took := time.Since(begin)
	if err != nil || counted[rs.ID()] != (lb.Conns{Inactive: uint32(n)}) {
		t.Errorf("%v, %v", counted, err)
	}
	begin = time.Now()
	if obs, err := k.Observe(t.Context(), nil, f); err != nil || obs.Objects.Len() != 2 {
		t.Errorf("%v, %v", obs.Objects, err)
	}
	t.Logf("%d connections: a count takes %s, a read of the virtual server %s", n, took, time.Since(begin))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.CountConns(ctx, []lb.RealServer{rs}); !errors.Is(err, context.Canceled) {
		t.Errorf("a count that was cancelled: %v", err)
	}
}
