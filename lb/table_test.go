package lb

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// anyObject makes an object of any kind, among few of each, so that IDs come again.
func (g *gen) anyObject() Object {
	f := Frontend{Addr: g.vip(), Port: 80, Proto: []Protocol{TCP, UDP}[g.IntN(2)]}
	if g.chance(20) {
		f = MarkFrontend(FamilyOf(f.Addr), uint32(1+g.IntN(3)))
	}
	switch g.IntN(9) {
	case 0:
		return VirtualServer{Frontend: f, Scheduler: Scheduler{Name: []string{"rr", "mh"}[g.IntN(2)]}, Affinity: uint32(g.IntN(2)), Mask: uint32(g.IntN(2)), Damaged: g.chance(10)}
	case 1, 2:
		return RealServer{Frontend: f, Addr: g.backend(80), Weight: uint32(g.IntN(3)), Lower: uint32(g.IntN(2)), Upper: 1, Forward: Forwarding(g.IntN(2)), Encap: Encap{Port: uint16(g.IntN(2))}, Misplaced: g.chance(10)}
	case 3:
		return Address{g.vip()}
	case 4:
		p, _ := g.vip().Prefix(24)
		return PoolRoute{Prefix: p, Src: g.vip()}
	case 5:
		return []Object{
			Device{"kube-ipvs0"}, Rules{Family: IPv4}, IPSet{Set(g.IntN(int(numSets))), IPv6}, Sysctl{"a", []string{"0", "1"}[g.IntN(2)]},
			SyncDaemon{Role: SyncMaster, Interface: []string{"eth0", "eth1"}[g.IntN(2)]}, Unreachable{single(g.vip())},
			TunnelDevice{Remote: box, Damaged: g.chance(50)},
		}[g.IntN(7)]
	case 6:
		return loopBack(g.backend(80), f.Proto)
	}
	s := Set(g.IntN(int(numSets)))
	switch {
	case s == SetFWMarks:
		return markMember(GivenFrontend(FamilyOf(f.Addr), uint32(1+g.IntN(3))))
	case s == SetMarks:
		return markMember(MarkFrontend(FamilyOf(f.Addr), uint32(g.IntN(3))))
	case s == SetIPVSNets:
		p, _ := g.vip().Prefix(24)
		return Member{Set: s, Net: p}
	case s == SetIPVSIPs && g.chance(90):
		return guardOf(g.vip())
	case s.Type() == bitmapPort:
		return portMember(s, IPv4, uint16(g.IntN(3)))
	case s.ranged():
		p, _ := g.vip().Prefix(8 * g.IntN(4))
		return Member{Set: s, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: p}
	case g.chance(10): // foreign, in a form that weir never writes
		return Member{Set: s, Addr: f.Addr, Port: f.Port, Proto: f.Proto, Net: single(g.vip())}
	}
	m := tuple(s, f)
	if s.MarksPackets() {
		m.Mark = uint32(g.IntN(3))
	}
	return m
}

// A Table is what a map of its objects is, and never changes one that it shares records with.
func TestTableIsAMap(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		tables, models := [2]Table{}, [2]Snapshot{{}, {}}
		for range 300 {
			i := g.IntN(2)
			o := g.anyObject()
			switch {
			case g.chance(60):
				tables[i].Put(o)
				models[i][o.ID()] = o
			case g.chance(80):
				tables[i].Delete(o)
				delete(models[i], o.ID())
			default:
				mine, theirs := Snapshot{}, Snapshot{}
				tables[i].differ(&tables[1-i], func(a, b Object) {
					if a != nil {
						mine[a.ID()] = a
					}
					if b != nil {
						theirs[b.ID()] = b
					}
				})
				want := func(x, y Snapshot) Snapshot {
					x = maps.Clone(x)
					maps.DeleteFunc(x, func(id, o Object) bool { return y[id] == o })
					return x
				}
				if a, b := want(models[i], models[1-i]), want(models[1-i], models[i]); !maps.Equal(a, mine) || !maps.Equal(b, theirs) {
					t.Fatalf("differ (-want +got):\n%s", cmp.Diff([]Snapshot{a, b}, []Snapshot{mine, theirs}, exact))
				}
			}
			for i := range tables {
				if got := tables[i].Snapshot(); !maps.Equal(models[i], got) {
					t.Fatalf("after %v (-want +got):\n%s", o, cmp.Diff(models[i], got, exact))
				}
			}
			got, ok := tables[i].Get(o)
			if want, has := models[i][o.ID()]; ok != has || got != want || tables[i].Has(o) != has {
				t.Fatalf("%v: got %v, %v; want %v, %v", o, got, ok, want, has)
			}
			if n := tables[i].Len(); n != len(models[i]) {
				t.Fatalf("%d objects, want %d: %v", n, len(models[i]), tables[i].Counts())
			}
		}
	})
}

// A Table has what was put in, whatever was expected.
func TestTableThatExpectsIsAMap(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		var other Table
		model := Snapshot{}
		for range g.IntN(200) {
			o := g.anyObject()
			other.Put(o)
			model[o.ID()] = o
		}
		if g.chance(30) { // more than the first 64 of a frontend
			for i := range 150 {
				rs := RealServer{Frontend: Frontend{Addr: g.vip(), Port: 80, Proto: TCP}, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 80)}
				other.Put(rs)
				model[rs] = rs
			}
		}
		table, want := Expecting(&other), Snapshot{}
		for _, o := range model {
			for range 1 + g.IntN(2) { // some come twice
				if g.chance(95) {
					table.Put(o)
					want[o.ID()] = o
				}
			}
		}
		for range g.IntN(3) {
			o := g.anyObject()
			table.Put(o)
			want[o.ID()] = o
		}
		if g.chance(20) {
			set := IPSet{Set(g.IntN(int(numSets))), IPv4}
			table.DropMembers(set)
			maps.DeleteFunc(want, func(_, o Object) bool {
				m, ok := o.(Member)
				return ok && m.Set == set.Set && m.Family() == set.Family
			})
		}
		if got := table.Snapshot(); !maps.Equal(want, got) {
			t.Fatalf("(-want +got):\n%s", cmp.Diff(want, got, exact))
		}
		for f, v := range table.fronts {
			if v == other.fronts[f] && !v.frozen {
				t.Fatalf("the record of %s is shared and may change", f)
			}
		}
		for _, o := range want { // what changes here does not change there
			if g.chance(50) {
				table.Delete(o)
			}
		}
		if got := other.Snapshot(); !maps.Equal(model, got) {
			t.Fatalf("the expected one changed (-want +got):\n%s", cmp.Diff(model, got, exact))
		}
	})
}

// The State's counts and claims are those that follow from what each owner wants, after any history.
func TestStateIsTheUnionOfItsOwners(t *testing.T) {
	seeds(t, 50, func(t *testing.T, g *gen) {
		s := NewState()
		owners := []Owner{{}, {Service: ServiceID{Name: "a"}}, {Service: ServiceID{Name: "b"}}, {Drain: Frontend{Port: 1}}}
		for range 40 {
			objects := Snapshot{}
			for range g.IntN(12) {
				o := g.anyObject()
				objects[o.ID()] = o
			}
			before := s.Snapshot()
			touched := map[Object]struct{}{}
			s.Replace(owners[g.IntN(len(owners))], values(objects), touched)

			fresh := NewState()
			g.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
			for _, o := range owners {
				fresh.Replace(o, s.Objects(o), nil)
			}
			if want, got := fresh.Snapshot(), s.Snapshot(); !maps.Equal(want, got) {
				t.Fatalf("from its owners (-want +got):\n%s", cmp.Diff(want, got, exact))
			}
			if !maps.Equal(fresh.wanted.loops, s.wanted.loops) || !maps.Equal(fresh.pools, s.pools) || len(fresh.claims) != len(s.claims) {
				t.Fatalf("loops %v, want %v; pools %v, want %v; %d claims, want %d", s.wanted.loops, fresh.wanted.loops, s.pools, fresh.pools, len(s.claims), len(fresh.claims))
			}
			for id, o := range s.Snapshot() {
				if !slices.EqualFunc(s.allOf(id), fresh.allOf(id), func(a, b *Owner) bool { return *a == *b }) || *s.first(id) != *s.allOf(id)[0] {
					t.Fatalf("the owners of %s are not those who want it", o)
				}
				if _, is := touched[id]; !is && before[id] != o {
					t.Fatalf("%s changed without being touched", o)
				}
			}
		}
	})
}

func TestRealServersPack(t *testing.T) {
	for _, a := range []string{"10.0.0.1:80", "[2001:db8::1]:65535", "[::ffff:10.0.0.1]:80", "[::]:0", "0.0.0.0:1"} {
		rs := RealServer{Addr: netip.MustParseAddrPort(a), Weight: 1 << 31, Upper: 2, Lower: 3, Forward: DirectRouting, Encap: Encap{GRE, 1 << 15, FullChecksum}, Misplaced: true}
		if got := packReal(rs).server(Frontend{}); got != rs {
			t.Errorf("%v becomes %v", rs, got)
		}
	}
	if got := packReal(RealServer{}).server(Frontend{}); got != (RealServer{}) {
		t.Errorf("none becomes %v", got)
	}
}

// After an audit, what the kernel holds as it is wanted is kept once.
func TestAuditSharesRecords(t *testing.T) {
	seeds(t, 20, func(t *testing.T, g *gen) {
		k := g.kernel()
		r := NewReconciler(k, g.options(), "static")
		for range 3 {
			r.Update(put(g.services()...))
			mustSync(t, r, testNow)
			if _, err := r.Audit(t.Context(), testNow); err != nil {
				t.Fatal(err)
			}
			for f, v := range r.have.fronts {
				if want := r.want.wanted.fronts[f]; want != nil && want != v && want.equal(v) {
					t.Fatalf("the record of %s is kept twice", f)
				}
			}
		}
	})
}

// An audit compares the sums of two Tables without the objects that changed during it.
func TestSumsLeaveOutObjects(t *testing.T) {
	t.Parallel()
	seeds(t, 100, func(t *testing.T, g *gen) {
		all, left := &Table{}, &Table{}
		without := map[Object]struct{}{VirtualServer{}: {}}
		for i := range 20 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i / 2)})
			o := [...]Object{Address{a}, guardOf(a), loopBack(netip.AddrPortFrom(a, 80), TCP)}[g.IntN(3)]
			switch {
			case g.chance(30):
				without[o.ID()] = struct{}{}
				left.Delete(o)
				all.Put(o)
			case g.chance(20):
				without[o.ID()] = struct{}{} // in neither
				left.Delete(o)
				all.Delete(o)
			default:
				delete(without, o.ID())
				left.Put(o)
				all.Put(o)
			}
		}
		addrs, loops := sums(all, without)
		if addrs != left.addrSum || loops != left.loopSum {
			t.Errorf("the sums of %v without %v are not those of %v", all.Snapshot(), without, left.Snapshot())
		}
	})
}
