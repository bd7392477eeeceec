package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// numbered is a Local Service of its own VIP and NodePort.
func numbered(n int) Service {
	svc := localWeb(near, far)
	svc.ID.Name = fmt.Sprintf("web%02d", n)
	b := vip.As4()
	b[3] = byte(n)
	svc.VIPs = []VIP{local(VIP{Addr: netip.AddrFrom4(b)}), local(all4)}
	svc.Ports[0].NodePort = uint16(30000 + n)
	return svc
}

func TestRestartKeepsMarks(t *testing.T) {
	onlyNodePort := numbered(5)
	onlyNodePort.VIPs = onlyNodePort.VIPs[1:]
	all := []Service{numbered(2), numbered(3), numbered(4), onlyNodePort}
	s := newLocalStory(t, numbered(1))
	s.send(append(all, numbered(1))...) // in another order than that of names
	mustSync(t, s.Reconciler, s.now)
	s.send(all...)
	mustSync(t, s.Reconciler, s.now)
	s.now = s.now.Add(2 * time.Minute)
	mustSync(t, s.Reconciler, s.now)
	for range 3 {
		s = s.again(all...)
		s.sync(0)
	}
}

// Who loses a frontend does not take the mark of who has it.
func TestRestartGivesMarksToTheOwnersOfFrontends(t *testing.T) {
	winner, loser := numbered(1), numbered(1)
	winner.ID.Name, loser.ID.Name = "zzz", "aaa"
	winner.Created, loser.Created = testNow, testNow.Add(time.Hour)
	s := newLocalStory(t, winner)
	s.send(winner, loser)
	mustSync(t, s.Reconciler, s.now)
	s = s.again(winner, loser)
	s.sync(0)
}

func TestMarkOfAnotherProtocolIsNotKept(t *testing.T) {
	svc := numbered(1)
	svc.Ports[0].Proto = UDP
	f := svc.Frontends()[0]
	s := newStory(t)
	lead := tuple(SetInternal, f)
	lead.Mark = 3 // of TCP: its flows would drain
	s.sets()
	s.k.Put(lead, markMember(innerFace), VirtualServer{Frontend: innerFace, Scheduler: Scheduler{Name: "rr"}})
	s.SetSources("prod")
	s.send(svc)
	mustSync(t, s.Reconciler, s.now)
	m, _ := s.have.mapping(SetInternal, f)
	if face := MarkFrontend(IPv4, m.Mark); face.Proto != UDP {
		t.Errorf("%s is led to %s, which is %s", f, face, face.Proto)
	}
}

func TestMarkIsNotReusedWhileItDrains(t *testing.T) {
	s := newLocalStory(t, numbered(1))
	s.k.SetConns(RealServer{Frontend: innerFace, Addr: be2}, Conns{Active: 1})
	s.marks.last = 0
	s.send(numbered(2))
	mustSync(t, s.Reconciler, s.now)
	s.now = s.now.Add(2 * time.Second)
	mustSync(t, s.Reconciler, s.now)
	s.marks.last = 0
	s.send(numbered(2), numbered(3))
	mustSync(t, s.Reconciler, s.now)
	used := slices.Sorted(func(yield func(uint32) bool) {
		for _, mark := range s.marks.of {
			if !yield(mark) {
				return
			}
		}
	})
	if want := []uint32{3, 6, 9}; !slices.Equal(used, want) { // web01's drains
		t.Errorf("marks %v, want %v", used, want)
	}
	s.k.SetConns(RealServer{Frontend: innerFace, Addr: be2}, Conns{})
	for range 3 {
		s.now = s.now.Add(2 * time.Second)
		mustSync(t, s.Reconciler, s.now)
	}
	s.marks.last = 0
	s.send(numbered(2), numbered(3), numbered(4))
	mustSync(t, s.Reconciler, s.now)
	if m, _ := s.have.mapping(SetInternal, numbered(4).Frontends()[0]); m.Mark != 3 {
		t.Errorf("after the drain web04 has mark %d, want 3", m.Mark)
	}
}

func TestWithoutAMarkAllClientsGetTheOuterFace(t *testing.T) {
	s := newLocalStory(t, kube(backends(near, far), VIP{Addr: vip}))
	s.marks.max = 2 // none of which is of TCP
	s.send(localWeb(near, far))
	mustSync(t, s.Reconciler, s.now)
	s.meets(front, kept(be1), kept(be1), hidden(be1))
	if n := s.Notes(); len(n) != 1 || n[0].Reason != Failed {
		t.Errorf("notes %v", n)
	}
}

// What a Sync spends on marks is what has changed: drains that go on cost nothing.
func TestReleasingMarksCostsTheChange(t *testing.T) {
	s := newLocalStory(t, numbered(1))
	s.k.SetConns(RealServer{Frontend: innerFace, Addr: be2}, Conns{Active: 1})
	s.send()
	for range 5 {
		s.now = s.now.Add(2 * time.Second)
		mustSync(t, s.Reconciler, s.now)
		if len(s.marks.maybeUnused) > 0 {
			t.Fatalf("marks %v are looked at again by the next Sync", s.marks.maybeUnused)
		}
		if len(s.marks.byMark) != 1 || len(s.Drains()) == 0 {
			t.Fatalf("marks %v, drains %v", s.marks.byMark, s.Drains())
		}
	}
	s.now = s.now.Add(time.Minute)
	mustSync(t, s.Reconciler, s.now)
	if len(s.marks.byMark)+len(s.marks.of) > 0 {
		t.Errorf("after the drain marks are left: %v %v", s.marks.byMark, s.marks.of)
	}
}
