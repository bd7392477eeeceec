package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of the unit.
const (
	mostRuns    = 64 // at the same time; others wait
	mostTime    = time.Hour
	requestTime = 5 * time.Second
	// outputTime is the time for outputs that a child still has when its program has ended. A check
	// that ends much later than its timeout counts as a fault of this box, not of the backend.
	outputTime = 200 * time.Millisecond
)

// environment is the clean one.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/"}

// Serve runs the programs of all connections until ctx ends. It becomes the parent of
// processes that programs leave behind, and kills them.
func Serve(ctx context.Context, l net.Listener) error {
	children, err := newChildren()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	slots := make(chan struct{}, mostRuns)
	var runs sync.WaitGroup
	defer runs.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		slots <- struct{}{}
		runs.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			serve(ctx, conn, children)
		})
	}
}

// serve runs the program of one connection.
func serve(ctx context.Context, conn net.Conn, children *children) {
	_ = conn.SetReadDeadline(time.Now().Add(requestTime)) // a closed connection fails below
	var r Request
	decoder := json.NewDecoder(io.LimitReader(conn, maxRequest))
	if err := decoder.Decode(&r); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(r.Timeout, 0), mostTime))
	defer cancel()
	go func() { // the end of the connection is the end of the program
		_ = conn.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	}()
	res := run(ctx, r, children)
	_ = conn.SetWriteDeadline(time.Now().Add(requestTime))
	_ = json.NewEncoder(conn).Encode(res) // nothing to do without a reader
}

// run runs a program until it ends or ctx ends.
func run(ctx context.Context, r Request, children *children) Result {
	if len(r.Argv) == 0 || !filepath.IsAbs(r.Argv[0]) {
		return Result{Error: "the program has no absolute name"}
	}
	var out output
	cmd := exec.Command(r.Argv[0], r.Argv[1:]...)
	cmd.Env = append(append([]string(nil), environment...), r.Env...)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(r.Input)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = outputTime
	if err := children.start(cmd); err != nil {
		return Result{Error: err.Error()}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	timedOut := false
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		timedOut = errors.Is(ctx.Err(), context.DeadlineExceeded)
		children.kill(cmd)
		err = <-ended
	}
	children.ended(cmd)
	res := Result{Output: out.text(), TimedOut: timedOut}
	if err != nil && cmd.ProcessState == nil {
		res.Error = err.Error()
		return res
	}
	res.Status = cmd.ProcessState.ExitCode()
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		res.Status = 128 + int(w.Signal())
	}
	return res
}

// output keeps the first bytes that are written to it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p[:min(len(p), maxOutput-o.buf.Len())])
	return len(p), nil
}

// text returns the first line.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(o.buf.String(), "?")), "\n")
	return line
}
