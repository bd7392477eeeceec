//go:build !race

// With the race detector 100,000 Leases take minutes. make test runs these tests without it.

package k8ssync

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
)

// junkLease is a claim that an account with the right to write Leases makes.
func junkLease(x netip.Addr, version int) *coordinationv1.Lease {
	text := fmt.Sprintf(`{"format":1,"holders":[{"cluster":"prod","namespace":"junk-%d","name":"junk-%d","uid":"00000000-0000-0000-0000-%012d"}]}`, version, version, version)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "weir-system", Name: ipam.Name(x), ResourceVersion: fmt.Sprint(version),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(version), 0)), Annotations: map[string]string{"weir/claim": text},
	}}
}

// A flood of Leases takes bounded memory, in a list and in events. -v prints it.
func TestMemoryOfClaimsIsLimited(t *testing.T) {
	p := NewProvider(providerConfig("box1", pool("public", "2001:db8::/64")), silentLog())
	l := &lister{feed: p.claims}
	const many = 110_000 // of each kind
	before := heapNow()
	version := 0
	flood := func(add func(*item)) {
		for _, first := range []string{"2001:db8::", "2001:db9::"} {
			x := netip.MustParseAddr(first)
			for range many {
				version++
				if it, ok := l.reduce(junkLease(x, version)); ok {
					add(it)
				}
				x = x.Next()
			}
		}
	}
	l.listed = l.begin()
	var all []any
	flood(func(it *item) {
		if l.fits(it, l.listed) {
			all = append(all, it)
		}
	})
	must(t, l.Replace(all, fmt.Sprint(version)))
	l.listed = nil
	listed := len(all)
	all = nil
	afterList := heapNow() - before
	flood(func(it *item) { must(t, l.Update(it)) })
	afterEvents := heapNow() - before
	t.Logf("%d Leases: %d claims known, %d MiB; after an event of each %d MiB", 2*many, listed, afterList>>20, afterEvents>>20)
	if claims := len(p.alloc.Claims()); claims != 110_000 || listed != claims || len(p.claims.versions) > claims {
		t.Errorf("%d claims, %d in the list, %d versions", claims, listed, len(p.claims.versions))
	}
	if limit := int64(256 << 20); afterList > limit || afterEvents > limit {
		t.Errorf("more than %d MiB", limit>>20)
	}
	if got := p.claimProblem(); !strings.Contains(got, "no new address is assigned: more than 100000 claims") {
		t.Error(got)
	}
	runtime.KeepAlive(p)
}

// heapNow returns the bytes of all live objects.
func heapNow() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 2^63
}

// fewClaims limits the claims of a box, so that a test needs fewer Leases.
func fewClaims(pools ...ipam.Pool) ProviderConfig {
	cfg := providerConfig("box1", pools...)
	cfg.IPAM.MaxClaims, cfg.IPAM.MaxOtherClaims = 100, 10
	return cfg
}

// More claims than weir reads are outside the pools: the operator learns it, and assignment goes on.
func TestJunkLeasesOutsideThePoolsStopNoAssignment(t *testing.T) {
	s, x := newAPIServer(t), netip.MustParseAddr("10.0.0.0")
	s.put(testNode("n1", "10.200.0.1"))
	for i := range 20 {
		s.put(junkLease(x, i+1))
		x = x.Next()
	}
	p := newBox(t, fewClaims(pool("public", "192.0.2.0/30")), map[string]*apiServer{"prod": s})
	s.put(testBalancer("web", "10.96.0.1", "", nil))
	has(t, s, "web", "192.0.2.0", "Assigned")
	eventually(t, "the limit is reported", func() bool {
		return strings.Contains(p.Status().Clusters["prod"], "more than 10 claims, or 16 MiB of them, are of addresses outside all pools")
	})
}

// More claims than weir reads are of a pool: a Service waits, and the status has the reason. It gets an address
// when an operator who follows the text has made room, though less than a tenth.
func TestJunkLeasesInAPoolStopOnlyNewAddresses(t *testing.T) {
	s, x := newAPIServer(t), netip.MustParseAddr("2001:db8::1000")
	s.put(testNode("n1", "10.200.0.1"))
	config := fewClaims(pool("public", "192.0.2.0/30"), pool("six", "2001:db8::/64"))
	p := newBox(t, config, map[string]*apiServer{"prod": s})
	s.put(testBalancer("old", "10.96.0.1", "", nil))
	has(t, s, "old", "192.0.2.0", "Assigned")
	p.stop()
	for i := range 100 {
		s.put(junkLease(x.Next(), i+1))
		x = x.Next()
	}
	p = newBox(t, config, map[string]*apiServer{"prod": s})
	s.put(testBalancer("new", "10.96.0.2", "", nil))
	has(t, s, "new", "", "ClaimLimit")
	has(t, s, "old", "192.0.2.0", "Assigned")
	if got := p.Status(); !got.Writing || !strings.HasPrefix(got.Error, "more than 100 claims") || got.Usage.Pending[ipam.ClaimLimit] != 1 {
		t.Errorf("writing %v, error %q, %v", got.Writing, got.Error, got.Usage.Pending)
	}
	for range 3 {
		s.remove(junkLease(x, 0))
		x = x.Prev()
	}
	has(t, s, "new", "192.0.2.1", "Assigned")
	eventually(t, "no error", func() bool { return p.Status().Error == "" })
}
