package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

var (
	keyA = Key{strings.Repeat("a", 32)}
	keyB = Key{strings.Repeat("b", 16)}
)

// box is a Fleet that runs.
type box struct {
	*Fleet
	t    *testing.T
	cfg  Config
	stop func()
	wire *wire // if it is in the air
}

// free is an unused port of the loopback.
func free(t *testing.T) netip.AddrPort {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		must(t, err)
		at := l.Addr().(*net.TCPAddr).AddrPort()
		_ = l.Close()
		if u, err := net.ListenPacket("udp4", at.String()); err == nil {
			_ = u.Close()
			return at
		}
	}
	t.Fatal("no free port")
	return netip.AddrPort{}
}

func config(t *testing.T, name string, join ...*box) Config {
	cfg := Config{Fleet: "edge", Name: name, Bind: free(t), Keys: []Key{keyA}, Timing: Local}
	for _, b := range join {
		cfg.Join = append(cfg.Join, b.cfg.Bind.String())
	}
	return cfg
}

func run(t *testing.T, cfg Config) *box {
	t.Helper()
	b := made(t, cfg)
	b.start()
	return b
}

// made is a Fleet that does not run yet.
func made(t *testing.T, cfg Config) *box {
	t.Helper()
	f, err := New(cfg, quiet())
	must(t, err)
	return &box{Fleet: f, t: t, cfg: cfg}
}

func (b *box) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	b.stop = func() { cancel(); <-done }
	b.t.Cleanup(b.stop)
}

// text returns a message without parts.
func text(s string) Message { return Message{Head: []byte(s)} }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// within waits until something is so, for as long as a very busy machine may need.
func within(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// sees returns how a box sees another.
func (b *box) sees(name string) (Member, bool) {
	for _, m := range b.Status().Members {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

func (b *box) wants(name string, life Life) {
	b.t.Helper()
	within(b.t, fmt.Sprintf("%s sees that %s is %s", b.cfg.Name, name, life), func() bool {
		m, ok := b.sees(name)
		return ok && m.Life == life
	})
}

func TestMembersKnowEachOther(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		c := n.run(n.config("c", b))
		state := State{Version: "1.2.3", FitSince: 7, Weight: 10, Digest: DigestOf([]byte("x"))}
		long := bytes.Repeat([]byte("the order of backends\n"), 20000)
		must(t, a.Publish(state, Message{Head: long}))
		for _, other := range []*box{b, c} {
			other.wants("a", Alive)
			within(t, other.cfg.Name+" has what a says", func() bool {
				m, _ := other.sees("a")
				want := state
				want.Stamp = m.State.Stamp
				want.Message = Message{Head: long}.Digest()
				return m.State == want && bytes.Equal(m.Message.Head, long) && m.Addr == a.cfg.Bind
			})
		}
		state.Unfit, state.FitSince = "no carrier on eth0", 0
		must(t, a.Publish(state, Message{}))
		within(t, "a is not fit, and its last word stands", func() bool {
			m, _ := c.sees("a")
			return m.State.Unfit == state.Unfit && m.Stale && bytes.Equal(m.Message.Head, long)
		})
		if m, ok := c.sees("c"); !ok || !m.Self {
			t.Errorf("c sees itself as %+v", m)
		}
		c.wants("b", Alive)
		if n := c.Status().Counters.Joins; n != 2 { // not itself
			t.Errorf("c counts %d members that joined", n)
		}
	})
}

func TestAMemberDiesComesBackAndLeaves(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		a.wants("b", Alive)
		b.wants("a", Alive)
		begin := time.Now()
		b.stop()
		a.wants("b", Dead)
		t.Logf("noticed after %v", time.Since(begin).Round(10*time.Millisecond))
		if n := a.Status().Counters.Deaths; n != 1 {
			t.Errorf("%d deaths", n)
		}
		b = n.run(b.cfg)
		a.wants("b", Alive)
		b.wants("a", Alive)
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		a.wants("b", Left)
		if n := a.Status().Counters.Deaths; n != 1 {
			t.Errorf("%d deaths, although it said good-bye", n)
		}
	})
}

func TestAJoinIsRetried(t *testing.T) {
	t.Parallel()
	later := config(t, "later")
	cfg := config(t, "a")
	cfg.Join = []string{later.Bind.String(), "no such name"}
	a := run(t, cfg)
	within(t, "it says whom it can't join", func() bool { return len(a.Status().Unreachable) == 2 })
	run(t, later)
	a.wants("later", Alive)
	within(t, "and who is left", func() bool { return len(a.Status().Unreachable) == 1 })
}

func TestOnlyTheFleetIsAccepted(t *testing.T) {
	t.Parallel()
	a := run(t, config(t, "a"))
	run(t, config(t, "b", a))
	a.wants("b", Alive)
	for what, change := range map[string]func(*Config){
		"key":    func(c *Config) { c.Keys = []Key{keyB} },
		"no-key": func(c *Config) { c.Keys, c.Open = nil, true },
		"fleet":  func(c *Config) { c.Fleet = "other" },
		"name":   func(*Config) {},
	} {
		cfg := config(t, "other-"+what, a)
		change(&cfg)
		s := made(t, cfg)
		if what == "name" { // a weir would not have it
			s.hooks.configure = func(lib *memberlist.Config) error { lib.Name, lib.Alive = "\x1b[2J\xff", nil; return nil }
		}
		s.start()
		if what != "name" {
			within(t, what+": it is not let in", func() bool { return len(s.Status().Unreachable) == 1 })
		} else {
			time.Sleep(time.Second)
		}
		s.stop()
	}
	if n := len(a.Status().Members); n != 2 {
		t.Errorf("%+v", a.Status().Members)
	}
	if a.Status().Counters.Refused == 0 {
		t.Error("nothing was counted")
	}
	if m, _ := a.sees("b"); m.Life != Alive {
		t.Errorf("b is %s", m.Life)
	}
}

func TestKeysAreExchangedWithoutAGap(t *testing.T) {
	t.Parallel()
	inAir(t, func(t *testing.T, n *air) {
		a := n.run(n.config("a"))
		b := n.run(n.config("b", a))
		c := n.run(n.config("c", a))
		boxes := []*box{a, b, c}
		for _, keys := range [][]Key{{keyA, keyB}, {keyB, keyA}, {keyB}} {
			for i, x := range boxes {
				cfg := x.cfg
				cfg.Keys = keys
				must(t, x.Configure(cfg))
				said := fmt.Sprintf("%d-%d", i, len(keys))
				must(t, x.Publish(State{Version: said}, text(said)))
				for _, y := range boxes {
					if y != x {
						within(t, "what is said is heard", func() bool {
							m, _ := y.sees(x.cfg.Name)
							return m.State.Version == said && string(m.Message.Head) == said
						})
					}
				}
			}
		}
		for _, x := range boxes {
			if s := x.Status(); s.Counters.Deaths != 0 || len(s.Members) != 3 {
				t.Errorf("%+v", s)
			}
		}
		old := n.config("old", a)
		o := n.run(old) // still has the first key
		within(t, "the old key is none", func() bool { return len(o.Status().Unreachable) == 1 })
	})
}

func TestTwoBoxesOfOneName(t *testing.T) {
	t.Parallel()
	a := run(t, config(t, "a"))
	b := run(t, config(t, "b", a))
	a.wants("b", Alive)
	b.mu.Lock()
	b.session.begun = b.session.begun.Add(-startPhase) // it has been there for long
	b.mu.Unlock()
	second := run(t, config(t, "b", a, b))
	within(t, "it is noticed", func() bool { return a.Status().Counters.Conflicts > 0 })
	if m, _ := a.sees("b"); m.Addr != b.cfg.Bind {
		t.Errorf("the first one keeps the name: %+v", m)
	}
	within(t, "the second one knows that it is", func() bool { return second.Status().NameConflict == b.cfg.Bind.String() })
	within(t, "the first one hears of it, too", func() bool { return b.Status().Counters.Conflicts > 0 })
	if twin := b.Status().NameConflict; twin != "" {
		t.Errorf("the first one gives way to %s", twin)
	}
	second.mu.Lock()
	heard := second.session.conflictSeen
	second.mu.Unlock()
	within(t, "it is asked for again", func() bool {
		second.mu.Lock()
		defer second.mu.Unlock()
		return second.session.conflictSeen.After(heard)
	})
	second.expire(time.Now().Add(conflictLasts + time.Second))
	if twin := second.Status().NameConflict; twin != "" {
		t.Errorf("%s is a twin for ever", twin)
	}
}

func TestATakenPortIsRetried(t *testing.T) {
	t.Parallel()
	cfg := config(t, "a")
	l, err := net.Listen("tcp4", cfg.Bind.String())
	must(t, err)
	a := run(t, cfg)
	within(t, "it says so", func() bool { return strings.Contains(a.Status().Error, "address already in use") })
	_ = l.Close()
	within(t, "and begins", func() bool { return a.Status().Error == "" })
}

func TestAnotherConfigurationJoinsAgain(t *testing.T) {
	t.Parallel()
	a := run(t, config(t, "a"))
	b := run(t, config(t, "b", a))
	a.wants("b", Alive)
	cfg := b.cfg
	cfg.Bind = free(t)
	must(t, b.Configure(cfg))
	within(t, "b has moved", func() bool {
		m, _ := a.sees("b")
		return m.Life == Alive && m.Addr == cfg.Bind
	})
}

func TestNewRefusesInvalidConfigs(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Config){
		"no key":  func(c *Config) { c.Keys = nil },
		"names":   func(c *Config) { c.Name = "" },
		"255":     func(c *Config) { c.Fleet = strings.Repeat("x", 256) },
		"address": func(c *Config) { c.Bind = netip.AddrPort{} },
	} {
		cfg := config(t, "a")
		change(&cfg)
		if _, err := New(cfg, slog.Default()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNothingRunsAfterwards(t *testing.T) {
	before := runtime.NumGoroutine()
	a := run(t, config(t, "a"))
	b := run(t, config(t, "b", a))
	a.wants("b", Alive)
	a.stop()
	b.stop()
	within(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
