package cluster

import (
	"net"
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
		a := attempts{n, now}
		if !a.due(now.Add(want)) || want > 0 && a.due(now.Add(want-1)) {
			t.Errorf("after %d attempts it is not tried again in %s", n, want)
		}
	}
}
