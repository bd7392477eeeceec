package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Call is a request under way.
type Call struct {
	Pid    int // of the command that runs, as its machine counts
	frames *frames
	stop   func() bool
}

// Begin sends a request. The connection is the call's from here on: it is closed by Wait, and at once
// when ctx ends, which ends the command on the other side too.
func Begin(ctx context.Context, conn net.Conn, req Request) (*Call, error) {
	c := &Call{frames: &frames{conn: conn}}
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err := c.frames.sendJSON(frameRequest, req); err != nil {
		c.end()
		return nil, fmt.Errorf("send request: %w", lost(err))
	}
	if req.Op != Run {
		return c, nil
	}
	if err := c.started(); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// started waits for the command to run, or for the reason why it cannot.
func (c *Call) started() error {
	kind, payload, err := c.frames.receive()
	if err != nil {
		return lost(err)
	}
	if kind == frameStarted {
		return json.Unmarshal(payload, &c.Pid)
	}
	var r Result
	if err := json.Unmarshal(payload, &r); err != nil {
		return fmt.Errorf("parse result: %w", err)
	}
	return errors.New(r.Err)
}

// Signal sends the command a signal; SIGKILL goes to its whole process group.
func (c *Call) Signal(sig syscall.Signal) error {
	return c.frames.send(frameSignal, []byte{byte(sig)})
}

// Wait copies the command's output until it ends. An error means that its end was not seen: the
// connection went, or a writer refused.
func (c *Call) Wait(stdout, stderr io.Writer) (Result, error) {
	defer c.end()
	for {
		kind, payload, err := c.frames.receive()
		if err != nil {
			return Result{}, lost(err)
		}
		switch kind {
		case frameStdout:
			_, err = stdout.Write(payload)
		case frameStderr:
			_, err = stderr.Write(payload)
		case frameResult:
			var r Result
			err := json.Unmarshal(payload, &r)
			return r, err
		}
		if err != nil {
			return Result{}, err
		}
	}
}

func (c *Call) end() {
	c.stop()
	c.frames.conn.Close()
}

func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) {
		return ErrLost
	}
	return err
}

// ErrLost means that the connection went before the command's result came: the power was cut, the
// context ended, the machine stopped.
var ErrLost = errors.New("connection to the machine lost")
