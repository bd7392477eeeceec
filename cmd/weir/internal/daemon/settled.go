package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What a run of weir leaves for the next one, so that the fleet need not take a
// restart for a box that has just come: how long the box had been up when it was last
// settled, and what it held.
//
// It is kept beside the socket, in a folder that a reboot empties (/run/weir), and is
// only believed in the boot in which it was written. Times are those since the boot,
// so that a clock that is set makes nobody older or younger.

const (
	// traceFile is the name in the socket's folder.
	traceFile = "fleet.json"
	// traceLasts is how long a settled box may be without its daemon and still be
	// settled when that is back; traceEvery is how often the time is written again.
	traceLasts = time.Minute
	traceEvery = 2 * time.Second
	// maxTraceFile bounds what is read: no box holds more VIPs.
	maxTraceFile = 16 << 20
)

// trace is what is left. The zero trace is that of a box that was not settled.
type trace struct {
	// Boot is the kernel's boot_id, Uptime the time since the boot in nanoseconds.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
	// Holds are the VIPs that it owned, sorted.
	Holds []netip.Addr `json:"holds,omitempty"`
}

// readTrace gives what the last run of this boot has left in a folder, if that is not
// too long ago by now. Whatever is wrong with the file means that there is none: the
// box then waits like one that has just come.
func readTrace(dir, boot string, now time.Duration) (t trace, ok bool) {
	file, err := os.Open(filepath.Join(dir, traceFile))
	if err != nil {
		return trace{}, false
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxTraceFile))
	if err != nil {
		return trace{}, false
	}
	return parseTrace(content, boot, now)
}

// parseTrace is readTrace of the content of a file.
func parseTrace(content []byte, boot string, now time.Duration) (t trace, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&t); err != nil {
		return trace{}, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return trace{}, false
	}
	if ago := now - t.Uptime; t.Boot != boot || ago < 0 || ago > traceLasts {
		return trace{}, false
	}
	return t, true
}

// save leaves a trace in a folder. That of a power cut is of no use to anybody, so
// nobody waits for a disk.
func (t trace) save(dir string) error {
	content, err := json.Marshal(t)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, traceFile)
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// removeTrace takes away what was left: the box is not settled any more, or says
// good-bye.
func removeTrace(dir string) error {
	if err := os.Remove(filepath.Join(dir, traceFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// uptime is the time since the boot, suspended or not.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // no Linux that weir runs on is without
	}
	return time.Duration(ts.Nano())
}

// bootID is the kernel's name for this boot; "" where it gives none.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}

// tracer keeps the trace of this run. Its methods may be called at any time.
type tracer struct {
	dir, boot string
	before    map[netip.Addr]struct{} // what the last run held

	mu      sync.Mutex
	settled bool
	holds   []netip.Addr
	written time.Duration // when; 0: there is no file
	err     error
}

// load reads what the last run has left at a time since the boot, and tells how long ago
// that run has ended, and whether the box was settled then.
func (t *tracer) load(now time.Duration) (ago time.Duration, settled bool) {
	left, ok := readTrace(t.dir, t.boot, now)
	if !ok {
		return 0, false
	}
	t.before = map[netip.Addr]struct{}{}
	for _, a := range left.Holds {
		t.before[a] = struct{}{}
	}
	return now - left.Uptime, true
}

// keep says what is to be left: nothing of a box that is not settled.
func (t *tracer) keep(settled bool, holds []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.holds = settled, holds
}

// forget leaves nothing: this box says good-bye.
func (t *tracer) forget() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.written = false, 0
	return removeTrace(t.dir)
}

// touch writes what is to be left, if it is time to.
func (t *tracer) touch(now time.Duration, log *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	switch {
	case t.settled && (t.written == 0 || now-t.written >= traceEvery):
		t.written = now
		err = trace{t.boot, now, t.holds}.save(t.dir)
	case !t.settled && t.written != 0:
		t.written = 0
		err = removeTrace(t.dir)
	default:
		return
	}
	if errorText(err) != errorText(t.err) {
		log.Warn("a restart of weir would be taken for a new box", "error", err)
	}
	t.err = err
}
