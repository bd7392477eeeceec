package linux

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

func TestAsFewAsItTakesAreDisplaced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		list []int // of the kernel, the head first
		want []int // the moves to the head, in order
	}{
		{"none", nil, nil},
		{"one", []int{1}, nil},
		{"in order", []int{4, 3, 2, 1}, nil},
		{"the greatest is new", []int{5, 3, 2, 1}, nil},
		{"the smallest is new", []int{1, 4, 3, 2}, []int{2, 3, 4}},
		{"one between is new", []int{3, 5, 4, 2, 1}, []int{4, 5}},
		{"one before the last is new", []int{4, 5, 3, 2, 1}, []int{5}},
		{"upside down", []int{1, 2, 3}, []int{2, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []int
			for _, rs := range displaced(listOf(tt.list)) {
				got = append(got, int(rs.Addr.Port()))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Moves of the displaced restore any order.
func TestMovingTheDisplacedRepairsAnyOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		list := listOf(rng.Perm(rng.IntN(12)))
		for _, rs := range displaced(list) {
			i := slices.Index(list, rs)
			list = slices.Insert(slices.Delete(list, i, i+1), 0, rs)
		}
		if !slices.IsSortedFunc(list, func(a, b lb.RealServer) int { return b.Addr.Compare(a.Addr) }) {
			t.Fatalf("out of order: %v", list)
		}
	}
}

func listOf(ports []int) []lb.RealServer {
	var out []lb.RealServer
	for _, p := range ports {
		out = append(out, lb.RealServer{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(p)), Weight: 1})
	}
	return out
}

func TestDigestDependsOnOrderAndWeight(t *testing.T) {
	t.Parallel()
	list := listOf([]int{3, 2, 1})
	heavier := slices.Clone(list)
	heavier[1].Weight = 2
	seen := map[uint64]string{}
	for name, l := range map[string][]lb.RealServer{
		"list": list, "turned": listOf([]int{1, 2, 3}), "shorter": list[:2], "heavier": heavier, "none": nil,
	} {
		if other, ok := seen[digest(l)]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[digest(l)] = name
	}
	if digest(list) != digest(slices.Clone(list)) {
		t.Error("the same list has two digests")
	}
}

func TestWeightsOfDeletedServersAreForgotten(t *testing.T) {
	t.Parallel()
	o := newOrders()
	vs := lb.VirtualServer{Frontend: lb.Frontend{Addr: vip4, Port: 80, Proto: lb.TCP}, Scheduler: lb.Scheduler{Name: "mh"}}
	rs := lb.RealServer{Frontend: vs.Frontend, Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 7}
	o.note(vs)
	o.append(rs)
	rs.Weight = 0
	o.begin(vs.Frontend)
	o.append(rs)
	if got := o.weights[rs.ID()]; got != 7 {
		t.Errorf("the last weight is %d, want 7", got)
	}
	vs.Scheduler.Name = "rr"
	o.note(vs)
	if len(o.lists)+len(o.weights) > 0 {
		t.Errorf("left: %v", fmt.Sprint(o.lists, o.weights))
	}
}

// TestANewTableKnowsOrders checks that a table of the other mode can have virtual servers of
// scheduler mh, like any other.
func TestANewTableKnowsOrders(t *testing.T) {
	table := newTable(nil, 0, marking{})
	fe := frontend("192.0.2.1:80", lb.TCP)
	table.orders.note(lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: scheduler}})
	table.orders.begin(fe)
	if _, known := table.orders.lists[fe]; !known {
		t.Error("the virtual server is not known")
	}
}

// TestMovesAwaitTheFlushOfADeletion expects one wait for each deletion, and none without
// expire_nodest_conn.
func TestMovesAwaitTheFlushOfADeletion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value string
		deletions   int // the first before the wait, each other during one
		want        int
	}{
		{"no deletion", "1", 0, 0},
		{"one", "1", 1, 1},
		{"another during the wait", "1", 2, 2},
		{"connections stay in any case", "0", 1, 0},
	} {
		root := t.TempDir()
		file := sysctls{root}.file(expireNodest)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(tt.value+"\n"), 0o644)))
		table := newTable(nil, 0, marking{})
		left, waits := tt.deletions, 0
		deletion := func() {
			table.orders.deleted = time.Time{}
			if left > 0 {
				left--
				table.orders.deleted = time.Now().Add(time.Hour) // so that no slow machine matters
			}
		}
		deletion()
		o := orderer{sysctls: sysctls{root}, pause: func(time.Duration) { waits++; deletion() }}
		if waited := o.awaitFlush(table); waits != tt.want || waited != (tt.want > 0) {
			t.Errorf("%s: %d waits, want %d; waited: %v", tt.name, waits, tt.want, waited)
		}
	}
}

// TestWaitsOfMovesReleaseTheKernel ends the wait by another call that needs the lock.
func TestWaitsOfMovesReleaseTheKernel(t *testing.T) {
	t.Parallel()
	k := &Kernel{}
	ctx, cancel := context.WithCancel(t.Context())
	k.mu.Lock()
	defer k.mu.Unlock()
	go func() {
		_ = k.locked(func() error { cancel(); return nil })
	}()
	k.orderer(ctx).pause(time.Hour)
}
