package linux

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"weir/lb"
)

// inBox skips a test that needs a kernel with IPVS to itself. The lab of
// cmd/weirlab starts this test binary in a box with WEIR_IN_BOX=1.
func inBox(t testing.TB) {
	t.Helper()
	if os.Getenv("WEIR_IN_BOX") == "" {
		t.Skip("SKIPPED: needs a kernel of its own with IPVS; run it in a box of weirlab, which sets WEIR_IN_BOX=1")
	}
}

func newKernel(t testing.TB, change ...func(*Config)) *Kernel {
	t.Helper()
	c := DefaultConfig()
	for _, f := range change {
		f(&c)
	}
	k, err := New(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
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

// plainService is one LoadBalancer frontend with all that belongs to it.
func plainService(fe lb.Frontend, scheduler string, backends ...netip.AddrPort) []lb.Object {
	out := []lb.Object{
		lb.Member{Set: lb.SetIPVSIPs, Addr: fe.Addr},
		lb.Member{Set: lb.SetLoadBalancer, Addr: fe.Addr, Port: fe.Port, Proto: fe.Proto},
		lb.Member{Set: lb.SetIPVSPorts, Addr: fe.Addr, Port: fe.Port, Proto: fe.Proto},
		lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: scheduler}},
		lb.Address{Addr: fe.Addr},
	}
	for _, b := range backends {
		out = append(out, lb.RealServer{Frontend: fe, Addr: b, Weight: 1})
	}
	return out
}

// manyServices are n services of 10 backends each.
func manyServices(n int) []lb.Object {
	var out []lb.Object
	for i := range n {
		fe := lb.Frontend{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}
		var backends []netip.AddrPort
		for j := range 10 {
			backends = append(backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), 8080))
		}
		out = append(out, plainService(fe, "wrr", backends...)...)
	}
	return out
}

// ipvsadmText is the IPVS content of objects for ipvsadm -R.
func ipvsadmText(objects []lb.Object) string {
	var b strings.Builder
	for _, o := range objects {
		switch o := o.(type) {
		case lb.VirtualServer:
			fmt.Fprintf(&b, "-A -t %s:%d -s %s\n", o.Frontend.Addr, o.Frontend.Port, o.Scheduler.Name)
		case lb.RealServer:
			fmt.Fprintf(&b, "-a -t %s:%d -r %s -m -w %d\n", o.Frontend.Addr, o.Frontend.Port, o.Addr, o.Weight)
		}
	}
	return b.String()
}
