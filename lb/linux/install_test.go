package linux

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// TestRulesOfAnEarlierConfigurationAreReported: they stay in force while another program
// prevents the write of the next ones, until they are changed.
func TestRulesOfAnEarlierConfigurationAreReported(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := &playedTables{mangle: asSaved}
	r := playedRules(t, p, Legacy)
	must(t, r.install(ctx))
	inForce := func(what string, want lb.Rules, present bool) {
		t.Helper()
		if _, err := r.observe(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if got, held := r.inForce(); held != present || held && got != want {
			t.Errorf("%s: %#v, %v; want %#v, %v", what, got, held, want, present)
		}
	}
	current, earlier := lb.Rules{Family: r.family}, lb.Rules{Family: r.family, Outdated: true}
	inForce("after the first write", current, true)

	next := DefaultConfig()
	next.MasqueradeAll = true
	r.configure(next)
	inForce("with another configuration", earlier, true)
	locked := map[string]error{r.candidates[0].restore: errors.New("Another app is currently holding the " + lockHeld)}
	p.fail = locked
	if err := r.install(ctx); !errors.Is(err, lb.ErrEarlier) {
		t.Errorf("a write without the lock: %v", err)
	}
	inForce("after a write without the lock", earlier, true)
	wait := func() string {
		for i := len(p.calls) - 1; i >= 0; i-- {
			if _, seconds, ok := strings.Cut(p.calls[i], "--wait "); ok {
				return seconds
			}
		}
		return ""
	}
	if first := wait(); first != "5" {
		t.Errorf("the first write waits %s s", first)
	}
	_ = r.install(ctx)
	if second := wait(); second != "1" {
		t.Errorf("the second write waits %s s", second)
	}
	noTasks := &fs.PathError{Op: "fork/exec", Path: "iptables", Err: unix.EAGAIN}
	p.fail = map[string]error{r.candidates[0].restore: noTasks, r.candidates[0].save: noTasks}
	if err := r.install(ctx); !errors.Is(err, lb.ErrEarlier) {
		t.Errorf("a write without a program: %v", err)
	}
	p.fail = nil
	inForce("after a write without a program", earlier, true)
	p.fail = map[string]error{r.candidates[0].restore: errors.New("no memory"), r.candidates[0].save: errors.New("no memory")}
	if err := r.install(ctx); err == nil || errors.Is(err, lb.ErrEarlier) {
		t.Errorf("a write with an unknown effect: %v", err)
	}
	p.fail = nil
	must(t, r.install(ctx))
	inForce("after a write with the lock", current, true)

	r.configure(DefaultConfig())
	p.fail = locked
	p.text = strings.Replace(p.text, "--set-xmark 0x4000/0x4000", "--set-xmark 0x8000/0x8000", 1)
	if err := r.install(ctx); err == nil || errors.Is(err, lb.ErrEarlier) {
		t.Errorf("a write without the lock, after a foreign change: %v", err)
	}
	inForce("after a foreign change", earlier, false)
}
