package cluster

import (
	"bytes"
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// However slowly a fleet gossips, a leaving member is noticed, and learns of no trouble.
func TestLeaveArrivesWithEveryTiming(t *testing.T) {
	t.Parallel()
	for _, timing := range []Timing{LAN, Local, WAN} {
		t.Run(timing.String(), func(t *testing.T) {
			t.Parallel()
			inAir(t, func(t *testing.T, n *air) {
				cfg := n.config("a")
				cfg.Timing = timing
				a := n.run(cfg)
				cfg = n.config("b", a)
				cfg.Timing = timing
				b := n.run(cfg)
				a.wants("b", Alive)
				b.wants("a", Alive)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if err := b.Leave(ctx); err != nil {
					t.Error(err)
				}
				b.stop()
				a.wants("b", Left)
				if n := a.Status().Counters.Deaths; n != 0 {
					t.Errorf("%d deaths", n)
				}
			})
		})
	}
}

func TestLeaveWithoutTime(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		b.wants("a", Alive)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		for _, ctx := range []context.Context{canceled, short} {
			if err := b.Leave(ctx); err == nil {
				t.Error("perhaps nobody has heard it, and it says nothing")
			}
		}
	})
}

// The library panics if it is used to leave when it has ended.
func TestLeaveWhileRunEnds(t *testing.T) {
	t.Parallel() // in real time: who waits for a mutex holds up virtual time
	a := run(t, config(t, "a"))
	for range 5 {
		b := run(t, config(t, "b", a))
		a.wants("b", Alive)
		b.wants("a", Alive)
		left := make(chan error, 1)
		go func() { left <- b.Leave(t.Context()) }()
		within(t, "it leaves", func() bool { return b.Status().Members[1].State.Leaving })
		b.stop()
		if err := <-left; err != nil {
			t.Error(err)
		}
		within(t, "it is gone", func() bool { m, _ := a.sees("b"); return m.Life != Alive })
	}
}

// A change that does not affect how others find a box keeps it in the fleet.
func TestAnotherTimingIsNoDeath(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		cfg := n.config("a")
		cfg.Timing = WAN // no member is dead soon
		a := n.run(cfg)
		cfg = n.config("b", a)
		cfg.Timing = WAN
		b := n.run(cfg)
		a.wants("b", Alive)
		b.wants("a", Alive)
		before := b.current()
		cfg.Timing = LAN
		must(t, b.Configure(cfg))
		within(t, "it joins anew", func() bool { l := b.current(); return l != nil && l != before })
		b.wants("a", Alive)
		must(t, b.Publish(State{Version: "new"}, Message{}))
		within(t, "and is heard", func() bool { m, _ := a.sees("b"); return m.State.Version == "new" })
		if n := a.Status().Counters; n.Deaths != 0 || n.Conflicts != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// A box with another name does not come back under the former one, and raises no alarm.
func TestAnotherNameIsNoDeath(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		cfg := n.config("b", a)
		b := n.run(cfg)
		a.wants("b", Alive)
		cfg.Name = "c"
		must(t, b.Configure(cfg))
		a.wants("b", Left)
		a.wants("c", Alive)
		if m, _ := a.sees("c"); m.State.Leaving || a.Status().Counters.Deaths != 0 {
			t.Errorf("%+v, %+v", m.State, a.Status().Counters)
		}
	})
}

func (b *box) current() *memberlist.Memberlist {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session.list
}

// wildcard is where a box listens at all its addresses.
func wildcard(c Config) netip.AddrPort {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), c.Bind.Port())
}

func TestABoxAtItsOldAddress(t *testing.T) {
	t.Parallel()
	was := Config{Fleet: "edge", Name: "a", Bind: free(t), Join: []string{"b"}}
	everywhere := was
	everywhere.Bind = wildcard(was)
	told := everywhere
	told.Advertise = was.Bind
	for _, c := range []struct {
		what   string
		from   Config
		change func(*Config)
		want   bool
	}{
		{"timing", was, func(c *Config) { c.Timing = WAN }, true},
		{"join", was, func(c *Config) { c.Join = nil }, true},
		{"join, which the address is of", everywhere, func(c *Config) { c.Join = nil }, false},
		{"bind", was, func(c *Config) { c.Bind = wildcard(was) }, false},
		{"bind, not what is told", told, func(c *Config) { c.Bind = was.Bind }, true},
		{"advertise", told, func(c *Config) { c.Advertise = wildcard(was) }, false},
		{"name", was, func(c *Config) { c.Name = "c" }, false},
		{"fleet", was, func(c *Config) { c.Fleet = "c" }, false},
	} {
		to := c.from
		c.change(&to)
		if got := to.found(c.from); got != c.want {
			t.Errorf("another %s: %v, want %v", c.what, got, c.want)
		}
	}
}

// Keys may change while the port is being opened.
func TestKeysThatChangeDuringTheStart(t *testing.T) {
	t.Parallel()
	cfg := config(t, "a")
	a := made(t, cfg)
	a.hooks.configure = func(*memberlist.Config) error {
		cfg.Keys = []Key{keyB}
		return a.Configure(cfg)
	}
	a.start()
	within(t, "it has begun", func() bool { return a.current() != nil })
	if keys := a.lines.ring.GetKeys(); len(keys) != 1 || !bytes.Equal(keys[0], []byte(keyB.secret)) {
		t.Errorf("%d keys, and not the last ones", len(keys))
	}
}
