package k8ssync

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A namespace gets what it needs, up to an equal part, whatever the others need: no tenant
// takes the room of another.
func TestNoNamespaceTakesTheRoomOfAnother(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		d := rand.New(rand.NewPCG(seed, 1))
		u := newUsage(Budget{Service: 1000, Namespace: 50 + d.IntN(400), Cluster: 100 + d.IntN(900)})
		services, names := map[key]*service{}, 1+d.IntN(6)
		for range d.IntN(60) {
			k := key{fmt.Sprintf("ns%d", d.IntN(names)), fmt.Sprint(d.IntN(20))}
			services[k] = &service{key: k, Created: time.Unix(d.Int64N(1000), 0)}
			u.put(k, d.IntN(60))
			if services[k] != nil && d.IntN(4) == 0 {
				delete(services, k)
				u.put(k, 0)
			}
		}
		served, total := map[string]int{}, 0
		excess := u.tooMany(services)
		for k, n := range u.of {
			if !excess[k] {
				served[k.Namespace] += n
				total += n
			}
		}
		if total > u.budget.Cluster {
			t.Fatalf("seed %d: %d objects, the budget is %d", seed, total, u.budget.Cluster)
		}
		for name, need := range u.by {
			if served[name] > u.budget.Namespace {
				t.Fatalf("seed %d: %s has %d objects, the budget is %d", seed, name, served[name], u.budget.Namespace)
			}
			if part := min(u.budget.Namespace, u.budget.Cluster/len(u.by)); need <= part && served[name] != need {
				t.Fatalf("seed %d: %s needs %d, less than its part of %d, and has %d", seed, name, need, part, served[name])
			}
		}
	}
}

// The sums are those of a recomputation.
func TestUsageAddsUp(t *testing.T) {
	t.Parallel()
	d := rand.New(rand.NewPCG(7, 7))
	u, want := newUsage(Budget{10, 40, 100}), map[key]int{}
	for range 2000 {
		k := key{fmt.Sprint(d.IntN(4)), fmt.Sprint(d.IntN(10))}
		n := d.IntN(3) * d.IntN(10)
		u.put(k, n)
		if want[k] = n; n == 0 {
			delete(want, k)
		}
		total, by := 0, map[string]int{}
		for k, n := range want {
			total += n
			by[k.Namespace] += n
		}
		if u.total != total || len(u.of) != len(want) || len(u.by) != len(by) {
			t.Fatalf("total %d of %d, %d Services of %d, %d namespaces of %d", u.total, total, len(u.of), len(want), len(u.by), len(by))
		}
		for name, n := range by {
			if _, large := u.large[name]; u.by[name] != n || large != (n > 40) {
				t.Fatalf("namespace %s: %d, want %d, large %v", name, u.by[name], n, large)
			}
		}
	}
}
