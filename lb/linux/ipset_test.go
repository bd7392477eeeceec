package linux

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// withoutIPVS returns a Kernel for tests that need no IPVS.
func withoutIPVS(c *Config) { c.WithoutIPVS = true }

func setObjects() []lb.Object {
	var out []lb.Object
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		for _, s := range lb.Sets() {
			out = append(out, lb.IPSet{Set: s, Family: f})
		}
	}
	return out
}

func snapshot(t *testing.T, k *Kernel, keep func(lb.Object) bool) lb.Snapshot {
	t.Helper()
	obs, err := k.Observe(context.Background(), nil)
	must(t, err)
	objects := obs.Objects.Snapshot()
	for id := range objects {
		if !keep(id) {
			delete(objects, id)
		}
	}
	return objects
}

// kernelHas compares the objects of a kind in the kernel with the wanted ones.
func kernelHas(t *testing.T, k *Kernel, keep func(lb.Object) bool, situation string, want ...lb.Object) {
	t.Helper()
	if d := cmp.Diff(lb.NewSnapshot(want...), snapshot(t, k, keep), compareNetip); d != "" {
		t.Errorf("%s (-want +got):\n%s", situation, d)
	}
}

func isSet(o lb.Object) bool {
	switch o.(type) {
	case lb.IPSet, lb.Member:
		return true
	}
	return false
}

func TestSetsAndMembersComeBack(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sh(t, "ipset create FOREIGN hash:ip && ipset add FOREIGN 192.0.2.9")
	t.Cleanup(func() { sh(t, "ipset destroy FOREIGN") })
	want := setObjects()
	for _, m := range someMembers() {
		want = append(want, m)
	}
	t.Cleanup(func() { remove(t, k, want...) })
	for range 2 { // present on add is success
		add(t, k, want...)
	}
	kernelHas(t, k, isSet, "added", want...)
	text := sh(t, "ipset save")
	for _, line := range []string{
		"create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip,port,net family inet6 hashsize 1024 maxelem 65536",
		"add KUBE-LOAD-BALANCER-SOURCE-CIDR 192.0.2.1,tcp:80,198.51.100.0/24",
		"add KUBE-LOOP-BACK 10.0.0.7,tcp:8080,10.0.0.7",
		"add KUBE-IPVS-PORTS 192.0.2.1,sctp:7",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("ipset save has no %q", line)
		}
	}
	for range 2 { // absent on delete is success
		remove(t, k, want...)
	}
	if got := snapshot(t, k, isSet); len(got) != 0 {
		t.Errorf("after removal: %v", got)
	}
	if got := sh(t, "ipset list -n"); got != "FOREIGN\n" {
		t.Errorf("sets left: %q", got)
	}
}

func TestSetMembersTakeAnotherMark(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sets := setObjects()
	add(t, k, sets...)
	t.Cleanup(func() { remove(t, k, sets...) })
	m := lb.Member{Set: lb.SetInternal, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP, Mark: 1}
	other := m
	other.Port = 81
	add(t, k, m, other)
	for _, verb := range []lb.Verb{lb.Add, lb.Change} {
		m.Mark++
		apply(t, k, lb.Op{Verb: verb, Object: m})
		have := snapshot(t, k, isSet)
		if have[m.ID()] != m || have[other.ID()] != other {
			t.Errorf("after %s: %v and %v", verb, have[m.ID()], have[other.ID()])
		}
	}
	if text := sh(t, "ipset save KUBE-INTERNAL"); !strings.Contains(text, "192.0.2.1,tcp:80 skbmark 0xb4000003") {
		t.Errorf("ipset list\n%s", text)
	}
	sh(t, "ipset add KUBE-INTERNAL 192.0.2.1,tcp:80 skbmark 0x7/0xff -exist")
	if got := snapshot(t, k, isSet)[m.ID()]; got == m {
		t.Errorf("a foreign edit goes unnoticed: %v", got)
	}
	add(t, k, m)
	if got := snapshot(t, k, isSet)[m.ID()]; got != m {
		t.Errorf("repaired: %v", got)
	}
}

// A set that marks grows like the others, and its members keep their marks.
func TestSetsGrowWithTheirMarks(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sh(t, "ipset create KUBE-INTERNAL hash:ip,port maxelem 2 skbinfo")
	id := lb.IPSet{Set: lb.SetInternal, Family: lb.IPv4}
	add(t, k, id)
	t.Cleanup(func() { remove(t, k, id) })
	var want []lb.Object
	for i := range 50 {
		want = append(want, lb.Member{Set: lb.SetInternal, Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Port: 80, Proto: lb.TCP, Mark: uint32(i + 1)})
	}
	add(t, k, want...)
	kernelHas(t, k, isSet, "added", append(want, id)...)
}

// Long names are truncated. No two sets of weir get the same name by that, with any prefix.
func TestSetNamesAreDistinct(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"K", "KU", "KUB", "KUBE", "KUBE2", "W-6-X"} { // at most 5 (config)
		s := sets{prefix: prefix}
		used := map[string]any{}
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			names := map[string]any{s.spare(f): "spare " + f.String()}
			for _, set := range lb.Sets() {
				names[set.Name(prefix, f)] = lb.IPSet{Set: set, Family: f}
			}
			if len(names) != len(lb.Sets())+1 {
				t.Errorf("%s: %d names for %d sets", prefix, len(names), len(lb.Sets())+1)
			}
			for name, what := range names {
				if other, ok := used[name]; ok {
					t.Errorf("%s is %v and %v", name, other, what)
				}
				if used[name] = what; len(name) > 31 {
					t.Errorf("%s has %d characters", name, len(name))
				}
			}
		}
	}
}

func TestEachMemberHasItsOwnError(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sets := setObjects()
	add(t, k, sets...)
	t.Cleanup(func() { remove(t, k, sets...) })
	var ops []lb.Op
	refused := func(i int) bool { return i == 0 || i%400 == 7 } // the first of a message is reported too
	for i := range 1000 {
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		if refused(i) {
			net = netip.MustParsePrefix("0.0.0.0/0") // which the kernel refuses
		}
		ops = append(ops, lb.Op{Verb: lb.Add, Object: lb.Member{Set: lb.SetIPVSNets, Net: net}})
	}
	for i, err := range k.Apply(context.Background(), ops) {
		if (err != nil) != refused(i) {
			t.Errorf("member %d: %v", i, err)
		}
	}
	if got, want := len(snapshot(t, k, isSet))-len(sets), 996; got != want {
		t.Errorf("%d members, want %d", got, want)
	}
}

func TestSetsGrowWithoutLosingAMember(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sets := setObjects()
	add(t, k, sets...)
	t.Cleanup(func() { remove(t, k, sets...) })
	sh(t, "%s -A INPUT -m set --match-set KUBE-LOOP-BACK src,dst,dst -j ACCEPT", anyIptables(t))
	t.Cleanup(func() { sh(t, "%s -F INPUT", anyIptables(t)) })
	var ops []lb.Op
	for i := range 150000 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		ops = append(ops, lb.Op{Verb: lb.Add, Object: lb.Member{Set: lb.SetLoopBack, Addr: a, Port: 80, Proto: lb.TCP, Net: netip.PrefixFrom(a, 32)}})
	}
	for _, part := range [][]lb.Op{ops[:65536], ops[65500:70000], ops[70000:]} {
		must(t, firstError(k.Apply(context.Background(), part)))
	}
	if got := len(snapshot(t, k, isSet)) - len(sets); got != len(ops) {
		t.Errorf("%d members, want %d", got, len(ops))
	}
	if got := sh(t, "ipset list -n"); strings.Contains(got, "GROWING") {
		t.Errorf("sets left: %s", got)
	}
	add(t, k, sets...) // a restart accepts any size
	if text := sh(t, "ipset list -t KUBE-LOOP-BACK"); !strings.Contains(text, "References: 1\n") || !strings.Contains(text, "maxelem 262144") {
		t.Errorf("the rule refers to another set:\n%s", text)
	}
}

// anyIptables is an iptables that works on this kernel.
func anyIptables(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(sh(t, "for i in iptables-legacy iptables-nft; do $i -L -n >/dev/null 2>&1 && echo $i && exit; done"))
}

func TestSetThatCannotGrowHasTheReason(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sh(t, "ipset create KUBE-IPVS-IPS hash:ip maxelem 1 && ipset create KUBE-GROWING hash:ip && ipset create USER list:set && ipset add USER KUBE-GROWING")
	t.Cleanup(func() { sh(t, "ipset destroy USER && ipset destroy KUBE-GROWING && ipset destroy KUBE-IPVS-IPS") })
	var ops []lb.Op
	for _, a := range []string{"192.0.2.1", "192.0.2.2"} {
		ops = append(ops, lb.Op{Verb: lb.Add, Object: lb.Member{Set: lb.SetIPVSIPs, Addr: netip.MustParseAddr(a)}})
	}
	errs := k.Apply(context.Background(), ops)
	if errs[0] != nil || !errors.Is(errs[1], errSetFull) || !strings.Contains(errs[1].Error(), "used by rules or sets") {
		t.Errorf("errors %v", errs)
	}
}

func TestSetErrorsNameTheFault(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	sh(t, "ipset create KUBE-IPVS-IPS hash:net && ipset create KUBE-LOAD-BALANCER hash:ip,port && ipset create OTHER list:set && ipset add OTHER KUBE-LOAD-BALANCER")
	sh(t, "ipset create KUBE-INTERNAL hash:ip,port && ipset create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-100")
	t.Cleanup(func() {
		sh(t, "ipset destroy OTHER && ipset destroy KUBE-IPVS-IPS && ipset destroy KUBE-LOAD-BALANCER && ipset destroy KUBE-INTERNAL && ipset destroy KUBE-HEALTH-CHECK-NODE-PORT")
	})
	for _, set := range []lb.Set{lb.SetInternal, lb.SetHealthCheckNodePort} { // without marks, without all ports
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: id}})
		if errs[0] == nil || !strings.Contains(errs[0].Error(), "of another kind") {
			t.Errorf("%s: %v", id, errs[0])
		}
		if _, ok := snapshot(t, k, isSet)[id]; ok {
			t.Errorf("%s counts as weir's", id)
		}
	}
	wrong := lb.IPSet{Set: lb.SetIPVSIPs, Family: lb.IPv4}
	used := lb.IPSet{Set: lb.SetLoadBalancer, Family: lb.IPv4}
	errs := k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: wrong}, {Verb: lb.Delete, Object: used}, {Verb: lb.Add, Object: used}})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "KUBE-IPVS-IPS") || !strings.Contains(errs[0].Error(), "name_prefix") {
		t.Errorf("a set of another type: %v", errs[0])
	}
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "used by rules or sets") {
		t.Errorf("a set in use: %v", errs[1])
	}
	if errs[2] != nil {
		t.Errorf("a set that is there: %v", errs[2])
	}
	missing := lb.Member{Set: lb.SetClusterIP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP}
	errs = k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: missing}})
	if !errors.Is(errs[0], unix.ENOENT) {
		t.Errorf("a member of no set: %v", errs[0])
	}
	if _, ok := snapshot(t, k, isSet)[wrong]; ok {
		t.Error("a set of another type counts as weir's")
	}
}
