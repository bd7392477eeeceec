package linux

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/lb"
)

// Frontends with the same real servers, added in another order and with another history, map
// 1,000 client ports to the same real servers. In the kernel's own order they don't.
func TestMaglevOrder(t *testing.T) {
	placeBackends(t)
	for _, s := range lb.Sysctls([]lb.Family{lb.IPv4}) {
		add(t, newKernel(t), s)
	}
	for _, n := range []int{10, 40, 100} {
		t.Run(fmt.Sprint(n, " backends"), func(t *testing.T) { maglevOrder(t, n) })
	}
}

// placeBackends creates a network for all backends, without any host that answers.
func placeBackends(t *testing.T) {
	t.Helper()
	inBox(t)
	inNamespace(t)
	sh(t, "ip link add backends type dummy && ip addr add 10.99.0.1/16 dev backends && ip link set backends up")
	t.Cleanup(func() { sh(t, "ip link del backends") })
	sh(t, "ipvsadm --set 900 120 300") // connections outlast the count
}

func maglevOrder(t *testing.T, n int) {
	k := newKernel(t)
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	addOne := func(f lb.Frontend, i int) lb.Op {
		addr := netip.AddrFrom4([4]byte{10, 99, 1, byte(i + 1)})
		return lb.Op{Verb: lb.Add, Object: lb.RealServer{Frontend: f, Addr: netip.AddrPortFrom(addr, 8080), Weight: uint32(1 + i%3)}}
	}
	sorted, shuffled, history, raw := hashed(t, k), hashed(t, k), hashed(t, k), hashed(t, k)
	for i := range n {
		apply(t, k, addOne(sorted, i))
	}
	for _, i := range rng.Perm(n) {
		apply(t, k, addOne(shuffled, i))
	}
	var all []lb.Op
	for _, i := range rng.Perm(2 * n) { // as many are deleted again
		all = append(all, addOne(history, i))
	}
	apply(t, k, all...)
	for i := n; i < 2*n; i++ {
		op := addOne(history, i)
		op.Verb = lb.Delete
		apply(t, k, op)
	}
	// One is deleted and added again, and one changes its weight.
	gone, light := addOne(history, 0), addOne(history, 1)
	gone.Verb = lb.Delete
	lighter := light.Object.(lb.RealServer)
	lighter.Weight = 0
	apply(t, k, gone, lb.Op{Verb: lb.Change, Object: lighter})
	apply(t, k, addOne(history, 0))
	light.Verb = lb.Change
	apply(t, k, light)
	for _, i := range rng.Perm(n) {
		must(t, firstError(k.ipvs.applyDests(context.Background(), []lb.Op{addOne(raw, i)})))
	}

	orders := k.Orders()
	if orders[sorted] != orders[shuffled] || orders[sorted] != orders[history] {
		t.Errorf("digests differ: %v", orders)
	}
	const ports, first = 1000, 10000
	want := mapping(t, k, sorted, first, ports)
	for name, f := range map[string]lb.Frontend{"added in another order": shuffled, "with another history": history} {
		if same := agree(want, mapping(t, k, f, first, ports)); same != ports {
			t.Errorf("%s: %d of %d client ports get the same backend", name, same, ports)
		}
	}
	same := agree(want, mapping(t, k, raw, first, ports))
	t.Logf("%d backends, %d client ports: 100%% get the same backend in order, %.2f%% in the order that the kernel makes",
		n, ports, 100*float64(same)/ports)
	if n >= 40 && same == ports {
		t.Error("the kernel's own order makes no difference: this test shows nothing")
	}
	repairOrder(t, k, raw, sorted)
}

// repairOrder checks that an observation detects the wrong order of raw, and that the
// resulting op repairs it.
func repairOrder(t *testing.T, k *Kernel, raw, sorted lb.Frontend) {
	t.Helper()
	obs, err := k.Observe(context.Background(), nil)
	must(t, err)
	var ops []lb.Op
	for o := range obs.Objects.All() {
		rs, ok := o.(lb.RealServer)
		if ok && rs.Misplaced && rs.Frontend != raw {
			t.Errorf("out of place: %s", rs)
		}
		if ok && rs.Misplaced {
			rs.Misplaced = false
			ops = append(ops, lb.Op{Verb: lb.Change, Object: rs})
		}
	}
	if len(ops) == 0 {
		t.Error("the observation does not show that the kernel's own order is another")
	}
	apply(t, k, ops...)
	if k.Orders()[raw] != k.Orders()[sorted] {
		t.Error("it is not repaired")
	}
	const ports, first = 1000, 30000
	if same := agree(mapping(t, k, sorted, first, ports), mapping(t, k, raw, first, ports)); same != ports {
		t.Errorf("repaired: %d of %d", same, ports)
	}
}

// hashedSoFar numbers the frontends of hashed.
var hashedSoFar byte

// hashed returns a new frontend with scheduler mh, at an unused address: the kernel deletes
// the connections of a previous one late.
func hashed(t *testing.T, k *Kernel) lb.Frontend {
	t.Helper()
	hashedSoFar++
	f := lb.Frontend{Addr: netip.AddrFrom4([4]byte{10, 98, 0, hashedSoFar}), Port: 53, Proto: lb.UDP}
	sh(t, "ip addr replace %s/32 dev lo", f.Addr)
	vs := lb.VirtualServer{Frontend: f, Scheduler: lb.Scheduler{Name: "mh", Flags: lb.Fallback | lb.WithPort}}
	add(t, k, vs)
	t.Cleanup(func() { remove(t, k, vs) })
	return f
}

// sendFrom sends one datagram from each of n ports.
func sendFrom(t *testing.T, f lb.Frontend, first, n int) {
	t.Helper()
	c, err := net.ListenPacket("ip4:udp", "10.99.0.1")
	must(t, err)
	defer c.Close()
	for i := range n {
		packet := make([]byte, 9)
		binary.BigEndian.PutUint16(packet, uint16(first+i))
		binary.BigEndian.PutUint16(packet[2:], f.Port)
		binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)))
		if _, err := c.WriteTo(packet, &net.IPAddr{IP: f.Addr.AsSlice()}); err != nil {
			t.Fatal(err)
		}
	}
}

// mapping sends one datagram from each of n ports, and returns the backends that the kernel
// selected.
func mapping(t *testing.T, k *Kernel, f lb.Frontend, first, n int) map[uint16]netip.AddrPort {
	t.Helper()
	sendFrom(t, f, first, n)
	out := map[uint16]netip.AddrPort{}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		clear(out)
		err := k.Connections(context.Background(), func(c Connection) bool {
			if port := int(c.Client.Port()); c.Frontend() == f && port >= first && port < first+n {
				out[c.Client.Port()] = c.Backend
			}
			return true
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case len(out) == n:
			return out
		case time.Now().After(end): // Linux 7.x lists only a part while it resizes the table (ip_vs_conn_array)
			t.Fatalf("%d connections of %s, want %d", len(out), f, n)
		}
	}
}

func agree(a, b map[uint16]netip.AddrPort) (same int) {
	for port, backend := range a {
		if b[port] == backend {
			same++
		}
	}
	return same
}

// A move of real servers cuts no connection: a hundred clients continue while both backends
// move many times.
func TestMaglevOrderUnderLoad(t *testing.T) {
	s := newSite(t)
	add(t, s.k, web(vip4, lb.SetLoadBalancer, 1)...)
	f := lb.Frontend{Addr: vip4, Port: 80, Proto: lb.TCP}
	apply(t, s.k, lb.Op{Verb: lb.Change, Object: lb.VirtualServer{Frontend: f, Scheduler: lb.Scheduler{Name: "mh", Flags: lb.Fallback | lb.WithPort}}})
	add(t, s.k, lb.RealServer{Frontend: f, Addr: netip.AddrPortFrom(backendAddr(vip4, 2), 8080), Weight: 1})

	const clients = 100
	var wg sync.WaitGroup
	var answers, cut atomic.Int64
	backend := [clients]string{}
	stop := make(chan struct{})
	for i := range clients {
		c, err := s.dial("client", "tcp", "192.0.2.1:80")
		must(t, err)
		wg.Go(func() {
			in := bufio.NewScanner(c)
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				c.SetDeadline(time.Now().Add(2 * patience))
				if _, err := io.WriteString(c, "who?\n"); err != nil || !in.Scan() || backend[i] != "" && backend[i] != in.Text() {
					t.Logf("client %d: %v, %v, %q after %q", i, err, in.Err(), in.Text(), backend[i])
					cut.Add(1)
					return
				}
				backend[i] = in.Text()
				answers.Add(1)
			}
		})
	}
	// One that sorts before both and has weight 0 at once: it gets hardly any clients.
	first := lb.RealServer{Frontend: f, Addr: netip.MustParseAddrPort("10.2.0.9:8080")}
	before := s.k.Counters().Moved.Load()
	for range 30 {
		apply(t, s.k, lb.Op{Verb: lb.Add, Object: first})
		time.Sleep(50 * time.Millisecond)
		apply(t, s.k, lb.Op{Verb: lb.Delete, Object: first})
	}
	close(stop)
	wg.Wait()
	moved := s.k.Counters().Moved.Load() - before
	names := slices.Sorted(maps.Keys(func() map[string]bool {
		out := map[string]bool{}
		for _, m := range backend {
			out[m] = true
		}
		return out
	}()))
	t.Logf("%d real servers moved, %d answers to %d connections on %v, %d connections cut", moved, answers.Load(), clients, names, cut.Load())
	if moved != 60 || cut.Load() > 0 || answers.Load() < clients || len(names) != 2 {
		t.Error("want 60 moved, 2 backends and no connection cut")
	}
	if got := sh(t, "cat /proc/sys/net/ipv4/vs/expire_nodest_conn"); got != "1\n" {
		t.Errorf("expire_nodest_conn is %q now, want 1", got)
	}
}

// A draining real server keeps its place in the table when it moves, and its weight.
func TestMaglevOrderKeepsThePlaceOfADrainingServer(t *testing.T) {
	placeBackends(t)
	k := newKernel(t)
	still, moves := hashed(t, k), hashed(t, k)
	server := func(f lb.Frontend, i, weight int) lb.RealServer {
		addr := netip.AddrFrom4([4]byte{10, 99, 1, byte(i)})
		return lb.RealServer{Frontend: f, Addr: netip.AddrPortFrom(addr, 8080), Weight: uint32(weight)}
	}
	for _, f := range []lb.Frontend{still, moves} {
		for i := 2; i <= 5; i++ {
			apply(t, k, lb.Op{Verb: lb.Add, Object: server(f, i, 3)})
		}
		if f == still {
			apply(t, k, lb.Op{Verb: lb.Add, Object: server(f, 1, 3)})
		}
		apply(t, k, lb.Op{Verb: lb.Change, Object: server(f, 4, 0)})
	}
	apply(t, k, lb.Op{Verb: lb.Add, Object: server(moves, 1, 3)})
	const ports = 2000
	if same := agree(mapping(t, k, still, 10000, ports), mapping(t, k, moves, 10000, ports)); same != ports {
		t.Errorf("%d of %d client ports get the same backend", same, ports)
	}
	obs, err := k.Observe(context.Background(), nil, moves)
	must(t, err)
	if got, _ := obs.Objects.Get(server(moves, 4, 0)); got != server(moves, 4, 0) {
		t.Errorf("it has become %v", got)
	}
}
