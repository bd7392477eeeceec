package linux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

// BenchmarkProgram programs services of 10 backends each completely (sets, rules,
// virtual and real servers, addresses) and beside it lets ipvsadm restore the same
// IPVS content, before and after, in the same boot.
//
// Each is done in a network namespace of its own: IPVS keeps removed real servers
// for two minutes and looks for them with every one that is added, so that
// whoever comes second to a namespace takes many times as long.
func BenchmarkProgram(b *testing.B) {
	inBox(b)
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				before := phase(b, "TestPhaseIpvsadm", n)
				ours := phase(b, "TestPhaseWeir", n)
				after := phase(b, "TestPhaseIpvsadm", n)
				ratio := 2 * ours.Seconds() / (before + after).Seconds()
				b.Logf("%d services: weir %v, ipvsadm -R %v and %v, ratio %.3f", n, ours, before, after, ratio)
				b.ReportMetric(ratio, "ratio")
			}
		})
	}
}

var took = regexp.MustCompile(`TOOK (\d+)`)

// phase runs a test of this binary in a fresh network namespace and gives the
// time that it says it took.
func phase(b *testing.B, test string, n int) time.Duration {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("unshare", "-n", self, "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_PHASE=%d", n))
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", test, err, out)
	}
	b.Logf("%s", out)
	m := took.FindSubmatch(out)
	if m == nil {
		b.Fatalf("%s does not say how long it took", test)
	}
	us, _ := strconv.Atoi(string(m[1]))
	return time.Duration(us) * time.Microsecond
}

func phaseSize(t *testing.T) int {
	t.Helper()
	inBox(t)
	n, err := strconv.Atoi(os.Getenv("WEIR_PHASE"))
	if err != nil {
		t.Skip("SKIPPED: a part of BenchmarkProgram")
	}
	sh(t, "ip link set lo up")
	return n
}

func TestPhaseIpvsadm(t *testing.T) {
	n := phaseSize(t)
	cmd := exec.Command("ipvsadm", "-R")
	cmd.Stdin, cmd.Stderr = strings.NewReader(ipvsadmText(manyServices(n))), os.Stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("ipvsadm -R: %v", err)
	}
	t.Logf("TOOK %d us", time.Since(start).Microseconds())
}

func TestPhaseWeir(t *testing.T) {
	n := phaseSize(t)
	k := newKernel(t)
	all := append(base(lb.IPv4, lb.IPv6), manyServices(n)...)
	t.Logf("TOOK %d us", program(t, k, all).Microseconds())
	observe(t, k)
	observe(t, k)
	change(t, k)
	start := time.Now()
	if _, err := k.Traffic(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Logf("  read traffic: %v", time.Since(start))
	start = time.Now()
	remove(t, k, all...)
	t.Logf("  remove everything: %v", time.Since(start))
}

func program(t testing.TB, k *Kernel, objects []lb.Object) time.Duration {
	t.Helper()
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
		apply(t, k, ops[:n]...)
		if took := time.Since(start); took > time.Millisecond {
			t.Logf("  %-60s x%-6d %8v %6.1f us each", ops[0], n, took.Round(time.Millisecond), float64(took.Microseconds())/float64(n))
		}
		ops = ops[n:]
	}
	return time.Since(begin)
}

func observe(t testing.TB, k *Kernel) {
	t.Helper()
	start := time.Now()
	obs, err := k.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("  observe %d objects: %v", len(obs.Objects), time.Since(start))
}

// change alters one backend and counts what that takes.
func change(t testing.TB, k *Kernel) {
	t.Helper()
	rs := manyServices(1)[5].(lb.RealServer)
	rs.Weight = 7
	c := k.Counters()
	messages, execs := c.IPVS.Messages.Load(), c.Execs.Load()
	start := time.Now()
	apply(t, k, lb.Op{Verb: lb.Change, Object: rs})
	t.Logf("  change one backend: %v, %d netlink messages, %d execs", time.Since(start),
		c.IPVS.Messages.Load()-messages, c.Execs.Load()-execs)
}
