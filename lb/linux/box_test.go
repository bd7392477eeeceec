package linux

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/lb"
)

// inBox skips a test that needs a kernel with IPVS to itself. cmd/weirlab/e2e
// (kernel_test.go) starts this test binary in a box with WEIR_IN_BOX=1.
func inBox(t testing.TB) {
	t.Helper()
	if os.Getenv("WEIR_IN_BOX") == "" {
		t.Skip("SKIPPED: needs a kernel of its own with IPVS; run it in a box of weirlab: go test -run TestLinuxPackage ./cmd/weirlab/e2e")
	}
}

// testMode is that of newKernel: TestWithoutIPVS runs tests once more in the other.
var testMode = ModeIPVS

// testBackend is that of newKernel: cmd/weirlab/e2e runs tests once more with nf_tables.
var testBackend = Backend(cmp.Or(os.Getenv("WEIR_RULES"), string(AutoBackend)))

func newKernel(t testing.TB, change ...func(*Config)) *Kernel {
	t.Helper()
	c := DefaultConfig()
	c.Mode, c.Backend = testMode, testBackend
	for _, f := range change {
		f(&c)
	}
	k, err := New(context.Background(), c)
	must(t, err)
	t.Cleanup(k.Close)
	k.watcher.pace = pace{poll: 50 * time.Millisecond, minInterval: 200 * time.Millisecond, tableInterval: 200 * time.Millisecond}
	return k
}

// sh runs a shell command and gives its output.
func sh(t testing.TB, format string, args ...any) string {
	t.Helper()
	command := fmt.Sprintf(format, args...)
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// add applies objects in the order of their steps and fails the test at the first
// error.
func add(t testing.TB, k *Kernel, objects ...lb.Object) {
	t.Helper()
	want := lb.NewState()
	want.Replace(lb.Owner{}, objects, map[lb.Object]struct{}{})
	apply(t, k, lb.Diff(nil, want)...)
	routed(t, objects)
}

// routed waits until the IPv6 addresses among objects are reachable: the kernel adds their
// local routes after it has acknowledged the address (addrconf's work queue), and drops
// packets before.
func routed(t testing.TB, objects []lb.Object) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); ; <-tick.C {
		table, err := os.ReadFile("/proc/net/ipv6_route")
		must(t, err)
		missing := lb.Object(nil)
		for _, o := range objects {
			a, ok := o.(lb.Address)
			if ok && a.Addr.Is6() && !strings.Contains(string(table), fmt.Sprintf("%x 80 ", a.Addr.As16())) {
				missing = o
			}
		}
		if missing == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has no route", missing)
		}
	}
}

func remove(t testing.TB, k *Kernel, objects ...lb.Object) {
	t.Helper()
	apply(t, k, lb.Diff(lb.NewSnapshot(objects...), lb.NewState())...)
}

func apply(t testing.TB, k *Kernel, ops ...lb.Op) {
	t.Helper()
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && sameStep(ops[n], ops[0]) {
			n++
		}
		for i, err := range k.Apply(context.Background(), ops[:n]) {
			if err != nil {
				t.Fatalf("%s: %v", ops[i], err)
			}
		}
		k.flows.wait(nil) // a slow machine may need more time than Apply has
		ops = ops[n:]
	}
}

func sameStep(a, b lb.Op) bool {
	ma, ok := a.Object.(lb.Member)
	if mb, both := b.Object.(lb.Member); ok && both && ma.Set != mb.Set {
		return false
	}
	return a.Verb == b.Verb && reflect.TypeOf(a.Object) == reflect.TypeOf(b.Object)
}

// base is what every box has.
func base(families ...lb.Family) []lb.Object {
	out := []lb.Object{lb.Device{Name: "kube-ipvs0"}}
	for _, f := range families {
		out = append(out, lb.Rules{Family: f})
		for _, s := range lb.Sets() {
			out = append(out, lb.IPSet{Set: s, Family: f})
		}
	}
	return out
}
