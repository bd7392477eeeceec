package health

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Program is a program that a check starts.
type Program struct {
	// Argv is the program and its arguments, Env its whole environment ("NAME=value").
	Argv, Env []string
}

// Run runs a program until it ends or ctx ends, and returns its exit status and the first
// line of its output. An error means that it did not run: that is no result about a backend.
type Run func(ctx context.Context, p Program) (status int, output string, err error)

// errNoRun wraps the errors of Run.
var errNoRun = errors.New("program not run")

// askExec runs a program with the address of the backend in its environment, and accepts
// the exit status 0. The arguments "$WEIR_ADDRESS" and "$WEIR_PORT" become their values.
func askExec(argv []string, run Run) asker {
	return func(ctx context.Context, _ Dial, t target) error {
		if run == nil {
			return errNoRun
		}
		a, err := netip.ParseAddrPort(t.address)
		if err != nil {
			return err
		}
		address, port := a.Addr().String(), strconv.Itoa(int(a.Port()))
		words := slices.Clone(argv)
		for i, w := range words {
			switch w {
			case "$WEIR_ADDRESS":
				words[i] = address
			case "$WEIR_PORT":
				words[i] = port
			}
		}
		status, output, err := run(ctx, Program{Argv: words, Env: []string{"WEIR_ADDRESS=" + address, "WEIR_PORT=" + port}})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return timeoutError(t.timeout)
		case err != nil:
			return fmt.Errorf("%w: %w", errNoRun, err)
		case status == 0:
			return nil
		case output != "":
			return fmt.Errorf("exit status %d: %s", status, output)
		}
		return fmt.Errorf("exit status %d", status)
	}
}
