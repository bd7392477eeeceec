package membership

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

	"weir/cmd/weir/internal/fleet"
	"weir/cmd/weir/internal/status"
)

// A run of weir leaves a trace for the next one, so that a restart is not taken for a new
// box: the uptime of the host when the box was last stable, and the VIPs that it owned.
//
// The trace is beside the socket, in a folder that a reboot empties (/run/weir), and is
// valid only in the boot in which it was written. Its times count from the boot: setting
// the clock has no effect.

const (
	// traceFile is the name in the socket's folder.
	traceFile = "fleet.json"
	// traceEvery is how often the time is written.
	traceEvery = 2 * time.Second
	// maxTraceFile bounds the file: no box owns more VIPs.
	maxTraceFile = 16 << 20
)

// trace is the content of the file. The zero trace is that of a box that was not stable.
type trace struct {
	// Boot is the kernel's boot_id, Uptime the time since the boot in nanoseconds.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
	// Owned are the VIPs that it owned, sorted.
	Owned []netip.Addr `json:"owned,omitempty"`
}

// readTrace returns the trace of the last run of this boot, if it is recent enough. A file
// with any fault counts as none: the box then waits like a new one.
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

// parseTrace parses the content of a file for readTrace.
func parseTrace(content []byte, boot string, now time.Duration) (t trace, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&t); err != nil {
		return trace{}, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return trace{}, false
	}
	if ago := now - t.Uptime; t.Boot != boot || ago < 0 || ago > fleet.StableFor {
		return trace{}, false
	}
	return t, true
}

// save writes a trace to a folder. It does not wait for the disk: after a power cut the
// trace has no use.
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

// removeTrace removes the trace: the box is not stable any more, or leaves.
func removeTrace(dir string) error {
	if err := os.Remove(filepath.Join(dir, traceFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// uptime returns the time since the boot, suspended or not.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // every Linux that weir supports has this clock
	}
	return time.Duration(ts.Nano())
}

// bootID returns the name of this boot; "" if the kernel has none.
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

	mu      sync.Mutex
	stable  bool
	owned   []netip.Addr
	written time.Duration // when; 0: there is no file
	err     error
}

// load returns the trace of the last run.
func (t *tracer) load(now time.Duration) (last fleet.LastRun) {
	left, ok := readTrace(t.dir, t.boot, now)
	if !ok {
		return last
	}
	last = fleet.LastRun{Stable: true, Ago: now - left.Uptime, Owned: map[netip.Addr]struct{}{}}
	for _, a := range left.Owned {
		last.Owned[a] = struct{}{}
	}
	return last
}

// keep sets the trace to write: none of a box that is not stable.
func (t *tracer) keep(stable bool, owned []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stable, t.owned = stable, owned
}

// forget removes the trace: this box leaves.
func (t *tracer) forget() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stable, t.written = false, 0
	return removeTrace(t.dir)
}

// touch writes the trace if it is time to.
func (t *tracer) touch(now time.Duration, log *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	line := "fleet trace not written: a restart counts as a new box"
	switch {
	case t.stable && (t.written == 0 || now-t.written >= traceEvery):
		t.written = now
		err = trace{t.boot, now, t.owned}.save(t.dir)
	case !t.stable && t.written != 0:
		line = "fleet trace not removed: a restart counts as stable"
		if err = removeTrace(t.dir); err == nil {
			t.written = 0
		}
	default:
		return
	}
	if err != nil && err.Error() != status.ErrorText(t.err) {
		log.Warn(line, "error", err)
	}
	t.err = err
}
