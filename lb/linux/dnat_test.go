package linux

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

var testNames = natNames{prefix: "KUBE", marks: marking{0x4000}}

// someNATServices returns every kind of frontend, with every attribute and many weights.
func someNATServices(r *rand.Rand, n int) []natService {
	var out []natService
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range lb.Schedulers {
			if !yield(name) {
				return
			}
		}
	})
	protos := []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP}
	for i := range n {
		family, vip, backend := lb.IPv4, netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), "10.0.0."
		if i%3 == 0 {
			a := netip.MustParseAddr("2001:db8::").As16()
			a[14], a[15] = byte(i>>8), byte(i)
			family, vip, backend = lb.IPv6, netip.AddrFrom16(a), "2001:db8:1::"
		}
		f := lb.Frontend{Addr: vip, Port: uint16(1 + r.IntN(65535)), Proto: protos[i%3]}
		if i%5 == 0 {
			f = lb.MarkFrontend(family, uint32(1+i+r.IntN(100)*1000))
		}
		name := names[i%len(names)]
		p := natService{server: lb.VirtualServer{Frontend: f, Scheduler: lb.Scheduler{Name: name, Flags: lb.Schedulers[name]}}}
		if r.IntN(2) == 0 {
			p.server.Affinity = uint32(1 + r.IntN(100000))
		}
		for j := range r.IntN(6) {
			rs := lb.RealServer{Frontend: f, Addr: netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprint(backend, 1+j)), uint16(1+r.IntN(65535)))}
			switch r.IntN(4) {
			case 0:
				rs.Upper, rs.Lower = r.Uint32(), r.Uint32()
			case 1:
				rs.Weight = 1
			case 2:
				rs.Weight = uint32(r.IntN(65536))
			}
			p.add(rs)
		}
		out = append(out, p)
	}
	return out
}

// savedNATServices returns table nat with NAT services, as if iptables-save had printed it.
func savedNATServices(family lb.Family, services []natService) savedTable {
	t := savedTable{rules: map[string][]string{testNames.dispatch(): nil}, builtin: map[string]bool{}}
	var marks, addresses []string
	for _, p := range services {
		f := p.server.Frontend
		if lb.FamilyOf(f.Addr) != family {
			continue
		}
		if rule := testNames.dispatchRule(f).String(); f.Mark != 0 {
			marks = append(marks, rule)
		} else {
			addresses = append(addresses, rule)
		}
		for _, c := range testNames.chains(p) {
			t.rules[c.name] = c.rules
		}
	}
	t.rules[testNames.dispatch()] = append(marks, addresses...)
	return t
}

func objectsOf(services []natService, families ...lb.Family) lb.Snapshot {
	out := lb.Snapshot{}
	for _, p := range services {
		if !slices.Contains(families, lb.FamilyOf(p.server.Frontend.Addr)) {
			continue
		}
		out[p.server.ID()] = p.server
		for _, rs := range p.reals {
			out[rs.ID()] = rs
		}
	}
	return out
}

func TestNATServicesReadBackAreTheSame(t *testing.T) {
	t.Parallel()
	services := someNATServices(rand.New(rand.NewPCG(1, 2)), 600)
	for _, family := range []lb.Family{lb.IPv4, lb.IPv6} {
		d := newDNAT(newRules(family, nil, nil), testNames)
		d.read(savedNATServices(family, services))
		if d.orphanRules != nil || d.deadChains != nil || len(d.damaged) > 0 || !d.dispatches {
			t.Errorf("%s: orphan rules %q, dead chains %q, damaged %v", family, d.orphanRules, d.deadChains, d.damaged)
		}
		if diff := cmp.Diff(objectsOf(services, family), d.objects(), compareNetip); diff != "" {
			t.Errorf("%s (-want +got):\n%s", family, diff)
		}
	}
}

func TestChancesFollowWeights(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		shares := make([]uint32, 1+r.IntN(40))
		sum := 0.0
		for i := range shares {
			shares[i] = uint32(r.IntN([]int{1, 2, 100, 65536}[r.IntN(4)]))
			sum += float64(shares[i])
		}
		left := 1.0 // the share of packets that no rule has taken so far
		for i, chance := range chances(shares) {
			got := left * float64(chance) / always
			if want := float64(shares[i]) / max(sum, 1); math.Abs(got-want) > 1e-8 || (shares[i] == 0) != (chance == 0) {
				t.Fatalf("%v: backend %d gets %v, want %v", shares, i, got, want)
			}
			left -= got
		}
		if sum > 0 && math.Abs(left) > 1e-8 {
			t.Fatalf("%v: %v of the packets get nowhere", shares, left)
		}
	}
}

func TestSharesFollowTheScheduler(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		scheduler    string
		weights, got []uint32
	}{
		{"rr", []uint32{3, 0, 1}, []uint32{1, 0, 1}},
		{"wrr", []uint32{3, 0, 1}, []uint32{3, 0, 1}},
		{"mh", []uint32{3, 0, 1}, []uint32{3, 0, 1}},
		{"fo", []uint32{1, 0, 3, 3}, []uint32{0, 0, 1, 0}},
		{"fo", []uint32{0, 0}, []uint32{0, 0}},
		{"fo", nil, []uint32{}},
	} {
		p := natService{server: lb.VirtualServer{Scheduler: lb.Scheduler{Name: test.scheduler}}}
		for _, w := range test.weights {
			p.reals = append(p.reals, lb.RealServer{Weight: w})
		}
		if got := shares(p); !slices.Equal(got, test.got) {
			t.Errorf("%s %v: %v, want %v", test.scheduler, test.weights, got, test.got)
		}
	}
}

// exampleNATServices returns the services of the golden text.
func exampleNATServices() []natService {
	front := func(s string, proto lb.Protocol) lb.Frontend { return frontend(s, proto) }
	web, dns := front("192.0.2.1:80", lb.TCP), front("192.0.2.1:53", lb.UDP)
	inside, empty := lb.MarkFrontend(lb.IPv4, 6), front("192.0.2.2:5060", lb.SCTP)
	return []natService{
		{lb.VirtualServer{Frontend: web, Scheduler: lb.Scheduler{Name: "wrr"}}, []lb.RealServer{
			real(web, "10.0.0.1:8080", 3), real(web, "10.0.0.2:8080", 1), real(web, "10.0.0.3:8080", 0)}},
		{lb.VirtualServer{Frontend: dns, Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 60}, []lb.RealServer{
			real(dns, "10.0.0.1:53", 1), real(dns, "10.0.0.2:53", 1)}},
		{lb.VirtualServer{Frontend: inside, Scheduler: lb.Scheduler{Name: "rr"}}, []lb.RealServer{real(inside, "10.0.0.9:8080", 1)}},
		{lb.VirtualServer{Frontend: empty, Scheduler: lb.Scheduler{Name: "sh", Flags: lb.Fallback}}, nil},
	}
}

func planned(services []natService) map[lb.Frontend]*natService {
	out := map[lb.Frontend]*natService{}
	for _, p := range services {
		out[p.server.Frontend] = &p
	}
	return out
}

func TestNATServicesAsText(t *testing.T) {
	t.Parallel()
	d := newDNAT(newRules(lb.IPv4, nil, nil), testNames)
	golden(t, "nat_services4.rules", d.text(planned(exampleNATServices())))

	// One endpoint is added, one loses its weight, one is deleted; and a service is added.
	d.read(savedNATServices(lb.IPv4, exampleNATServices()))
	p := exampleNATServices()
	p[0].add(real(p[0].server.Frontend, "10.0.0.4:8080", 4))
	p[0].add(real(p[0].server.Frontend, "10.0.0.2:8080", 0))
	p[1].remove(netip.MustParseAddrPort("10.0.0.1:53"))
	next := planned(p)
	next[p[2].server.Frontend] = nil
	golden(t, "nat_change4.rules", d.text(next))

	if text := d.text(planned(exampleNATServices())); text != "" {
		t.Errorf("nothing changes, and yet:\n%s", text)
	}
}

// TestDamageIsFound changes the content of the kernel in every known way.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	web := exampleNATServices()[0].server.Frontend
	svc, sep := testNames.server(web), testNames.real(web, netip.MustParseAddrPort("10.0.0.1:8080"))
	vs := lb.VirtualServer{Frontend: web}
	for name, alter := range map[string]func(t savedTable){
		"a rule more":             func(t savedTable) { t.rules[svc] = append(t.rules[svc], "-j ACCEPT") },
		"another rule":            func(t savedTable) { t.rules[svc][1] = "-j ACCEPT" },
		"another order":           func(t savedTable) { slices.Reverse(t.rules[svc][1:]) },
		"another chance":          func(t savedTable) { t.rules[svc][1] = strings.Replace(t.rules[svc][1], "0.75", "0.74", 1) },
		"another address":         func(t savedTable) { t.rules[sep][0] = strings.Replace(t.rules[sep][0], "10.0.0.1:", "10.0.0.7:", 1) },
		"flushed real server":     func(t savedTable) { t.rules[sep] = nil },
		"no real server":          func(t savedTable) { delete(t.rules, sep) },
		"nothing leads there":     func(t savedTable) { t.rules[testNames.dispatch()] = nil },
		"no chain leads anywhere": func(t savedTable) { delete(t.rules, testNames.dispatch()) },
		"another port leads there": func(t savedTable) {
			for i, spec := range t.rules[testNames.dispatch()] {
				t.rules[testNames.dispatch()][i] = strings.Replace(spec, "--dport 80 ", "--dport 81 ", 1)
			}
		},
	} {
		have := savedNATServices(lb.IPv4, exampleNATServices())
		alter(have)
		d := newDNAT(newRules(lb.IPv4, nil, nil), testNames)
		d.read(have)
		if got, _ := d.objects()[vs].(lb.VirtualServer); !got.Damaged {
			t.Errorf("%s: %v", name, got)
		}
	}
	have := savedNATServices(lb.IPv4, exampleNATServices())
	have.rules[svc] = nil
	d := newDNAT(newRules(lb.IPv4, nil, nil), testNames)
	d.read(have)
	if got, ok := d.objects()[vs]; ok || len(d.orphanRules) != 1 || len(d.deadChains) != 2 {
		t.Errorf("flushed: %v, orphan rules %q, dead chains %q", got, d.orphanRules, d.deadChains)
	}
}

func TestMarksComeBeforeAddresses(t *testing.T) {
	t.Parallel()
	have := savedNATServices(lb.IPv4, exampleNATServices())
	slices.Reverse(have.rules[testNames.dispatch()])
	d := newDNAT(newRules(lb.IPv4, nil, nil), testNames)
	d.read(have)
	inside := exampleNATServices()[2].server.Frontend
	if _, damaged := d.damaged[inside]; !damaged || len(d.damaged) != 1 || len(d.orphanRules) != 1 {
		t.Errorf("damaged %v, orphan rules %q", d.damaged, d.orphanRules)
	}
}

// TestRulesOfVirtualServersComeBack reads the output of iptables-save with both backends.
func TestRulesOfVirtualServersComeBack(t *testing.T) {
	inNamespace(t)
	services := someNATServices(rand.New(rand.NewPCG(5, 6)), 200)
	for _, backend := range []Backend{Legacy, NFT} {
		for _, family := range []lb.Family{lb.IPv4, lb.IPv6} {
			t.Run(fmt.Sprint(backend, family), func(t *testing.T) {
				var counters Counters
				r := newRules(family, execRunner(&counters.Execs), hasProgram)
				if err := r.find(context.Background(), backend); err != nil {
					t.Skip("SKIPPED: this system has no such backend: ", err)
				}
				d := newDNAT(r, testNames)
				want := objectsOf(services, family)
				run := func(verb lb.Verb, servers, reals bool) {
					var ops []lb.Op
					for _, o := range want {
						if _, server := o.(lb.VirtualServer); server == servers || !server == reals {
							ops = append(ops, lb.Op{Verb: verb, Object: o})
						}
					}
					for i, err := range d.apply(context.Background(), ops) {
						if err != nil {
							t.Fatalf("%s: %v", ops[i], err)
						}
					}
				}
				t.Cleanup(func() { d.remove(context.Background()) })
				run(lb.Add, true, false)
				run(lb.Add, false, true)
				remembered := d.objects()
				must(t, d.load(context.Background()))
				if diff := cmp.Diff(want, remembered, compareNetip); diff != "" {
					t.Errorf("remembered (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(want, d.objects(), compareNetip); diff != "" || !d.clean() {
					t.Errorf("read (-want +got), orphan rules %q, dead chains %q:\n%s", d.orphanRules, d.deadChains, diff)
				}
				run(lb.Delete, false, true)
				run(lb.Delete, true, false)
				must(t, d.load(context.Background()))
				if got := d.objects(); len(got) != 0 || !d.clean() || !d.dispatches {
					t.Errorf("after removal %v, orphan rules %q, dead chains %q", got, d.orphanRules, d.deadChains)
				}
				if err := d.remove(context.Background()); err != nil {
					t.Error(err)
				}
				if have, err := r.peek(context.Background()); err != nil || len(have["nat"].rules) > 5 {
					t.Errorf("left: %v, %v", have["nat"].rules, err)
				}
			})
		}
	}
}

// TestRulesOfServersAreCheckedAfterForeignChangesOnly counts programs: a check of all rules
// would cost more than the change.
func TestRulesOfServersAreCheckedAfterForeignChangesOnly(t *testing.T) {
	testMode = ModeNetfilter
	t.Cleanup(func() { testMode = ModeIPVS })
	eachBackend(t, func(t *testing.T, k *Kernel, iptables string) {
		fe := frontend("192.0.2.1:80", lb.TCP)
		vs := lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "wrr"}}
		add(t, k, append(ruleObjects(), vs)...)
		t.Cleanup(func() { remove(t, k, append(ruleObjects(), vs)...) })
		snapshot(t, k, isServer)
		events := watching(t, k)
		caughtUp(t, k, events)
		before := k.Counters().Execs.Load()
		const changes = 8
		for i := range changes {
			apply(t, k, lb.Op{Verb: lb.Add, Object: real(fe, "10.0.0.1:80", uint32(i%3))})
			quiet(t, events, 2*k.watcher.pace.poll)
		}
		for _, e := range quiet(t, events, 2*k.watcher.pace.minInterval) {
			t.Errorf("weir's own change is %v", e)
		}
		if n := k.Counters().Execs.Load() - before; n != changes {
			t.Errorf("%d changes took %d programs", changes, n)
		}
		sh(t, "%s -t nat -F %s", iptables, testNames.server(fe))
		lost(t, events, lb.Rules{Family: lb.IPv4}, vs.ID(), real(fe, "10.0.0.1:80", 0).ID())
	})
}

func FuzzParseNAT(f *testing.F) {
	fuzzing.Wide(f)
	for _, p := range someNATServices(rand.New(rand.NewPCG(7, 8)), 20) {
		f.Add(testNames.dispatchRule(p.server.Frontend).String())
		for _, c := range testNames.chains(p) {
			for _, spec := range c.rules {
				f.Add(spec)
			}
		}
	}
	f.Add(`-m recent --set --name a --mask 255.255.255.255 --rsource -j DNAT`)
	f.Fuzz(func(t *testing.T, spec string) {
		r, ok := parseNAT(spec)
		if !ok {
			return
		}
		again, ok := parseNAT(r.String())
		if !ok || again.String() != r.String() {
			t.Errorf("%q is read as %q, that as %q", spec, r, again)
		}
	})
}

func FuzzReadNATServices(f *testing.F) {
	fuzzing.Wide(f)
	for i, p := range someNATServices(rand.New(rand.NewPCG(9, 10)), 20) {
		var b strings.Builder
		d := newDNAT(newRules(lb.FamilyOf(p.server.Frontend.Addr), nil, nil), testNames)
		b.WriteString(d.text(map[lb.Frontend]*natService{p.server.Frontend: &p}))
		f.Add(b.String(), i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, text string, six bool) {
		family := lb.IPv4
		if six {
			family = lb.IPv6
		}
		d := newDNAT(newRules(family, nil, nil), testNames)
		d.read(parseSave(text)["nat"])
		for id, o := range d.objects() {
			if o.ID() != id {
				t.Errorf("%v by %v", o, id)
			}
		}
		all := map[lb.Frontend]*natService{}
		for fe := range d.services {
			all[fe] = nil
		}
		d.text(all)
	})
}

func BenchmarkReadNATServices(b *testing.B) {
	var services []natService
	for i := range 1000 {
		fe := lb.Frontend{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}
		p := natService{server: lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}}}
		for j := range 10 {
			p.add(lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)}), 8080), Weight: 1})
		}
		services = append(services, p)
	}
	have := savedNATServices(lb.IPv4, services)
	d := newDNAT(newRules(lb.IPv4, nil, nil), testNames)
	for b.Loop() {
		if d.read(have); len(d.services) != 1000 || len(d.damaged) != 0 {
			b.Fatal(len(d.services), d.damaged)
		}
	}
}

func TestNamesForExplain(t *testing.T) {
	c := DefaultConfig()
	if n := c.Names(); n.Chain != nil || n.Prefix != "KUBE" {
		t.Errorf("with IPVS: %+v", n)
	}
	c.Mode, c.Prefix = ModeNetfilter, "LB"
	f := frontend("192.0.2.1:80", lb.TCP)
	if got, want := c.Names().Chain(f), (natNames{prefix: "LB"}).server(f); got != want || !strings.HasPrefix(got, "LB-SVC-") {
		t.Errorf("chain %q, want %q", got, want)
	}
	c.Backend = NFTables
	if got := c.Names().Chain(f); got != "LB-VIRTUAL-SERVERS" {
		t.Errorf("with nf_tables: chain %q", got)
	}
}

// TestDNATRefusesAttributesOfIPVS expects errors that name the object.
func TestDNATRefusesAttributesOfIPVS(t *testing.T) {
	t.Parallel()
	vs := lb.VirtualServer{Frontend: frontend("192.0.2.1:80", lb.TCP), Scheduler: lb.Scheduler{Name: "rr"}, Affinity: 60, Mask: 0xff}
	rs := lb.RealServer{Frontend: vs.Frontend, Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1, Forward: lb.Tunnel}
	for _, o := range []lb.Object{vs, rs} {
		_, err := changed(&natService{server: vs}, lb.Op{Verb: lb.Add, Object: o})
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprint(o)+": ") {
			t.Errorf("%s: %v", o, err)
		}
	}
}
