package l2

import (
	"log/slog"
	"net/netip"
	"testing"
)

// Without Run, no later call would signal a change that waits.
func TestEveryChangeIsSignalledWithoutRun(t *testing.T) {
	a := New(slog.New(slog.DiscardHandler))
	for _, change := range []func(){
		func() { a.Configure(Config{Interfaces: []string{"eth0"}}) },
		func() { a.Set(map[netip.Addr]*Claim{netip.MustParseAddr("192.0.2.1"): {}}) },
		func() { a.Set(map[netip.Addr]*Claim{netip.MustParseAddr("192.0.2.1"): nil}) },
	} {
		change()
		select {
		case <-a.Changed():
		default:
			t.Error("a change is not signalled")
		}
	}
	a.SetMembers(nil)
	select {
	case <-a.Changed():
		t.Error("signalled without a change")
	default:
	}
}
