package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"weir/cmd/weirlab/internal/agent"
)

// Proc is a process that runs on a machine. Its output, both streams in the order of arrival, goes to
// a log file of the machine.
type Proc struct {
	what string // "box1: weir", for errors
	call *agent.Call
	log  *outputLog
	done chan struct{}

	// Set before done is closed.
	result agent.Result
	err    error
}

// launch has an agent run a command until alive ends, and copies its output into a log until its end.
func (l *Lab) launch(ctx, alive context.Context, dial dialer, what string, req agent.Request, logPath string) (*Proc, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	call, err := agent.Begin(alive, conn, req)
	if err != nil {
		return nil, err
	}
	file, err := os.Create(logPath)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("create log: %w", err)
	}
	log := &outputLog{file: file, changed: make(chan struct{})}
	p := &Proc{what: what, call: call, log: log, done: make(chan struct{})}
	l.procs.Go(func() {
		p.result, p.err = call.Wait(log, log)
		file.Close()
		close(p.done)
	})
	return p, nil
}

// Pid is the process id, as the machine counts.
func (p *Proc) Pid() int { return p.call.Pid }

// Log is the path of the log file. It is gone when the lab is closed.
func (p *Proc) Log() string { return p.log.file.Name() }

// Output is all that the process has printed so far.
func (p *Proc) Output() string { return p.log.text() }

// Done is closed when the process has ended and its output is complete.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Signal sends the process a signal.
func (p *Proc) Signal(sig syscall.Signal) error {
	if err := p.call.Signal(sig); err != nil {
		return fmt.Errorf("%s: send %v: %w", p.what, sig, err)
	}
	return nil
}

// Kill ends the process and its children with SIGKILL and waits for that. One that has ended is
// success.
func (p *Proc) Kill() {
	if p.call.Signal(syscall.SIGKILL) == nil {
		<-p.done
	}
}

// Wait waits for the process's end and returns its exit code, 128+n for one ended by signal n. The
// error means that the end was not seen: ctx ended first, or the machine lost its power.
func (p *Proc) Wait(ctx context.Context) (code int, err error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: wait for its end: %w", p.what, ctx.Err())
	}
	if p.err != nil {
		return 0, fmt.Errorf("%s: %w", p.what, p.err)
	}
	if p.result.Err != "" {
		return p.result.Code, fmt.Errorf("%s: %s", p.what, p.result.Err)
	}
	return p.result.Code, nil
}

// Expect waits until the process has printed text. It fails when ctx or the process ends before.
func (p *Proc) Expect(ctx context.Context, text string) error {
	for {
		found, changed := p.log.contains(text)
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-p.done:
			if found, _ := p.log.contains(text); found {
				return nil
			}
			return fmt.Errorf("%s: ended without printing %q; its last words:\n%s", p.what, text, p.log.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s: wait for %q: %w; its last words:\n%s", p.what, text, ctx.Err(), p.log.tail())
		}
	}
}

// outputLog is a log file that can be waited for.
type outputLog struct {
	mu      sync.Mutex
	file    *os.File
	content bytes.Buffer
	changed chan struct{} // closed and replaced at every write
}

// Write never refuses: a log file that cannot be written must not end the process that logs.
func (l *outputLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(p)
	l.content.Write(p)
	close(l.changed)
	l.changed = make(chan struct{})
	return len(p), nil
}

func (l *outputLog) contains(text string) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.content.Bytes(), []byte(text)), l.changed
}

func (l *outputLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}

// tail is what an error message quotes.
func (l *outputLog) tail() string {
	const enough = 2000
	text := l.text()
	return text[max(0, len(text)-enough):]
}

// ErrPowerLost is in the error of a command on a machine that lost its power, or after its lab was closed.
var ErrPowerLost = errors.New("the machine has no power")
