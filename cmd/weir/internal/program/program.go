// Package program runs the operator's programs for checks and hooks in a unit of its own,
// weir-exec.service, as another user. The daemon never starts them itself: it asks the
// unit through a socket of systemd.
//
// The daemon sends one request on a connection (Client), and the unit answers with the
// exit status and the output (Serve). A closed connection kills the program. A program
// that ends, or runs out of time, takes all its child processes with it.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"weir/lb/health"
)

// Socket is the address of the unit: weir-exec.socket.
const Socket = "/run/weir-exec.socket"

// Limits of a request and of the output.
const (
	maxRequest = 64 << 10
	maxOutput  = 4 << 10
)

// Request is a program to run.
type Request struct {
	// Argv is the absolute name of the program, and its arguments.
	Argv []string `json:"argv"`
	// Env is added to a clean environment ("NAME=value").
	Env []string `json:"env,omitempty"`
	// Input is the standard input.
	Input string `json:"input,omitempty"`
	// Timeout limits the run; Client sets it.
	Timeout time.Duration `json:"timeout"`
}

// Result is the end of a program.
type Result struct {
	// Status is the exit status, or 128 and the number of the signal that ended it.
	Status int `json:"status"`
	// Output has the first bytes of both outputs.
	Output string `json:"output,omitempty"`
	// TimedOut means that it was killed after its timeout.
	TimedOut bool `json:"timed_out,omitempty"`
	// Error is the reason why it did not start.
	Error string `json:"error,omitempty"`
}

// Client sends requests to the unit at a socket.
type Client struct{ Socket string }

// answerTime is the time for an answer after the timeout of a program.
const answerTime = 2 * time.Second

// Run runs a program until ctx ends. The error wraps context.DeadlineExceeded if the program
// ran out of time. Other errors mean that the program did not run.
func (c Client) Run(ctx context.Context, r Request) (Result, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return Result{}, errors.New("a program needs a deadline")
	}
	r.Timeout = time.Until(deadline)
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return Result{}, unavailable(c.Socket, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			conn.Close()
		}
	})
	defer stop()
	_ = conn.SetDeadline(deadline.Add(answerTime)) // fails on a closed connection, as the write does
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return Result{}, fmt.Errorf("request to %s: %w", c.Socket, err)
	}
	var res Result
	if err := json.NewDecoder(io.LimitReader(conn, 8*maxOutput)).Decode(&res); err != nil {
		return Result{}, fmt.Errorf("answer of %s: %w", c.Socket, err)
	}
	switch {
	case res.TimedOut:
		return res, fmt.Errorf("killed: %w", context.DeadlineExceeded)
	case res.Error != "":
		return res, errors.New(res.Error)
	}
	return res, nil
}

// Check runs the program of a check: a health.Run.
func (c Client) Check(ctx context.Context, p health.Program) (status int, output string, err error) {
	res, err := c.Run(ctx, Request{Argv: p.Argv, Env: p.Env})
	return res.Status, res.Output, err
}

// unavailable returns the error of a socket without a unit, with its remedy.
func unavailable(socket string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w: start it with systemctl enable --now weir-exec.socket", socket, err)
	}
	return fmt.Errorf("%s: %w", socket, err)
}
