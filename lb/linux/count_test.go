package linux

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/lb"
)

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
