package program

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/lb"
	"weir/lb/health"
)

// unit serves programs at a new socket until the end of the test.
func unit(t *testing.T) Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return Client{socket}
}

// sh runs a script within a limit that ends it only if the test wants so.
func (c Client) sh(t *testing.T, limit time.Duration, script string, env ...string) (Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return c.Run(ctx, Request{Argv: []string{"/bin/sh", "-c", script, "sh", "a b"}, Env: env, Input: "line\n"})
}

const patience = time.Minute

func TestResults(t *testing.T) {
	c := unit(t)
	for _, tt := range []struct {
		script string
		status int
		output string
	}{
		{"true", 0, ""},
		{"echo $1; echo more", 0, "a b"},
		{"echo bad >&2; exit 3", 3, "bad"},
		{"read x; echo $x", 0, "line"},
		{"kill -TERM $$", 128 + 15, ""},
		{"pwd", 0, "/"},
		{"head -c 100000 /dev/zero | tr '\\0' x", 0, strings.Repeat("x", maxOutput)},
	} {
		if res, err := c.sh(t, patience, tt.script); err != nil || res.Status != tt.status || res.Output != tt.output {
			t.Errorf("%s: %+v, %v; want %d, %q", tt.script, res, err, tt.status, tt.output)
		}
	}
}

// TestEnvironmentIsClean sets a variable that programs must not inherit.
func TestEnvironmentIsClean(t *testing.T) {
	t.Setenv("SECRET", "x")
	c := unit(t)
	res, err := c.sh(t, patience, "env | grep -v '^\\(PATH\\|PWD\\|SHLVL\\|_\\)=' | sort | tr '\\n' ' '", "WEIR_PORT=80")
	if want := "HOME=/ LANG=C.UTF-8 WEIR_PORT=80 WEIR_RUN=1"; err != nil || res.Output != want {
		t.Errorf("%q, %v; want %q", res.Output, err, want)
	}
}

// daemonize leaves a process behind that has its own session, and writes its number.
const daemonize = "setsid sh -c 'echo $$ >\"$FILE\"; exec sleep 1000' >/dev/null 2>&1 </dev/null & while [ ! -s \"$FILE\" ]; do sleep 0.01; done; "

// isGone reports whether the process in a file has ended.
func isGone(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// TestNothingStaysBehind ends a program in three ways: no child process survives it.
func TestNothingStaysBehind(t *testing.T) {
	c := unit(t)
	file := filepath.Join(t.TempDir(), "pid")
	if res, err := c.sh(t, patience, daemonize, "FILE="+file); err != nil || res.Status != 0 || !isGone(t, file) {
		t.Errorf("after the end: %+v, %v, its child is gone: %v", res, err, isGone(t, file))
	}
	must(t, os.Remove(file))
	res, err := c.sh(t, 2*time.Second, daemonize+"sleep 1000", "FILE="+file)
	if !errors.Is(err, context.DeadlineExceeded) || !res.TimedOut || !isGone(t, file) {
		t.Errorf("after the timeout: %+v, %v, its child is gone: %v", res, err, isGone(t, file))
	}
	must(t, os.Remove(file))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, Request{Argv: []string{"/bin/sh", "-c", daemonize + "sleep 1000"}, Env: []string{"FILE=" + file}})
		ended <- err
	}()
	for text := []byte(nil); len(text) == 0; text, _ = os.ReadFile(file) {
		if ctx.Err() != nil {
			t.Fatal("the program did not start")
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a canceled run has a result")
	}
	for began := time.Now(); !isGone(t, file); {
		if time.Since(began) > patience {
			t.Fatal("the child of a canceled program runs")
		}
	}
}

// TestHungCheckFails checks a backend by a program that hangs in another process group, as with the
// command timeout. That group keeps the output open, and the check fails nevertheless.
func TestHungCheckFails(t *testing.T) {
	c := health.New(health.Options{Run: unit(t).Check})
	c.Set([]health.Group{{
		Service: lb.ServiceID{Name: "web"}, Quorum: 1,
		Check: health.Check{Kind: health.Exec, Argv: []string{"/bin/sh", "-c", "timeout 1000 sleep 1000; exit 0"},
			Interval: time.Second, Timeout: 300 * time.Millisecond, Rise: 1, Fall: 1},
		Ports: []lb.Port{{Port: 80, Proto: lb.TCP, Backends: []lb.Backend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}}}},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	limit, stop := context.WithTimeout(ctx, patience/3)
	defer stop()
	_ = c.Ready(limit) // the state is compared below
	cancel()
	must(t, <-done)
	if b := c.Backends()[0]; b.State != "down" {
		t.Errorf("the backend of a program that hangs is %s: %s; %+v", b.State, b.Error, c.Stats())
	}
}

// TestOthersRunOn has a program end while another one waits for a process that lost its parent, and
// that left its group in one case: that one goes on.
func TestOthersRunOn(t *testing.T) {
	for _, leave := range []string{"", "setsid "} {
		othersRunOn(t, leave)
	}
}

func othersRunOn(t *testing.T, leave string) {
	t.Helper()
	c := unit(t)
	dir := t.TempDir()
	waits := `(` + leave + `sh -c 'touch "$DIR/runs"; until [ -e "$DIR/go" ]; do sleep 0.01; done; touch "$DIR/done"' &)
until [ -e "$DIR/done" ]; do sleep 0.01; done`
	ended := make(chan error, 1)
	go func() {
		res, err := c.sh(t, patience, waits, "DIR="+dir)
		if err == nil && res.Status != 0 {
			err = errors.New(res.Output)
		}
		ended <- err
	}()
	res, err := c.sh(t, patience, `until [ -e "$DIR/runs" ]; do sleep 0.01; done`, "DIR="+dir)
	if err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if err := <-ended; err != nil {
		t.Errorf("the other program: %v", err)
	}
}

func TestWhatDoesNotRun(t *testing.T) {
	c := unit(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, tt := range []struct {
		client Client
		argv   []string
		want   string
	}{
		{c, []string{"/nowhere/check"}, "no such file or directory"},
		{c, []string{"sh"}, "the program has no absolute name"},
		{c, nil, "the program has no absolute name"},
		{Client{"/nowhere/socket"}, []string{"/bin/true"}, "/nowhere/socket: no such file or directory: start it with systemctl enable --now weir-exec.socket"},
	} {
		if _, err := tt.client.Run(ctx, Request{Argv: tt.argv}); err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %v, want %s", tt.argv, err, tt.want)
		}
	}
	if _, err := c.Run(context.Background(), Request{Argv: []string{"/bin/true"}}); err == nil {
		t.Error("a program runs without a deadline")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
