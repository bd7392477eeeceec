package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

var (
	web    = lb.ServiceID{Source: "static", Name: "web"}
	dns    = lb.ServiceID{Source: "static", Name: "dns"}
	port80 = lb.PortKey{Port: 80, Proto: lb.TCP}
	lost80 = map[lb.FamilyPort]bool{{Port: port80, Family: lb.IPv4}: true}
	addrs  = cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y })
)

// backend is 10.0.0.1:80 for 0, and so on.
func backend(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)}), 80)
}

// tcpCheck checks every second, needs two to rise and three to fall.
func tcpCheck() Check {
	return Check{Kind: TCP, Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3}
}

// group is a Service with n backends on port 80.
func group(id lb.ServiceID, c Check, n int) Group {
	p := lb.Port{Port: 80, Proto: lb.TCP}
	for i := range n {
		p.Backends = append(p.Backends, lb.Backend{Addr: backend(i), Weight: 1})
	}
	return Group{Service: id, Check: c, Ports: []lb.Port{p}, Quorum: 1}
}

// world is a network in which every address accepts by default.
type world struct {
	mu     sync.Mutex
	broken map[string]error // errHang: never answers
	began  time.Time
	calls  map[string][]time.Duration // since began
	now    int
	most   int // calls at the same time
}

type hang struct{ error }

var errHang = hang{}

func newWorld() *world {
	return &world{broken: map[string]error{}, calls: map[string][]time.Duration{}, began: time.Now()}
}

func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	err := w.broken[address]
	w.calls[address] = append(w.calls[address], time.Since(w.began))
	w.now++
	w.most = max(w.most, w.now)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
	}()
	if errors.Is(err, errHang) {
		<-ctx.Done()
		err = ctx.Err()
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Err: err}
	}
	conn, other := net.Pipe()
	other.Close()
	return conn, nil
}

func (w *world) set(a netip.AddrPort, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[a.String()] = err
}

func (w *world) mostAtOnce() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

func (w *world) callsTo(a netip.AddrPort) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[a.String()]
}

// start runs a Checker in w until the test ends.
func start(t *testing.T, w *world, opts Options) *Checker {
	t.Helper()
	opts.Dial = w.dial
	c := New(opts)
	running(t, c)
	return c
}

func running(t *testing.T, c *Checker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// after lets d pass, with all events.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantHealth(t *testing.T, c *Checker, want map[lb.ServiceID]lb.Health) {
	t.Helper()
	if diff := cmp.Diff(want, c.Health(), addrs); diff != "" {
		t.Fatalf("health (-want +got):\n%s", diff)
	}
}

func allUp(ids ...lb.ServiceID) map[lb.ServiceID]lb.Health {
	out := map[lb.ServiceID]lb.Health{}
	for _, id := range ids {
		out[id] = lb.Health{}
	}
	return out
}

func isDown(backends ...int) lb.Health {
	h := lb.Health{Down: map[netip.AddrPort]bool{}}
	for _, i := range backends {
		h.Down[backend(i)] = true
	}
	return h
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
