package lb_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/histories"
	"weir/lb"
)

// The laws of this package hold for lb.Fake. TestFakeMatchesTheKernel checks that Fake
// behaves as a kernel does: random histories are applied to both, and after each step
// both hold the same objects, and packets meet in the kernel the fate that Fake.Connect returns.

// defaultHistories takes about five seconds. WEIR_HISTORIES multiplies it.
const defaultHistories = 40

// perBox is the number of histories with the same static rules and addresses of the box.
const perBox = 25

func TestFakeMatchesTheKernel(t *testing.T) {
	if os.Getenv("WEIR_IN_BOX") == "" {
		t.Skip("SKIPPED: needs a kernel of its own with IPVS; run it in a box of weirlab: go test -run TestFakeMatchesTheKernel ./cmd/weirlab/e2e")
	}
	n := int(histories.Times(defaultHistories))
	s := newSite(t)
	start, met := time.Now(), map[string]int{}
	var f *lb.Fake
	for seed := range n {
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			s := &site{t, s.network}
			if box := seed / perBox; f == nil || seed%perBox == 0 {
				f = s.become(lb.NewGen(uint64(1_000_000 + box)))
			}
			h := &history{site: s, Gen: lb.NewGen(uint64(seed)), fake: f, met: met}
			h.run()
		})
		if !ok {
			f = nil // the next history begins with a kernel of which nothing is known
		}
	}
	for _, fate := range []lb.Fate{lb.Unrouted, lb.Dropped, lb.Refused, lb.HostPort, lb.Served} {
		if met[string(fate)] < n/10 && !t.Failed() {
			t.Errorf("%d histories met fate %q %d times: the generator has lost it", n, fate, met[string(fate)])
		}
	}
	if s.inNFTables() && met["rules kept"] == 0 {
		t.Error("no reading kept the rules")
	}
	t.Logf("%d histories (seeds 0 to %d) in %s: %v", n, n-1, time.Since(start).Round(time.Second), met)
}

// become makes the kernel one without Services, with the rules and addresses of a
// random Fake, and returns that Fake.
func (s *site) become(g *lb.Gen) *lb.Fake {
	s.Helper()
	f := g.Fake()
	s.config.ClusterCIDRs, s.config.MasqueradeAll = f.ClusterCIDRs, f.MasqueradeAll
	if err := s.k.Configure(s.config); err != nil {
		s.Fatal(err)
	}
	var batch strings.Builder
	for _, a := range s.extra {
		fmt.Fprintf(&batch, "addr del %s/%d dev eth1\n", a, a.BitLen())
	}
	s.extra = nil
	for _, a := range slices.SortedFunc(maps.Keys(lb.HostsOf(f)), netip.Addr.Compare) {
		if slices.Contains(hostAddrs, a) || a.IsLinkLocalUnicast() {
			continue
		}
		s.extra = append(s.extra, a)
		fmt.Fprintf(&batch, "addr add %s/%d dev eth1\n", a, a.BitLen())
	}
	s.must(batch.String(), "ip", "-batch", "-")
	obs, err := s.k.Observe(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	f.HostAddrs = obs.HostAddrs
	want := lb.WantOf(f, nil, s.options(lb.Options{Base: lb.BaseOfLaws()}), nil)
	for ops := lb.Diff(obs.Objects.Snapshot(), want); len(ops) > 0; {
		n := steps(ops)
		for i, err := range s.k.Apply(s.Context(), ops[:n]) {
			if err != nil {
				s.Fatalf("%s: %v", ops[i], err)
			}
		}
		ops = ops[n:]
	}
	for _, o := range want.Snapshot() {
		f.Put(o)
	}
	return f
}

// steps returns how many of ops one call of Apply may carry out.
func steps(ops []lb.Op) int {
	n := 1
	for n < len(ops) && lb.SameStep(ops[n], ops[0]) {
		n++
	}
	return n
}

// history is a sequence of random steps.
type history struct {
	*site
	*lb.Gen
	fake     *lb.Fake
	met      map[string]int // number of connections of each fate
	services []lb.Service   // all that ever were
	universe []lb.Object    // objects of such Services
	log      []string
	// unordered are the frontends with real servers in any order: lb/linux keeps the order
	// only for mh, and only without servers of other programs.
	unordered map[lb.Frontend]bool
	held      *lb.Table // when all was read last
	foreign   bool      // another program has changed sets or rules since then
}

func (h *history) run() {
	h.unordered = map[lb.Frontend]bool{}
	for range 2 + h.IntN(3) {
		switch {
		case len(h.universe) == 0 || h.Chance(50) || h.byRules():
			h.plan()
		case h.Chance(50):
			h.chaos()
		default:
			h.others()
		}
		h.compare(h.Chance(40))
		h.packets()
		if h.Failed() {
			h.Logf("history:\n%s", strings.Join(h.log, "\n"))
			return
		}
	}
	h.apply(lb.Diff(h.fake.Objects(), lb.WantOf(h.fake, nil, h.options(lb.Options{Base: lb.BaseOfLaws()}), nil)))
	if h.compare(true); h.Failed() {
		h.Logf("history:\n%s", strings.Join(h.log, "\n"))
	}
}

// plan goes to the state of other Services, and stops on the way now and then. Without IPVS a history has whole
// states only: Fake has virtual servers in front of the sets, where rules need their members to find one.
func (h *history) plan() {
	services := h.Services()
	h.services = append(h.services, services...)
	want := lb.WantOf(h.fake, services, h.options(h.Options()), h.Health(services))
	for _, o := range want.Snapshot() {
		h.universe = append(h.universe, o)
	}
	slices.SortFunc(h.universe, lb.Compare)
	ops := lb.Diff(h.fake.Objects(), want)
	if !h.byRules() && h.Chance(30) {
		ops = ops[:h.IntN(len(ops)+1)]
	}
	h.apply(ops)
}

// apply carries out ops in both, and compares the results of each.
func (h *history) apply(ops []lb.Op) {
	for len(ops) > 0 {
		n := steps(ops)
		got, want := h.k.Apply(h.Context(), ops[:n]), h.fake.Apply(h.Context(), ops[:n])
		for i, op := range ops[:n] {
			h.log = append(h.log, fmt.Sprintf("%s: %v", op, got[i]))
			if (got[i] == nil) != (want[i] == nil) {
				h.Errorf("%s: kernel: %v, Fake: %v", op, got[i], want[i])
			}
			if r, ok := op.Object.(lb.Rules); ok && op.Verb == lb.Delete && got[i] == nil && h.inNFTables() {
				h.loseTable(r.Family)
			}
			if vs, ok := op.Object.(lb.VirtualServer); ok && got[i] == nil {
				if op.Verb == lb.Delete {
					delete(h.unordered, vs.Frontend)
				} else if vs.Scheduler.Name != "mh" {
					h.unordered[vs.Frontend] = true
				}
			}
		}
		ops = ops[n:]
	}
}

// chaos adds, changes and deletes objects in no sensible order, present and absent ones,
// possible and impossible ones.
func (h *history) chaos() {
	for range 1 + h.IntN(15) {
		o := h.universe[h.IntN(len(h.universe))]
		verb := lb.Verb(h.IntN(3))
		switch o.(type) {
		case lb.Sysctl:
			continue
		case lb.Device, lb.IPSet, lb.Rules: // they take long
			if !h.Chance(10) {
				continue
			}
		}
		h.apply([]lb.Op{{Verb: verb, Object: h.mutate(o)}})
	}
}

// mutate returns an object other attributes, those that a kernel refuses too.
func (h *history) mutate(o lb.Object) lb.Object {
	switch o := o.(type) {
	case lb.VirtualServer:
		o.Affinity = []uint32{0, 60, 3600}[h.IntN(3)]
		names := slices.Sorted(maps.Keys(lb.Schedulers))
		names = slices.DeleteFunc(names, func(s string) bool { return s == "twos" }) // not in Linux 6.1
		if o.Scheduler.Name = names[h.IntN(len(names))]; h.Chance(3) {
			o.Scheduler.Name = "nosuch"
		}
		o.Scheduler.Flags = 0
		return o
	case lb.RealServer:
		o.Weight = []uint32{0, 1, 2, 5, 100000, 1 << 31}[h.IntN(6)]
		limits := [][2]uint32{{}, {}, {100000, 1000}, {1000, 100000}}[h.IntN(4)]
		o.Upper, o.Lower = limits[0], limits[1]
		if h.Chance(5) {
			o.Addr = netip.MustParseAddrPort([]string{"[fd00::1]:8080", "10.0.0.1:8080"}[h.IntN(2)])
		}
		return o
	case lb.Member:
		if o.Mark != 0 {
			o.Mark = 1 + uint32(h.IntN(9))
		}
		return o
	case lb.PoolRoute:
		o.Src = []netip.Addr{{}, netip.MustParseAddr("10.9.9.1"), netip.MustParseAddr("10.9.9.9")}[h.IntN(3)]
		return o
	}
	return o
}

// compare observes both: everything, or the virtual servers of the history only, since
// to read the rules takes longer than all the rest together.
func (h *history) compare(all bool) {
	h.Helper()
	only := h.frontends()
	if all {
		only = nil
	}
	want, err := h.fake.Observe(h.Context(), nil, only...)
	if err != nil {
		h.Fatal(err)
	}
	var expected *lb.Table
	if all {
		expected = h.held
	}
	got, err := h.k.Observe(h.Context(), expected, only...)
	if err == nil && got.Kept() != lb.KeptNothing {
		h.met["rules kept"]++
		if h.foreign {
			h.Errorf("a reading keeps rules that another program has changed")
		}
		got, err = h.k.Observe(h.Context(), nil)
	}
	if err != nil {
		h.Fatal(err)
	}
	if all {
		h.held, h.foreign = &got.Objects, false
	}
	found := got.Objects.Snapshot()
	for id, o := range found {
		if rs, ok := o.(lb.RealServer); ok && rs.Misplaced && h.unordered[rs.Frontend] {
			rs.Misplaced = false
			found[id] = rs
		}
	}
	if d := gocmp.Diff(want.Objects.Snapshot(), found, comparers); d != "" {
		h.Errorf("objects (-Fake +kernel):\n%s", d)
	}
	if d := gocmp.Diff(keys(want.HostAddrs), keys(got.HostAddrs), comparers); all && d != "" {
		h.Errorf("addresses of the box (-Fake +kernel):\n%s", d)
	}
}

func keys(m map[netip.Addr]string) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}

var comparers = gocmp.Options{
	gocmp.Comparer(func(a, b netip.Addr) bool { return a == b }), gocmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	gocmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

// frontends are those of the history, and one that never is.
func (h *history) frontends() []lb.Frontend {
	out := []lb.Frontend{{Addr: netip.MustParseAddr("192.0.2.1"), Port: 4711, Proto: lb.TCP}}
	for _, o := range h.universe {
		if vs, ok := o.(lb.VirtualServer); ok && !slices.Contains(out, vs.Frontend) {
			out = append(out, vs.Frontend)
		}
	}
	return out
}
