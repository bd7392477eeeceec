package health

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"weir/lb"
)

// asServer turns the test binary into a server that accepts and closes, so that its work does
// not count as the Checker's.
const asServer = "WEIR_HEALTH_BENCH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() { // the benchmark's end of the pipe closes with it
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
	}
}

// otherProcess starts a server that answers on all of 127.0.0.0/8.
func otherProcess(b *testing.B) (port uint16) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stdin.Close(); cmd.Wait() })
	if _, err := fmt.Fscan(stdout, &port); err != nil {
		b.Fatal(err)
	}
	return port
}

// manyTargets is a group of n backends on loopback addresses.
func manyTargets(n int, port uint16, c Check) Group {
	g := Group{Service: lb.ServiceID{Source: "static", Name: "many"}, Check: c, Quorum: 1}
	p := lb.Port{Proto: lb.TCP, Port: 80}
	for i := range n {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 127<<24|1<<16|uint32(i))
		p.Backends = append(p.Backends, lb.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4(a), port), Weight: 1})
	}
	g.Ports = []lb.Port{p}
	return g
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTCP5000 checks 5,000 backends every 2 s; an iteration is 5,000 checks. %cpu is of
// one core, kernel included.
func BenchmarkTCP5000(b *testing.B) {
	const targets = 5000
	c := New(Options{})
	c.Set([]Group{manyTargets(targets, otherProcess(b), Check{
		Kind: TCP, Interval: 2 * time.Second, Jitter: 0.1, Timeout: time.Second, Rise: 2, Fall: 3,
	})})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	started := time.Now()
	go func() { done <- c.Run(ctx) }()
	if err := c.Ready(ctx); err != nil {
		b.Fatal(err)
	}
	toReady := time.Since(started)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, first, at := cpuTime(b), c.Stats(), time.Now()
	tick := time.NewTicker(2 * time.Second)
	for b.Loop() {
		<-tick.C
	}
	cpu = cpuTime(b) - cpu
	runtime.ReadMemStats(&after)
	last := c.Stats()
	checks := float64(last.Checks - first.Checks)
	b.ReportMetric(100*cpu.Seconds()/time.Since(at).Seconds(), "%cpu")
	b.ReportMetric(float64(cpu.Microseconds())/checks, "us-cpu/check")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/checks, "allocs/check")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/checks, "B/check")
	b.ReportMetric(checks/time.Since(at).Seconds(), "checks/s")
	b.ReportMetric(float64(last.Failures), "failures")
	b.ReportMetric(toReady.Seconds(), "s-to-ready")
	cancel()
	<-done
}

// BenchmarkFirstResults checks 2,000 new backends, all of them one server in this process,
// until each has a result: 200 with -short.
func BenchmarkFirstResults(b *testing.B) {
	targets := 2000
	if testing.Short() {
		targets = 200
	}
	id := newIdentity(b)
	const ok = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
	for _, bb := range []struct {
		check Check
		addr  netip.AddrPort
	}{
		{Check{Kind: TCP}, serve(b, "0.0.0.0", silent)},
		{Check{Kind: HTTP, Path: "/"}, serve(b, "0.0.0.0", replies(ok))},
		{Check{Kind: HTTPS, Path: "/"}, serve(b, "0.0.0.0", id.secure(replies(ok)))},
		{Check{Kind: GRPC}, grpcServer(b)},
	} {
		b.Run(string(bb.check.Kind), func(b *testing.B) {
			bb.check.Interval, bb.check.Timeout, bb.check.Rise, bb.check.Fall = time.Hour, 5*time.Second, 1, 1
			g := manyTargets(targets, bb.addr.Port(), bb.check)
			b.ReportAllocs()
			for b.Loop() {
				c := New(Options{})
				c.Set([]Group{g})
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan error)
				go func() { done <- c.Run(ctx) }()
				if err := c.Ready(ctx); err != nil || c.Stats().Failures > 0 {
					b.Fatal(err, c.Stats().Failures, c.Backends()[0].Error)
				}
				cancel()
				<-done
			}
		})
	}
}

// BenchmarkSet10000 reloads 10,000 Services of 10 backends, nothing changed.
func BenchmarkSet10000(b *testing.B) {
	groups := make([]Group, 10000)
	for i := range groups {
		groups[i] = manyTargets(10, 80, Check{
			Kind: HTTP, Path: "/", Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
		})
		groups[i].Service.Name = fmt.Sprintf("s%05d", i)
	}
	c := New(Options{})
	c.Set(groups)
	b.ReportAllocs()
	for b.Loop() {
		c.Set(groups)
	}
}

// checker10000 has 10,000 Services of 10 backends, all up.
func checker10000() *Checker {
	groups := make([]Group, 10000)
	for i := range groups {
		groups[i] = manyTargets(10, 80, Check{Kind: TCP, Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3})
		groups[i].Service.Name = fmt.Sprintf("s%05d", i)
	}
	c := New(Options{})
	c.Set(groups)
	for _, p := range c.table.probes {
		c.table.asking++
		c.table.finish(answer{probe: p}, time.Time{})
	}
	return c
}

// BenchmarkHealth10000 reads a snapshot when nothing has changed.
func BenchmarkHealth10000(b *testing.B) {
	c := checker10000()
	b.ReportAllocs()
	for b.Loop() {
		c.Health()
	}
}

// BenchmarkTurned10000 reads what has changed after one answer.
func BenchmarkTurned10000(b *testing.B) {
	c := checker10000()
	c.Turned()
	flapping := c.table.backends[0]
	b.ReportAllocs()
	for b.Loop() {
		flapping.port.decide()
		if turned, _ := c.Turned(); len(turned) != 1 {
			b.Fatalf("%d Services have turned", len(turned))
		}
	}
}

// BenchmarkCount10000 counts the backends by state, as each pass of the daemon does, and in a walk over all of them.
func BenchmarkCount10000(b *testing.B) {
	c := checker10000()
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			if n := c.Count(); n.Up != 100_000 {
				b.Fatalf("%+v", n)
			}
		}
	})
	b.Run("walk", func(b *testing.B) {
		for b.Loop() {
			ups := 0
			c.Each(func(x Backend) {
				if x.State == "up" {
					ups++
				}
			})
			if ups != 100_000 {
				b.Fatalf("%d", ups)
			}
		}
	})
}
