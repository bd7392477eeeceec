package linux

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// faults are those of the connection to the kernel.
type faults struct {
	refused uint16     // messages of nf_tables of this type can't be sent; 0 is none
	about   string     // only those with this text
	last    uint16     // replies are lost from the first message of this type; 0 is none
	random  *rand.Rand // some replies are lost; nil is none
	more    int        // so many of the next replies are lost
}

type faultyWire struct {
	wire
	*faults
}

// between puts faults between conn and the kernel.
func (f *faults) between(c *conn) {
	open := c.open
	c.close()
	c.open = func() (wire, error) {
		w, err := open()
		return &faultyWire{w, f}, err
	}
}

func (w *faultyWire) send(b []byte) error {
	for m := range messages(b) {
		if w.refused != 0 && m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|w.refused && strings.Contains(string(m.body), w.about) {
			return unix.ENOMEM
		}
		if w.last != 0 && m.typ == unix.NFNL_SUBSYS_NFTABLES<<8|w.last {
			w.more = 100
		}
	}
	return w.wire.send(b)
}

func (w *faultyWire) receive(b []byte, deadline time.Time) (int, error) {
	switch {
	case w.more > 0:
		w.more--
		return 0, unix.ENOBUFS
	case w.random != nil && w.random.IntN(12) == 0:
		w.more = w.random.IntN(attempts + 1)
		return 0, unix.ENOBUFS
	}
	return w.wire.receive(b, deadline)
}

// serverWith returns a virtual server with so many backends.
func serverWith(addr string, backends int) natService {
	p := natService{server: lb.VirtualServer{Frontend: lb.Frontend{Addr: netip.MustParseAddr(addr), Port: 80, Proto: lb.TCP}, Scheduler: lb.Scheduler{Name: "rr"}}}
	for i := range backends {
		p.add(real(p.server.Frontend, backendText(i), 1))
	}
	return p
}

// mustObserve reads the kernel, and reports whether the rules are in place.
func (r *rules) mustObserve(t *testing.T) bool {
	t.Helper()
	_, err := r.observe(t.Context(), nil)
	must(t, err)
	return r.inPlace
}

func (r *rules) mustServe(t *testing.T, services ...natService) {
	t.Helper()
	servers, reals := opsOf(lb.Add, services, r.family)
	r.nat.mustApply(t, servers)
	r.nat.mustApply(t, reals)
	if !r.mustObserve(t) {
		t.Fatal("the rules are not in place")
	}
}

// mustHave checks that the kernel has these virtual servers with their kinds.
func (r *rules) mustHave(t *testing.T, services ...natService) {
	t.Helper()
	o := r.another(t)
	if diff := cmp.Diff(objectsOf(services, r.family), o.nat.objects(), compareNetip); diff != "" {
		t.Fatalf("objects (-want +got):\n%s", diff)
	}
	if !o.inPlace || len(o.nat.damaged) > 0 {
		t.Fatalf("rules in place: %v, clean: %v, damaged: %v", o.inPlace, o.nat.clean(), o.nat.damaged)
	}
	o.nat.nft.mustHaveKinds(t)
}

// mustHaveKinds checks that mapKinds has those of all virtual servers, after a read.
func (s *nftServers) mustHaveKinds(t *testing.T) {
	t.Helper()
	for f, have := range s.have {
		if have.kind.slots != 0 && !s.kinds[have.kind] {
			t.Fatalf("%s is of a missing kind: %v", f, have.kind)
		}
	}
}

// A read that fails takes the chains of no virtual server for unused.
func TestNFTServersSurviveAFailedRead(t *testing.T) {
	r := nftServersBox(t, lb.IPv4)
	two, three := serverWith("192.0.2.1", 2), serverWith("192.0.2.2", 3)
	r.mustServe(t, two, three)
	f := faults{refused: unix.NFT_MSG_GETSETELEM, about: "KUBE-BACKENDS"}
	f.between(r.nft.conn)
	if _, err := r.observe(t.Context(), nil); err == nil {
		t.Fatal("a read without replies succeeds")
	}
	f.refused = 0
	three.add(real(three.server.Frontend, backendText(3), 1))
	r.nat.mustApply(t, []lb.Op{{Verb: lb.Add, Object: three.reals[3]}})
	r.mustHave(t, two, three)
}

// Nor does a change of which the replies are lost: the kernel may have carried it out.
func TestNFTServersSurviveALostChange(t *testing.T) {
	r := nftServersBox(t, lb.IPv4)
	two, three := serverWith("192.0.2.1", 2), serverWith("192.0.2.2", 3)
	r.mustServe(t, two, three)
	f := faults{}
	f.between(r.nft.conn)
	r.nat.mustApply(t, []lb.Op{{Verb: lb.Delete, Object: three.server}}) // its chain goes with the next change
	f.last = unix.NFT_MSG_NEWSETELEM
	two.server.Scheduler.Name = "wrr"
	if err := r.nat.apply(t.Context(), []lb.Op{{Verb: lb.Change, Object: two.server}})[0]; err == nil {
		t.Fatal("a change without replies succeeds")
	}
	f.last, f.more = 0, 0
	servers, reals := opsOf(lb.Add, []natService{three}, lb.IPv4)
	r.nat.mustApply(t, slices.Concat(servers, reals))
	r.nat.mustApply(t, []lb.Op{{Verb: lb.Change, Object: two.server}})
	r.mustHave(t, two, three)
}

// Another program removes a chain with its element while virtual servers use it.
func TestNFTARemovedKindComesBack(t *testing.T) {
	r := nftServersBox(t, lb.IPv4)
	two, sticky := serverWith("192.0.2.1", 2), serverWith("192.0.2.2", 2)
	sticky.server.Affinity = 60
	r.mustServe(t, two, sticky)
	for _, kind := range []string{"CHOOSE-2", "CHOOSE-2-60"} {
		sh(t, "nft flush map ip weir KUBE-SERVER-KINDS && nft flush chain ip weir KUBE-%s && nft delete chain ip weir KUBE-%s", kind, kind)
		o := r.another(t)
		if o.inPlace {
			t.Errorf("%s is not missed", kind)
		}
		must(t, o.place(t.Context()))
		r.mustHave(t, two, sticky)
	}
}

// Watch writes all virtual servers again from memory, also those that a change has found missing.
func TestNFTAChangeAfterAFlushForgetsNoServer(t *testing.T) {
	r := nftServersBox(t, lb.IPv4)
	services := []natService{serverWith("192.0.2.1", 2), serverWith("192.0.2.2", 3)}
	r.mustServe(t, services...)
	sh(t, "nft flush ruleset")
	for range 2 {
		if err := r.nat.apply(t.Context(), []lb.Op{{Verb: lb.Add, Object: real(services[1].server.Frontend, "10.0.9.9:80", 1)}})[0]; !errors.Is(err, unix.ENOENT) {
			t.Errorf("a change after the flush: %v", err)
		}
	}
	lost, err := r.lostFromTable(t.Context())
	must(t, err)
	for id := range objectsOf(services, lb.IPv4) {
		if !slices.Contains(lost, id) {
			t.Errorf("%s is not lost", id)
		}
	}
}

// The rules of an earlier configuration serve until the next ones are written, or another program changes them.
func TestNFTRulesOfAnEarlierConfigurationAreReported(t *testing.T) {
	r := nftServersBox(t, lb.IPv4)
	r.mustServe(t, serverWith("192.0.2.1", 2))
	inForce := func(what string, outdated, present bool) {
		t.Helper()
		r.mustObserve(t)
		if got, held := r.inForce(); held != present || held && got.Outdated != outdated {
			t.Errorf("%s: %#v, %v; want %v, %v", what, got, held, outdated, present)
		}
	}
	inForce("after the first write", false, true)
	next := r.config
	next.MasqueradeAll = true
	r.configure(next)
	inForce("with another configuration", true, true)
	if lost, err := r.lostFromTable(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("with another configuration are lost: %v, %v", lost, err)
	}
	f := faults{refused: unix.NFT_MSG_NEWRULE}
	f.between(r.nft.conn)
	if err := r.place(t.Context()); !errors.Is(err, lb.ErrEarlier) {
		t.Errorf("a write that fails: %v", err)
	}
	inForce("after a write that fails", true, true)
	sh(t, "nft flush chain ip weir KUBE-SERVICES")
	if err := r.place(t.Context()); err == nil || errors.Is(err, lb.ErrEarlier) {
		t.Errorf("a write that fails after a foreign change: %v", err)
	}
	inForce("after a foreign change", true, false)
	f.refused = 0
	must(t, r.place(t.Context()))
	inForce("after a write", false, true)
}

// Mode netfilter does not come back after a removal of its maps that fails.
func TestNFTTheOtherModeEndsAfterAFailedRemoval(t *testing.T) {
	for _, audit := range []bool{false, true} {
		t.Run(fmt.Sprintf("audit=%t", audit), func(t *testing.T) { otherModeEnds(t, audit) })
	}
}

// otherModeEnds has an audit or none between a removal that fails and the next one.
func otherModeEnds(t *testing.T, audit bool) {
	inNamespace(t)
	if err := TryNFTables(t.Context(), DefaultConfig()); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	rules := lb.Op{Verb: lb.Add, Object: lb.Rules{Family: lb.IPv4}}
	open := func(mode Mode) *Kernel {
		k := newKernel(t, func(c *Config) {
			c.Backend, c.Mode, c.WithoutIPVS, c.Families = NFTables, mode, true, []lb.Family{lb.IPv4}
		})
		_, err := k.Observe(t.Context(), nil)
		must(t, err)
		return k
	}
	k := open(ModeNetfilter)
	for _, s := range lb.Sets() {
		add(t, k, lb.IPSet{Set: s, Family: lb.IPv4})
	}
	apply(t, k, rules)
	k.rules[lb.IPv4].mustServe(t, serverWith("192.0.2.1", 2))
	k.Close()

	k = open(ModeIPVS)
	apply(t, k, rules)
	f := faults{refused: unix.NFT_MSG_DELSET}
	f.between(k.tables.conn)
	if left, err := k.ForgetOther(t.Context(), anyServer, false); err == nil {
		t.Fatalf("the first removal: %d left", left)
	}
	if audit {
		if _, err := k.Observe(t.Context(), nil); err != nil || !k.rules[lb.IPv4].inPlace || k.rules[lb.IPv4].stage != byIPVS {
			t.Errorf("an audit before the second removal: stage %d, in place %v, %v", k.rules[lb.IPv4].stage, k.rules[lb.IPv4].inPlace, err)
		}
	}
	f.refused = 0
	left, err := k.ForgetOther(t.Context(), anyServer, false)
	if out := sh(t, "nft list table ip weir"); err != nil || left != 0 || strings.Contains(out, "KUBE-SERVERS") {
		t.Errorf("the second removal: %d left, %v:\n%s", left, err, out)
	}
}

// The rules for connections of IPVS end after an error, too.
func TestNFTRulesForIPVSEndAfterAnError(t *testing.T) {
	inNamespace(t)
	if err := TryNFTables(t.Context(), DefaultConfig()); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend, c.Mode, c.Families = NFTables, ModeNetfilter, []lb.Family{lb.IPv4} })
	_, err := k.Observe(t.Context(), nil)
	must(t, err)
	add(t, k, setObjects()...)
	add(t, k, lb.Rules{Family: lb.IPv4})
	r := k.rules[lb.IPv4]
	must(t, k.byRule.setStage(t.Context(), r, afterIPVS))
	k.byRule.left = leftIPVS{searched: true, ended: true}
	f := faults{refused: unix.NFT_MSG_NEWRULE}
	f.between(k.tables.conn)
	if left, err := k.ForgetOther(t.Context(), anyServer, false); err == nil {
		t.Fatalf("%d left, no error", left)
	}
	f.refused = 0
	if left, err := k.ForgetOther(t.Context(), anyServer, false); err != nil || left != 0 || r.stage != byDNAT || !r.inPlace {
		t.Errorf("%d left, %v, stage %d, in place %t", left, err, r.stage, r.inPlace)
	}
}

// The end of connections is repeated after an error.
func TestNFTConnectionsEndAfterAnError(t *testing.T) {
	inNamespace(t)
	if err := TryNFTables(t.Context(), DefaultConfig()); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend, c.Mode = NFTables, ModeNetfilter })
	_, err := k.Observe(t.Context(), nil)
	must(t, err)
	add(t, k, setObjects()...)
	add(t, k, lb.Rules{Family: lb.IPv4})
	p := serverWith("192.0.2.1", 2)
	add(t, k, p.server, p.reals[0], p.reals[1])
	udp := lb.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 53, Proto: lb.UDP}
	ipvs, _ := playedConn(&played{kernel: func(m message) []byte { return ack(m, 0) }})
	k.byRule.left = leftIPVS{searched: true, table: newTable(ipvs, 1, marking{}), servers: []lb.Frontend{udp}, udp: map[lb.Frontend]bool{}}
	sh(t, "conntrack -I -p tcp -s 10.1.0.2 -d 192.0.2.1 --sport 1000 --dport 80 --dst-nat %s --state ESTABLISHED -t 100", p.reals[0].Addr)
	sh(t, "conntrack -I -p udp -s 10.1.0.2 -d 192.0.2.1 --sport 1000 --dport 53 -t 100")
	f := faults{}
	f.between(k.conntrack.conn)
	for _, tt := range []struct {
		name  string
		op    lb.Op
		lost  int // replies
		flows int
	}{
		{"without replies", lb.Op{Verb: lb.Delete, Object: p.reals[0]}, 1000, 2},
		{"with replies", lb.Op{Verb: lb.Change, Object: real(p.server.Frontend, "10.0.0.2:80", 7)}, 0, 0},
	} {
		f.more = tt.lost
		must(t, firstError(k.Apply(t.Context(), []lb.Op{tt.op})))
		if _, err := k.ForgetOther(t.Context(), anyServer, false); (err != nil) != (tt.lost > 0) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if out := sh(t, "conntrack -L 2>/dev/null | grep sport=1000 || true"); strings.Count(out, "\n") != tt.flows {
			t.Errorf("%s: want %d flows, got:\n%s", tt.name, tt.flows, out)
		}
	}
}

// Replies are lost at random, of reads and changes. Two repairs later the kernel has exactly the wanted servers.
func TestNFTServersSurviveLostReplies(t *testing.T) {
	for seed := range uint64(6) {
		r := nftServersBox(t, lb.IPv4)
		random, losses, f := rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(seed, 10)), faults{}
		f.between(r.nft.conn)
		k := requests{r: r, want: map[lb.Frontend]natService{}, have: lb.Snapshot{}}
		for range 40 {
			if f.round(t, &k, 3, random, losses); random.IntN(3) > 0 {
				continue
			}
			for range 2 {
				k.sync(t)
			}
			k.checkServed(t)
			for range 2 {
				must(t, k.audit(t))
				k.sync(t)
			}
			r.mustHave(t, slices.Collect(k.services())...)
		}
		must(t, r.clear(t.Context()))
	}
}

// history makes requests at random, and applies and reads them as lb does.
type history interface {
	change(random *rand.Rand)
	sync(t *testing.T)
	audit(t *testing.T) error
}

// round makes at most so many requests, some of which may lose their replies.
func (f *faults) round(t *testing.T, k history, most int, random, losses *rand.Rand) {
	for range 1 + random.IntN(most) {
		k.change(random)
	}
	if random.IntN(3) == 0 {
		f.random = losses
	}
	k.sync(t)
	if random.IntN(2) == 0 {
		_ = k.audit(t)
	}
	k.sync(t)
	f.random, f.more = nil, 0
}

// requests are virtual servers that a kernel is to have, and those of which lb knows.
type requests struct {
	r    *rules
	want map[lb.Frontend]natService
	have lb.Snapshot
}

func (k *requests) services() func(func(natService) bool) {
	return func(yield func(natService) bool) {
		for _, p := range k.want {
			if !yield(p) {
				return
			}
		}
	}
}

// change changes a request at random.
func (k *requests) change(random *rand.Rand) {
	fe := lb.Frontend{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(5))}), Port: 80, Proto: lb.TCP}
	if random.IntN(6) == 0 {
		fe = lb.MarkFrontend(lb.IPv4, 3)
	}
	p, there := k.want[fe]
	p = p.clone()
	affinity := []uint32{0, 0, 60, 120}[random.IntN(4)]
	rs := real(fe, backendText(random.IntN(5)), uint32(random.IntN(4)))
	switch n := random.IntN(6); {
	case !there:
		p.server = lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: []string{"rr", "wrr", "fo"}[random.IntN(3)]}, Affinity: affinity}
	case n == 0:
		delete(k.want, fe)
		return
	case n == 1:
		p.server.Affinity = affinity
	case n == 2:
		p.remove(rs.Addr)
	default:
		p.add(rs)
	}
	k.want[fe] = p
}

// sync applies the differences, as lb does, and ignores errors.
func (k *requests) sync(t *testing.T) {
	if !k.r.inPlace {
		_ = k.r.place(t.Context())
	}
	want := objectsOf(slices.Collect(k.services()), lb.IPv4)
	steps := map[string][]lb.Op{}
	put := func(verb lb.Verb, o lb.Object) {
		step := fmt.Sprintf("%T %v", o, verb == lb.Delete)
		steps[step] = append(steps[step], lb.Op{Verb: verb, Object: o})
	}
	for id, o := range want {
		if have, there := k.have[id]; !there {
			put(lb.Add, o)
		} else if have != o {
			put(lb.Change, o)
		}
	}
	for id := range k.have {
		if want[id] == nil {
			put(lb.Delete, id)
		}
	}
	for _, step := range []string{"lb.VirtualServer false", "lb.RealServer false", "lb.RealServer true", "lb.VirtualServer true"} {
		ops := steps[step]
		slices.SortFunc(ops, func(a, b lb.Op) int { return lb.Compare(a.Object.ID(), b.Object.ID()) })
		for i, err := range k.r.nat.apply(t.Context(), ops) {
			switch {
			case err != nil:
			case ops[i].Verb == lb.Delete:
				delete(k.have, ops[i].Object.ID())
			default:
				k.have[ops[i].Object.ID()] = ops[i].Object
			}
		}
	}
}

// checkServed checks that the kernel has the wanted servers with their kinds, and perhaps others.
func (k *requests) checkServed(t *testing.T) {
	t.Helper()
	o := k.r.another(t)
	have := o.nat.objects()
	for id, want := range objectsOf(slices.Collect(k.services()), lb.IPv4) {
		if have[id] != want {
			t.Fatalf("%v is %v, want %v", id, have[id], want)
		}
	}
	o.nat.nft.mustHaveKinds(t)
}

func (k *requests) audit(t *testing.T) error {
	_, err := k.r.observe(t.Context(), nil)
	if err == nil {
		k.have = k.r.nat.objects()
	}
	return err
}

// The same for sets: those of ranges know members that the kernel does not have as elements.
func TestNFTSetsSurviveLostReplies(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	f := faults{}
	f.between(s.conn)
	for _, set := range []lb.Set{lb.SetSourceCIDR, lb.SetIPVSNets, lb.SetInternal} {
		id := lb.IPSet{Set: set, Family: lb.IPv4}
		for seed := range uint64(5) {
			random, losses := rand.New(rand.NewPCG(seed, uint64(set))), rand.New(rand.NewPCG(seed, 10))
			s.applyObjects(t, lb.Add, id)
			k := memberRequests{s: s, id: id, want: map[lb.Member]bool{}, have: lb.Snapshot{}}
			for range 30 {
				if f.round(t, &k, 5, random, losses); random.IntN(3) > 0 {
					continue
				}
				k.sync(t)
				must(t, k.audit(t))
				k.checkWanted(t)
				k.sync(t)
				must(t, k.audit(t))
				k.check(t)
			}
			s.applyObjects(t, lb.Delete, id)
		}
	}
}

// memberRequests are members that a set is to have, and those of which lb knows.
type memberRequests struct {
	s    *nftSets
	id   lb.IPSet
	want map[lb.Member]bool
	have lb.Snapshot
}

func (k *memberRequests) change(random *rand.Rand) {
	var m lb.Member
	if k.id.Set == lb.SetInternal {
		m = lb.Member{Set: k.id.Set, Addr: netip.MustParseAddr("192.0.2.1"), Port: uint16(1 + random.IntN(4)), Proto: lb.TCP, Mark: 3}
		other := m
		other.Mark = 6
		if random.IntN(2) == 0 {
			m, other = other, m
		}
		delete(k.want, other)
	} else {
		nets := []string{"0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.0/32", "192.0.2.0/24"}
		m = rangeMember(k.id.Set, random.IntN(2), netip.MustParsePrefix(nets[random.IntN(len(nets))]))
	}
	if delete(k.want, m); random.IntN(2) == 0 {
		k.want[m] = true
	}
}

// sync applies the differences, as lb does, and ignores errors.
func (k *memberRequests) sync(t *testing.T) {
	var add, remove []lb.Op
	wanted := lb.Snapshot{}
	for m := range k.want {
		wanted[m.ID()] = m
		if k.have[m.ID()] != m {
			add = append(add, lb.Op{Verb: lb.Add, Object: m})
		}
	}
	for id, m := range k.have {
		if wanted[id] == nil {
			remove = append(remove, lb.Op{Verb: lb.Delete, Object: m})
		}
	}
	for _, ops := range [][]lb.Op{add, remove} {
		slices.SortFunc(ops, func(a, b lb.Op) int { return lb.Compare(a.Object.ID(), b.Object.ID()) })
		for i, err := range k.s.applyMembers(t.Context(), ops) {
			switch {
			case err != nil:
			case ops[i].Verb == lb.Delete:
				delete(k.have, ops[i].Object.ID())
			default:
				k.have[ops[i].Object.ID()] = ops[i].Object
			}
		}
	}
}

func (k *memberRequests) audit(t *testing.T) error {
	obs := lb.Observation{Objects: lb.Expecting(nil)}
	if err := k.s.observe(t.Context(), k.id.Family, &obs); err != nil {
		return err
	}
	k.have = obs.Objects.Snapshot()
	delete(k.have, k.id)
	return nil
}

// checkWanted checks that the kernel has the wanted members, and perhaps others.
func (k *memberRequests) checkWanted(t *testing.T) {
	t.Helper()
	for m := range k.want {
		if k.have[m.ID()] != m {
			t.Fatalf("%s is missing", m)
		}
	}
}

func (k *memberRequests) check(t *testing.T) {
	t.Helper()
	want := lb.Snapshot{}
	for m := range k.want {
		want[m.ID()] = m
	}
	if diff := cmp.Diff(want, k.have, compareNetip); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", k.id, diff)
	}
	if k.id.Set != lb.SetInternal {
		k.s.checkRanges(t, k.id, k.want)
	}
}

// A removal leaves no empty table. One with sets or chains of another program stays.
func TestNFTTheTableGoesWithItsLastSet(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	sets := setObjects()
	for _, tt := range []struct{ foreign, left string }{
		{"nft list tables", ""},
		{"nft add set ip weir FOREIGN '{ type ipv4_addr; }'", "table ip weir"},
		{"nft add chain ip weir foreign", "table ip weir"},
	} {
		s.applyObjects(t, lb.Add, sets...)
		sh(t, "%s", tt.foreign)
		s.applyObjects(t, lb.Delete, sets[1:]...)
		if left := oneLine(sh(t, "nft list tables")); !strings.HasPrefix(left, "table ip weir") {
			t.Errorf("%s: with a set, %q is left", tt.foreign, left)
		}
		s.applyObjects(t, lb.Delete, sets[0])
		if left := oneLine(sh(t, "nft list tables")); left != tt.left {
			t.Errorf("%s: %q is left, want %q", tt.foreign, left, tt.left)
		}
	}
	s.applyObjects(t, lb.Add, sets...)
	if n := len(s.observed(t)); n != len(sets) {
		t.Errorf("after another creation: %d sets", n)
	}
}

// A member inside another one stays known after a read that fails.
func TestNFTSetsSurviveAFailedRead(t *testing.T) {
	inNamespace(t)
	s := testNFTSets(t)
	id := lb.IPSet{Set: lb.SetSourceCIDR, Family: lb.IPv4}
	wide, narrow := rangeMember(id.Set, 1, netip.MustParsePrefix("10.0.0.0/8")), rangeMember(id.Set, 1, netip.MustParsePrefix("10.1.0.0/16"))
	s.applyObjects(t, lb.Add, id, wide, narrow)
	f := faults{refused: unix.NFT_MSG_GETSETELEM}
	f.between(s.conn)
	obs := lb.Observation{Objects: lb.Expecting(nil)}
	if err := s.observe(t.Context(), lb.IPv4, &obs); err == nil {
		t.Fatal("a read without replies succeeds")
	}
	// So does one before a change that is sent twice.
	sh(t, "nft delete element ip weir KUBE-LOAD-BALANCER-SOURCE-CIDR '{ 192.0.2.1 . tcp . 81 . 10.0.0.0/8 }'")
	if err := s.applyMembers(t.Context(), []lb.Op{{Verb: lb.Delete, Object: wide}})[0]; err == nil {
		t.Fatal("a removal without replies succeeds")
	}
	f.refused = 0
	s.applyObjects(t, lb.Delete, wide)
	s.checkRanges(t, id, map[lb.Member]bool{narrow: true})
}
