package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
)

func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func try(addr string, began, ended int, err error) Try {
	return Try{Addr: addr, Server: "web", Began: at(began), Ended: at(ended), Err: err}
}

func TestOutcomeOf(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("ask: %w", &net.OpError{Op: "dial", Err: err}) }
	for _, tc := range []struct {
		err  error
		want Outcome
	}{
		{nil, Answered},
		{wrap(syscall.ECONNREFUSED), Refused},
		{wrap(syscall.EHOSTUNREACH), Unreachable},
		{wrap(syscall.ENETUNREACH), Unreachable},
		{wrap(syscall.ECONNRESET), Reset},
		{io.ErrUnexpectedEOF, Reset},
		{wrap(context.DeadlineExceeded), Dropped},
		{wrap(os.ErrDeadlineExceeded), Dropped},
		{wrap(syscall.ETIMEDOUT), Dropped},
		{errors.New("odd"), "odd"},
	} {
		if got := OutcomeOf(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestGapIsTheLongestTimeWithoutAnAnswer(t *testing.T) {
	lost := context.DeadlineExceeded
	for _, tc := range []struct {
		name  string
		tries Tries
		want  time.Duration
	}{
		{"nothing", nil, 0},
		{"all answered", Tries{try("a", 0, 5, nil), try("a", 10, 18, nil)}, 13 * time.Millisecond},
		{"one lost", Tries{try("a", 0, 5, nil), try("a", 20, 1020, lost), try("a", 50, 60, nil)}, 55 * time.Millisecond},
		{"none answered", Tries{try("a", 0, 1000, lost), try("a", 700, 1700, lost)}, 700 * time.Millisecond},
		{"of one of two addresses", Tries{try("a", 0, 5, nil), try("b", 0, 5, nil), try("a", 500, 505, nil), try("b", 900, 905, nil)}, 900 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.tries.Gap(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestReportInOneLine(t *testing.T) {
	r := Tries{
		try("a", 0, 5, nil), try("a", 10, 1015, nil), try("a", 20, 21, syscall.ECONNREFUSED),
		try("a", 30, 3030, context.DeadlineExceeded), try("a", 40, 41, syscall.EHOSTUNREACH), try("a", 1020, 1025, nil),
	}.Report().And(Report{Held: 24, Cut: 2, Cuts: Outcomes{Reset: 2}})
	if want := "3 answered, 1 refused, 2 failed (1 dropped, 1 unreachable), 2 of 24 cut (2 reset), longest gap 1.01s"; r.String() != want {
		t.Errorf("got  %s\nwant %s", r, want)
	}
	if r.Late != 1 || r.Tried() != 6 || r.Lost() != 3 {
		t.Errorf("late %d, tried %d, lost %d", r.Late, r.Tried(), r.Lost())
	}
	if got := (Tries{}).Report().String(); got != "no traffic" {
		t.Errorf("nothing: %q", got)
	}
}

func TestSplitAndBetween(t *testing.T) {
	tries := Tries{try("a", 0, 5, nil), try("a", 8, 12, nil), try("a", 15, 16, nil), try("a", 25, 26, io.EOF)}
	before, between, after := tries.Split(at(10), at(20))
	if len(before) != 1 || len(between) != 2 || len(after) != 1 {
		t.Errorf("split into %d, %d, %d", len(before), len(between), len(after))
	}
	if got := tries.Between(at(8), at(25)); len(got) != 2 {
		t.Errorf("between: %v", got)
	}
	if err := tries.Err(3); err == nil || err.Error() != "a, 25ms after the first: EOF" {
		t.Errorf("error %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var dial = new(net.Dialer).DialContext

func TestLoadReportsTheEndOfAServer(t *testing.T) {
	for _, kind := range []struct {
		name  string
		ask   Ask
		serve func(net.Listener) func()
	}{
		{"HTTP", HTTP(dial), func(l net.Listener) func() { return props.Serve(l, props.Named("web1")) }},
		{"echo", Echo(dial), func(l net.Listener) func() { return ServeEcho(l, "web1") }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			l := listen(t)
			stop := kind.serve(l)
			load := Start(t.Context(), Options{Ask: kind.ask, Beat: time.Millisecond}, l.Addr().String())
			defer load.Stop()
			if err := load.Wait(t.Context(), 20); err != nil {
				t.Fatal(err)
			}
			stop()
			dead := time.Now()
			if err := Eventually(t.Context(), 10*time.Second, func(context.Context) error {
				if load.Tries().Between(dead, time.Time{}).Report().Refused == 0 {
					return errors.New("nothing is refused")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			tries := load.Stop()
			if got := tries.By()["web1"]; got < 20 || got != load.Answered() {
				t.Errorf("web1 answered %d of %d", got, load.Answered())
			}
			if late := tries.Between(dead, time.Time{}).Report(); late.Answered > 0 || late.Refused == 0 {
				t.Errorf("after the server's end: %s", late)
			}
		})
	}
}

func TestRowCountsAnswersSinceTheLastFailure(t *testing.T) {
	l := &Load{tries: Tries{try("a", 0, 1, nil), try("a", 2, 3, io.EOF), try("a", 4, 5, nil), try("a", 6, 7, nil)}}
	if got := l.Row(at(0)); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
	if got := l.Row(at(6)); got != 1 {
		t.Errorf("since 6 ms: got %d, want 1", got)
	}
}

func TestHeldConnectionsAreCutByTheirServer(t *testing.T) {
	l := listen(t)
	stop := ServeEcho(l, "web1")
	o := HoldOptions{Beat: time.Millisecond, Patience: 5 * time.Second}
	all, err := HoldMany(t.Context(), dial, 3, o, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := all[0].Wait(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if r := all.Report(t.Context(), time.Now(), 5*time.Second); r.Cut != 0 || r.Held != 3 || len(all.By()["web1"]) != 3 {
		t.Errorf("while the server lives: %s", r)
	}
	if err := all[0].Release(); err != nil {
		t.Errorf("released: %v", err)
	}
	stop()
	r := all.Release()
	if r.Cut != 2 || r.Cuts[Reset] != 2 || all[1].Err() == nil || all[1].Ended().IsZero() {
		t.Errorf("after the server's end: %s, %v", r, all[1].Err())
	}
	if _, err := Hold(t.Context(), dial, l.Addr().String(), o); OutcomeOf(err) != Refused {
		t.Errorf("a connection without a server: %v", err)
	}
}

func TestReleaseEndsAConnectionThatIsSilent(t *testing.T) {
	l := listen(t)
	defer ServeConns(l, func(c net.Conn) {
		_, _ = fmt.Fprintln(c, "mute")
		_, _ = io.Copy(io.Discard, c)
	})()
	all, err := HoldMany(t.Context(), dial, 1, HoldOptions{Beat: time.Millisecond}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if r := all.Report(t.Context(), time.Now(), 50*time.Millisecond); r.Cuts[Dropped] != 1 {
		t.Errorf("a silent server: %s", r)
	}
	if err := all[0].Release(); err != nil {
		t.Errorf("released: %v", err)
	}
}

func TestFlowCountsLostDatagrams(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { // drops number 3
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) != "3" {
				_, _ = server.WriteTo(fmt.Appendf(nil, "%s web1", buf[:n]), from)
			}
		}
	}()
	c, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	f := StartFlow(c)
	d, err := f.Wait(t.Context(), 6)
	if err != nil || d.Server != "web1" {
		t.Errorf("%+v, %v", d, err)
	}
	if lost, gap := f.Stop(); lost != 1 || gap < DefaultBeat {
		t.Errorf("%d lost, gap %s", lost, gap)
	}
}

func TestEventuallyReturnsTheLastError(t *testing.T) {
	n := 0
	err := Eventually(t.Context(), time.Minute, func(context.Context) error {
		if n++; n < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || n != 3 {
		t.Errorf("%d calls, %v", n, err)
	}
	err = Eventually(t.Context(), time.Millisecond, func(context.Context) error { return errors.New("never") })
	if err == nil || !strings.Contains(err.Error(), "not within 1ms: never") {
		t.Errorf("error %v", err)
	}
}
