package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/traffic"
)

// counting is a command that prints which reading it is, and ends with the result of ends.
func counting(print string, ends func(n int) error) func(env) *cobra.Command {
	return func(e env) *cobra.Command {
		cmd := &cobra.Command{Use: "count", SilenceErrors: true, SilenceUsage: true}
		outputFlag(cmd)
		n := 0
		cmd.RunE = func(*cobra.Command, []string) error {
			n++
			fmt.Fprintf(e.stdout, print, n)
			return ends(n)
		}
		return cmd
	}
}

func well(int) error { return nil }

// watched runs a command for a while, as if Ctrl-C ended it.
func watched(t *testing.T, size *screen, lasts time.Duration, command func(env) *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		e := env{stdout: &out, stderr: &errs, now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }}
		if size != nil {
			e.screen = func() screen { return *size }
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		cmd := reads(e, command)
		cmd.SetArgs(args)
		err = cmd.ExecuteContext(ctx)
		stdout, stderr = out.String(), errs.String()
	})
	return stdout, stderr, err
}

func TestWatching(t *testing.T) {
	t.Parallel()
	down := func(n int) error {
		if n == 2 {
			return exitError{exitNotRunning, errNotRunning}
		}
		return exitError{code: 1}
	}
	for _, tt := range []struct {
		name, print string
		ends        func(int) error
		args        []string
		out, says   string
		code        int
	}{
		{"not at all", "%d\n", well, nil, "1\n", "", 0},
		{"tables", "reading %d\n", well, []string{"-w"}, "reading 1\n\nreading 2\n\nreading 3\n", "", 0},
		{"slowly", "reading %d\n", well, []string{"--watch=4"}, "reading 1\n\nreading 2\n", "", 0},
		{"an answer that takes its time", "reading %d\n", func(int) error { time.Sleep(1500 * time.Millisecond); return nil }, []string{"-w"}, "reading 1\n\nreading 2\n", "", 0},
		{"JSON", "{\n  \"n\": %d\n}\n", well, []string{"--watch=2s", "-o", "json"}, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", "", 0},
		{"YAML", "n: %d\n", well, []string{"--watch=2500ms", "-o", "yaml"}, "n: 1\n---\nn: 2\n", "", 0},
		{"what fails now and then", "%d\n", down, []string{"-w"}, "1\n\n2\n\n3\n", "weir: weir is not running\n", 1},
		{"what will never do", "%d\n", func(int) error { return exitError{exitInvalid, errors.New("no")} }, []string{"-w"}, "", "", exitInvalid},
		{"an interrupted reading", "%d\n", func(n int) error {
			if n == 2 {
				time.Sleep(time.Minute)
			}
			return errors.New("no")
		}, []string{"-w"}, "1\n", "weir: no\n", 1},
		{"too fast", "%d\n", well, []string{"--watch=1ms"}, "", "", 1},
		{"at no time", "%d\n", well, []string{"--watch=soon"}, "", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, says, err := watched(t, nil, 4900*time.Millisecond, counting(tt.print, tt.ends), tt.args...)
			code, exit := 0, exitError{code: 1}
			if err != nil {
				errors.As(err, &exit)
				code = exit.code
			}
			if code != tt.code {
				t.Errorf("exit status %d (%v), want %d", code, err, tt.code)
			}
			if d := cmp.Diff(tt.out+tt.says, out+says); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if last := message(err); last != "" && strings.Contains(says, last) {
				t.Errorf("printed twice: %q", last)
			}
		})
	}
}

func TestATerminalIsRedrawn(t *testing.T) {
	t.Parallel()
	command := counting("weir is ok: %d\n\na backend that is  down  and much more of it\n4\n5\n6\n7\n8\n", well)
	out, _, err := watched(t, &screen{20, 8}, 3*time.Second, command, "-w")
	if err != nil {
		t.Fatal(err)
	}
	clear, line := "\x1b[2J", "\x1b[K\n"
	drawn := func(n int) string {
		return "\x1b[H" + strings.Join([]string{
			"count, every 2s 00:0", "", fmt.Sprintf("weir is ok: %d", n), "", "a backend that is  d", "4", "... and 4 more lines",
		}, line) + line + "\x1b[J"
	}
	if d := cmp.Diff(clear+drawn(1)+drawn(2), out); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A follower of events gets each once, and goes on after a restart of weir.
func TestFollowing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out, says bytes.Buffer
		event := func(seq uint64, text string) status.Event {
			return status.Event{Seq: seq, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Level: "info", Text: text}
		}
		first := time.Now()
		second, third := first.Add(time.Hour), first.Add(2*time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		steps := []func() (status.Events, error){
			func() (status.Events, error) { return status.Events{Last: 7, Began: first}, nil }, // nothing happened
			func() (status.Events, error) {
				return status.Events{Last: 8, Began: first, Events: []status.Event{event(8, "stopped")}}, nil
			},
			func() (status.Events, error) { return status.Events{}, errNotRunning },
			func() (status.Events, error) { return status.Events{}, errNotRunning },
			func() (status.Events, error) { return status.Events{Last: 2, Began: second}, nil }, // another run
			func() (status.Events, error) {
				return status.Events{Last: 2, Began: second, Events: []status.Event{event(1, "begun"), event(2, "ready")}}, nil
			},
			func() (status.Events, error) { // a third one, which has more events already
				return status.Events{Last: 3, Began: third, Events: []status.Event{event(3, "the third")}}, nil
			},
			func() (status.Events, error) {
				return status.Events{Last: 3, Began: third, Expired: 5, Events: []status.Event{event(1, "the first"), event(2, "the second"), event(3, "the third")}}, nil
			},
			func() (status.Events, error) { cancel(); return status.Events{}, ctx.Err() },
		}
		var asked []uint64
		get := func(_ context.Context, after uint64, _ time.Duration) (status.Events, error) {
			asked = append(asked, after)
			return steps[len(asked)-1]()
		}
		e := env{stdout: &out, stderr: &says}
		if err := e.follow(ctx, status.Events{Last: 7, Began: first, Events: []status.Event{event(7, "before")}}, "table", get); err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, text := range []string{"before", "stopped", "begun", "ready", "the first", "the second", "the third"} {
			want += "2026-01-01 00:00:00  info   " + text + "\n"
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff([]uint64{7, 7, 8, 8, 8, 0, 2, 0, 3}, asked); d != "" {
			t.Errorf("asked (-want +got):\n%s", d)
		}
		if says.String() != "weir: weir is not running: retrying\nweir: 5 events before these have expired: journalctl -u weir\n" {
			t.Errorf("says %q", says.String())
		}
	})
}

func TestTopNeedsTwoReadings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		asked, failing := 0, false
		ask := func(doc *traffic.Totals) error {
			asked++
			if failing {
				return errNotRunning
			}
			at := time.Since(begin).Truncate(time.Second) // as the daemon has it: one reading a second
			*doc = traffic.Totals{Time: begin.Add(at), Frontends: []traffic.Frontend{
				{Frontend: "192.0.2.1:80/tcp", Counters: traffic.Counters{Connections: 1000 + 10*uint64(at.Seconds())}},
			}}
			return nil
		}
		read := func(x *top) (rate, seconds float64) {
			r, err := x.read(t.Context(), 2*time.Second)
			if err != nil {
				return -1, 0
			}
			return r.Total.Connections, r.Seconds
		}
		once := top{ask: ask}
		if rate, seconds := read(&once); rate != 10 || seconds != 2 || asked != 2 {
			t.Errorf("%v/s over %v s after %d questions", rate, seconds, asked)
		}
		shown := top{ask: ask, atOnce: true}
		if rate, seconds := read(&shown); rate != 0 || seconds != 0 {
			t.Errorf("at once %v/s over %v s", rate, seconds)
		}
		time.Sleep(time.Second)
		for range 2 { // the second gets the same reading, and prints the same
			if rate, seconds := read(&shown); rate != 10 || seconds != 1 {
				t.Errorf("then %v/s over %v s", rate, seconds)
			}
		}
		failing = true
		if rate, _ := read(&shown); rate != -1 {
			t.Error("a failure is told nobody")
		}
		failing = false
		if rate, seconds := read(&shown); rate != 0 || seconds != 0 {
			t.Errorf("another run begins with %v/s over %v s", rate, seconds)
		}
	})
}
