package linux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

// BenchmarkProgram programs services of 10 backends each completely (sets, rules,
// virtual and real servers, addresses) and beside it lets ipvsadm restore the same
// IPVS content, before and after, in the same boot.
func BenchmarkProgram(b *testing.B) {
	inBox(b)
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := manyServices(n)
			text := ipvsadmText(objects)
			for b.Loop() {
				before := ipvsadm(b, text)
				k := newKernel(b)
				all := append(base(lb.IPv4, lb.IPv6), objects...)
				ours := program(b, k, all)
				observe(b, k)
				observe(b, k)
				change(b, k)
				start := time.Now()
				remove(b, k, all...)
				b.Logf("  remove everything: %v", time.Since(start))
				after := ipvsadm(b, text)
				ratio := 2 * ours.Seconds() / (before + after).Seconds()
				b.Logf("%d services: weir %v, ipvsadm -R %v and %v, ratio %.3f", n, ours, before, after, ratio)
				b.ReportMetric(ratio, "ratio")
			}
		})
	}
}

// ipvsadm takes the time of `ipvsadm -R` and cleans up.
func ipvsadm(b *testing.B, text string) time.Duration {
	b.Helper()
	start := time.Now()
	cmd := exec.Command("ipvsadm", "-R")
	cmd.Stdin, cmd.Stderr = strings.NewReader(text), os.Stderr
	if err := cmd.Run(); err != nil {
		b.Fatalf("ipvsadm -R: %v", err)
	}
	took := time.Since(start)
	sh(b, "ipvsadm -C")
	return took
}

func program(b *testing.B, k *Kernel, objects []lb.Object) time.Duration {
	b.Helper()
	want := lb.NewState()
	want.Replace(lb.Owner{}, objects, map[lb.Object]struct{}{})
	ops := lb.Diff(nil, want)
	begin := time.Now()
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && sameStep(ops[n], ops[0]) {
			n++
		}
		start := time.Now()
		apply(b, k, ops[:n]...)
		if took := time.Since(start); took > time.Millisecond {
			b.Logf("  %-60s x%-6d %8v %6.1f us each", ops[0], n, took.Round(time.Millisecond), float64(took.Microseconds())/float64(n))
		}
		ops = ops[n:]
	}
	return time.Since(begin)
}

func observe(b *testing.B, k *Kernel) {
	b.Helper()
	start := time.Now()
	obs, err := k.Observe(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("  observe %d objects: %v", len(obs.Objects), time.Since(start))
}

// change alters one backend and counts what that takes.
func change(b *testing.B, k *Kernel) {
	b.Helper()
	rs := manyServices(1)[5].(lb.RealServer)
	rs.Weight = 7
	c := k.Counters()
	messages, execs := c.IPVS.Messages.Load(), c.Execs.Load()
	start := time.Now()
	apply(b, k, lb.Op{Verb: lb.Change, Object: rs})
	b.Logf("  change one backend: %v, %d netlink messages, %d execs", time.Since(start),
		c.IPVS.Messages.Load()-messages, c.Execs.Load()-execs)
}
