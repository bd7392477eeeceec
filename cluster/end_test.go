package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A member that accepts connections and is silent keeps no other from an end.
func TestShutdownDoesNotWait(t *testing.T) {
	t.Parallel()
	stuck, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer stuck.Close()
	cfg := config(t, "a")
	cfg.Timing, cfg.Join = WAN, []string{stuck.Addr().String()} // it is waited for for 10 s
	a := run(t, cfg)
	c, err := stuck.Accept()
	must(t, err)
	defer c.Close()
	begin := time.Now()
	a.stop()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A list that has ended has timers left. The one of a member that it suspected must not make the member dead in the
// next list, where it is alive: no event would follow that makes it alive.
func TestAnEndedListReportsNoDeath(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		cfg := n.config("a")
		cfg.Timing = LAN
		a := n.run(cfg)
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		a.wire.cut(b.cfg.Bind)
		time.Sleep(1500 * time.Millisecond) // it suspects b, and would find it dead 2.5 s later
		cfg.Timing, cfg.Join = Local, []string{b.cfg.Bind.String()}
		before := a.current()
		must(t, a.Configure(cfg))
		within(t, "it joins again", func() bool { l := a.current(); return l != nil && l != before })
		a.wire.cut(netip.AddrPort{})
		a.wants("b", Alive)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if m, _ := a.sees("b"); m.Life != Alive {
				t.Fatalf("b is %s, and answers", m.Life)
			}
		}
	})
}

// Another host at a dead member's address is not asked every second for ever.
func TestAddressesOfDeadMembers(t *testing.T) {
	t.Parallel()
	f, err := New(config(t, "a"), quiet())
	must(t, err)
	at := free(t)
	f.table.members["b"] = &entry{Member: Member{Name: "b", Addr: at, Life: Dead}}
	if got := f.table.dead(f.cfg.Name); len(got) != 1 || got[0] != at.String() {
		t.Errorf("b can be at %v", got)
	}
	f.table.members["c"] = &entry{Member: Member{Name: "c", Addr: at}}
	if got := f.table.dead(f.cfg.Name); got != nil {
		t.Errorf("c is called by b's name at %v", got)
	}
	now := time.Now()
	for n, want := range map[int]time.Duration{0: 0, 1: 2 * time.Second, 3: 8 * time.Second, 6: time.Minute, 1000: time.Minute} {
		a := attempts{n, now, false}
		if !a.due(now.Add(want)) || want > 0 && a.due(now.Add(want-1)) {
			t.Errorf("after %d attempts it is not tried again in %s", n, want)
		}
	}
}

// A new list joins the members of the one before, though Config.Join does not have them: the box would take their VIPs
// before they compare their tables with it, every ten seconds.
func TestANewListJoinsFormerMembers(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		cfg := n.config("a")
		a := n.run(cfg)
		n.run(n.config("b", a))
		a.wants("b", Alive)
		for _, timing := range []Timing{LAN, Local, LAN, Local} {
			cfg.Timing = timing
			before := a.Status().Rejoins
			must(t, a.Configure(cfg))
			within(t, "it joins again", func() bool { s := a.Status(); return s.Rejoins == before+1 && s.Joined })
			time.Sleep(time.Second)
			if m, known := a.sees("b"); !known || m.Life != Alive {
				t.Errorf("with %s it does not know b", timing)
			}
			time.Sleep(7 * time.Second)
		}
	})
}

// A box with another name is no other member of its own list, which may end slowly.
func TestARenamedBoxIsNoOtherMember(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		cfg := n.config("a")
		a := n.run(cfg)
		within(t, "it runs", func() bool { return a.current() != nil })
		cfg.Name = "c"
		must(t, a.Configure(cfg))
		for range 100 {
			if s := a.Status(); len(s.Members) != 1 || !s.Members[0].Self {
				t.Fatalf("%+v", s.Members)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A pending restart that fails like the attempt before it is none, and this is a change.
func TestARejoinThatFailsIsReported(t *testing.T) {
	t.Parallel()
	other := run(t, config(t, "other"))
	within(t, "it runs", func() bool { return other.current() != nil })
	cfg := config(t, "a")
	cfg.Bind = other.cfg.Bind
	a := run(t, cfg)
	within(t, "the port is taken", func() bool { return a.Status().Error != "" })
	for len(a.Changed()) > 0 {
		<-a.Changed()
	}
	cfg.Timing = LAN
	must(t, a.Configure(cfg))
	if !a.Status().Rejoining {
		t.Error("it is not about to join")
	}
	select {
	case <-a.Changed():
	case <-time.After(time.Minute):
		t.Fatal("nothing is reported")
	}
	if a.Status().Rejoining {
		t.Error("it is still about to join")
	}
}

// memberlist drops an update at the moment in which it contradicts another member, about one of 300 here.
func TestNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	cfg := config(t, "a")
	cfg.Keys, cfg.Open = nil, true
	a := run(t, cfg)
	within(t, "it runs", func() bool { return a.current() != nil })
	foreign, err := net.Dial("udp", cfg.Bind.String())
	must(t, err)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer foreign.Close()
		for incarnation := uint32(1000); ; incarnation += 1000 { // later than any of the member's
			select {
			case <-done:
				return
			case <-time.After(20 * time.Microsecond):
			}
			suspect := append(bytes.Clone(label), 3, 0x83)
			suspect = binary.BigEndian.AppendUint32(append(suspect, "\xabIncarnation\xce"...), incarnation)
			_, _ = foreign.Write(append(suspect, "\xa4Node\xa1a\xa4From\xa1b"...))
		}
	}()
	for i := range 2000 {
		want := fmt.Sprint(i)
		must(t, a.Publish(State{Version: want}, Message{}))
		for end := time.Now().Add(time.Minute); a.announced(t) != want; time.Sleep(10 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("it announces state %s, and not %s", a.announced(t), want)
			}
		}
	}
}

// announced is the version that the list announces.
func (b *box) announced(t *testing.T) string {
	b.updating.Lock()
	defer b.updating.Unlock()
	s, err := decodeState(b.current().LocalNode().Meta)
	must(t, err)
	return s.Version
}
