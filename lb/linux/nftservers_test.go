package linux

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// nftServersBox has the sets and rules of a family, and no virtual server.
func nftServersBox(t *testing.T, f lb.Family) *rules {
	t.Helper()
	c := DefaultConfig()
	c.Backend, c.Mode = NFTables, ModeNetfilter
	r := newRules(f, nil, nil)
	r.nft = nftBox(t, f, c)
	addServers(r, c)
	r.stage = byDNAT
	r.own = func(_ context.Context, change func() error) error { return change() }
	r.configure(c)
	must(t, r.place(t.Context()))
	return r
}

// another returns the rules of another process, which has read the kernel.
func (r *rules) another(t *testing.T) *rules {
	t.Helper()
	o := newRules(r.family, nil, nil)
	o.nft = newNFTRules(r.family, r.config.Prefix, sharedTables(newConn(unix.NETLINK_NETFILTER, &Traffic{})))
	t.Cleanup(o.nft.conn.close)
	addServers(o, r.config)
	o.own, o.stage, o.ports = r.own, r.stage, r.ports
	o.configure(r.config)
	if _, err := o.observe(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return o
}

func opsOf(verb lb.Verb, services []natService, family lb.Family) (servers, reals []lb.Op) {
	for _, p := range services {
		if lb.FamilyOf(p.server.Frontend.Addr) != family {
			continue
		}
		servers = append(servers, lb.Op{Verb: verb, Object: p.server})
		for _, rs := range p.reals {
			reals = append(reals, lb.Op{Verb: verb, Object: rs})
		}
	}
	return servers, reals
}

func (d *dnat) mustApply(t *testing.T, ops []lb.Op) {
	t.Helper()
	for i, err := range d.apply(t.Context(), ops) {
		if err != nil {
			t.Fatalf("%s: %v", ops[i], err)
		}
	}
}

// Random virtual servers in maps are the same for a process that starts, after any change.
func TestNFTServersInMapsComeBack(t *testing.T) {
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			r := nftServersBox(t, f)
			random := rand.New(rand.NewPCG(11, uint64(f)))
			services := someNATServices(random, 100)
			servers, reals := opsOf(lb.Add, services, f)
			r.nat.mustApply(t, servers)
			r.nat.mustApply(t, reals)
			for range 15 {
				var ops []lb.Op
				for _, at := range random.Perm(len(services))[:1+random.IntN(20)] {
					p := &services[at]
					if lb.FamilyOf(p.server.Frontend.Addr) != f || len(p.reals) == 0 {
						continue
					}
					rs := p.reals[random.IntN(len(p.reals))]
					if random.IntN(3) == 0 {
						p.remove(rs.Addr)
						ops = append(ops, lb.Op{Verb: lb.Delete, Object: rs})
						continue
					}
					rs.Weight = uint32(random.IntN(1 << (1 + random.IntN(17))))
					p.add(rs)
					ops = append(ops, lb.Op{Verb: lb.Change, Object: rs})
				}
				r.nat.mustApply(t, ops)
				o := r.another(t)
				if diff := cmp.Diff(objectsOf(services, f), o.nat.objects(), compareNetip); diff != "" || !o.inPlace {
					t.Fatalf("rules in place: %v, clean: %v; objects (-want +got):\n%s", o.inPlace, o.nat.clean(), diff)
				}
			}
			sh(t, "nft list ruleset && nft -j list ruleset")
			servers, _ = opsOf(lb.Delete, services, f)
			r.nat.mustApply(t, servers)
			o := r.another(t)
			if got := o.nat.objects(); len(got) != 0 || !o.inPlace {
				t.Errorf("after removal: %v, rules in place: %v", got, o.inPlace)
			}
			must(t, r.clear(t.Context()))
			if out := sh(t, "nft list tables"); strings.Contains(out, "weir") {
				t.Errorf("tables after removal: %q", out)
			}
		})
	}
}

// A removed table is lost with its virtual servers, which are written again from memory: without a read, the
// process knows of none that is left. If a map is left, an audit decides.
func TestNFTARemovedTableIsLostWithItsServers(t *testing.T) {
	r := nftServersBox(t, lb.IPv4)
	services := someNATServices(rand.New(rand.NewPCG(7, 4)), 20)
	servers, reals := opsOf(lb.Add, services, lb.IPv4)
	write := func() {
		t.Helper()
		must(t, r.place(t.Context()))
		r.nat.mustApply(t, servers)
		r.nat.mustApply(t, reals)
		if _, err := r.observe(t.Context(), nil); err != nil || !r.inPlace {
			t.Fatalf("rules in place: %v, %v", r.inPlace, err)
		}
	}
	write()
	for _, command := range []string{"nft delete table ip weir", "nft flush ruleset"} {
		sh(t, "%s", command)
		lost, err := r.lostFromTable(t.Context())
		must(t, err)
		want := 1 + len(lb.Sets()) + len(servers) + len(reals)
		if len(lost) != want || len(r.nat.objects()) != 0 {
			t.Errorf("%s: %d objects are lost, want %d; %d servers are known", command, len(lost), want, len(r.nat.objects()))
		}
		for _, op := range slices.Concat(servers, reals) {
			if !slices.Contains(lost, op.Object.ID()) {
				t.Errorf("%s: %s is not lost", command, op.Object)
			}
		}
		add := newNFTSets(r.nft.tables, "KUBE", marking{0x4000})
		for _, s := range lb.Sets() {
			add.applyObjects(t, lb.Add, lb.IPSet{Set: s, Family: lb.IPv4})
		}
		write()
	}
	remove := func(ops []lb.Op) (out []lb.Op) {
		for _, op := range ops {
			out = append(out, lb.Op{Verb: lb.Delete, Object: op.Object})
		}
		return out
	}
	r.nat.mustApply(t, remove(reals))
	r.nat.mustApply(t, remove(servers))
	sh(t, "nft flush ruleset")
	if lost, err := r.lostFromTable(t.Context()); err != nil || len(lost) != 1+len(lb.Sets()) {
		t.Errorf("without virtual servers: %v, %v, want the rules and sets", lost, err)
	}
	sh(t, "nft flush ruleset && nft add table ip weir && nft add map ip weir KUBE-BACKENDS '{ type mark : mark; }'")
	if lost, err := r.lostFromTable(t.Context()); err != nil || lost != nil {
		t.Errorf("with a map: %v, %v, want an audit", lost, err)
	}
}

func TestSlotsFollowShares(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 5))
	for range 2000 {
		shares := make([]uint32, 1+r.IntN(300))
		sum := 0.0
		for i := range shares {
			shares[i] = uint32(r.IntN([]int{1, 2, 100, 65536}[r.IntN(4)]))
			sum += float64(shares[i])
		}
		counts := slotCounts(shares)
		all, takers := uint32(0), 0
		for i, c := range counts {
			if (c == 0) != (shares[i] == 0) {
				t.Fatalf("%v: %v", shares, counts)
			}
			all += c
			takers += int(min(c, 1))
		}
		if all > uint32(max(maxSlots, takers)) {
			t.Fatalf("%d slots of %d backends", all, takers)
		}
		if takers > maxSlots/4 {
			continue // many backends with different shares are less exact
		}
		for i, c := range counts {
			got, want := float64(c)/float64(max(1, all)), float64(shares[i])/max(1, sum)
			if got-want > 2.0*float64(takers)/maxSlots || want-got > 2.0*float64(takers)/maxSlots {
				t.Fatalf("%v: backend %d gets %v, want %v", shares, i, got, want)
			}
		}
	}
}

// One of n equal backends that comes or goes changes few slots.
func TestAChangedBackendMovesFewSlots(t *testing.T) {
	t.Parallel()
	p := natService{server: lb.VirtualServer{Scheduler: lb.Scheduler{Name: "rr"}}}
	for i := range 1000 {
		p.add(real(p.server.Frontend, backendText(i), 1))
	}
	before := arrange(&p, nil)
	for _, gone := range []int{0, 500, 999} {
		less := p.clone()
		less.reals = slices.Delete(less.reals, gone, gone+1)
		after := arrange(&less, before)
		if n := differentSlots(before, after); n > 2 {
			t.Errorf("without backend %d, %d slots are different", gone, n)
		}
		if n := differentSlots(after, arrange(&p, after)); n > 1 {
			t.Errorf("with backend %d again, %d slots are different", gone, n)
		}
	}
}

// FuzzServerElements has a kernel report any elements of the maps.
func FuzzServerElements(f *testing.F) {
	fuzzing.Wide(f)
	marks := marking{0x4000}
	for _, p := range someNATServices(rand.New(rand.NewPCG(5, 6)), 10) {
		family := lb.FamilyOf(p.server.Frontend.Addr)
		s := newNFTServers(newNFTRules(family, "KUBE", sharedTables(nil)), marks)
		want := s.wanted(&p, nil)
		for _, m := range frontendMaps {
			for _, el := range want.elements(m, s.names.frontendKey(p.server.Frontend, marks)) {
				f.Add(el.key, el.data, el.comment, uint8(m), family == lb.IPv6)
			}
		}
	}
	f.Fuzz(func(t *testing.T, key, data, comment string, m uint8, six bool) {
		family := lb.IPv4
		if six {
			family = lb.IPv6
		}
		s := newNFTServers(newNFTRules(family, "KUBE", sharedTables(nil)), marks)
		el := mapElement{key, data, comment}
		which := frontendMaps[int(m)%len(frontendMaps)]
		s.sort(which, el)
		for f, have := range s.have {
			got := have.elements(which, s.names.frontendKey(f, marks))
			if len(s.foreign[which]) == 0 && !slices.ContainsFunc(got, func(el mapElement) bool { return el.key == key }) {
				t.Errorf("%q is read as %q", key, got)
			}
			if p, ok := have.service(f); ok {
				s.wanted(&p, have.slots)
			}
		}
	})
}

func differentSlots(a, b []slot) (n int) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			n++
		}
	}
	return n + max(0, len(b)-len(a))
}

func backendText(i int) string { return fmt.Sprintf("10.0.%d.%d:80", i/250, 1+i%250) }
