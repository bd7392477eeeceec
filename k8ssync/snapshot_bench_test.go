package k8ssync

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// bigCluster has n Services of ten endpoints.
func bigCluster(n int) *objects {
	o := newObjects(most)
	for i := range n {
		space, name := "bench", fmt.Sprintf("service-%05d", i)
		if i >= most.services/2 {
			space = "more" // no namespace may have more than half
		}
		o.put(&service{
			key: key{space, name}, UID: "6f5c1c8e-5d0e-4e4e-9f7e-" + fmt.Sprintf("%012d", i), Created: time.Unix(int64(i), 0).UTC(), Type: "ClusterIP",
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports:      []servicePort{{Name: "http", Proto: "TCP", Port: 80}},
		}, time.Time{}, time.Time{})
		sl := &slice{key: key{space, name + "-x"}, Service: name, Ports: []slicePort{{"http", "TCP", 8080}}}
		for e := range 10 {
			sl.Endpoints = append(sl.Endpoints, endpoint{
				Addr: netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), byte(e)}), Node: fmt.Sprintf("node-%d", e), Zone: "a", Ready: true, Serving: true,
			})
		}
		o.put(sl, time.Time{}, time.Time{})
	}
	return o
}

func BenchmarkReadSnapshot(b *testing.B) {
	s := snapshotOf(bigCluster(10_000))
	file, err := s.write()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(file)), "bytes")
	for b.Loop() {
		if _, err := readSnapshot(file); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteSnapshot(b *testing.B) {
	o := bigCluster(10_000)
	for b.Loop() {
		s := snapshotOf(o)
		if _, err := s.write(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFlush is the whole of a first list, and one change among 10,000
// Services.
func BenchmarkFlush(b *testing.B) {
	const n = 10_000
	synced := func() *Cluster {
		c := New(testConfig(""), silentLog())
		c.store.live = bigCluster(n)
		for _, f := range c.conn.feeds {
			f.state.listed = true
		}
		return c
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			c := synced()
			c.translation.flush()
			if u, _ := c.Take(); len(u.Put) != n {
				b.Fatal(len(u.Put))
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		c := synced()
		c.translation.flush()
		c.Take()
		for i := 0; b.Loop(); i++ {
			sl := *c.store.live.slices[key{"bench", "service-00007-x"}]
			sl.Endpoints = sl.Endpoints[:1+i%2]
			c.store.put(&item{object: &sl})
			c.translation.flush()
			if u, _ := c.Take(); len(u.Put) != 1 {
				b.Fatal(len(u.Put))
			}
		}
	})
}

// BenchmarkHeapOfCluster reports the heap of a cluster that is synced: its objects, and with them the Services that
// were made of them. It is no measurement of weir with an API server: lists need more for a moment.
func BenchmarkHeapOfCluster(b *testing.B) {
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	for _, n := range []int{10_000, 50_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				cfg := testConfig("")
				cfg.Budget.Namespace, cfg.Budget.Cluster = 10_000_000, 10_000_000
				c := New(cfg, silentLog())
				c.store.live = bigCluster(n)
				for _, f := range c.conn.feeds {
					f.state.listed = true
				}
				b.ReportMetric(heap()-before, "objects-MiB")
				c.translation.flush()
				u, _ := c.Take()
				if len(u.Put) != n {
					b.Fatal(len(u.Put))
				}
				b.ReportMetric(heap()-before, "all-MiB")
				runtime.KeepAlive(c)
				runtime.KeepAlive(u)
			}
		})
	}
}
