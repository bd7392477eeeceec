package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// reads returns a command that reads, with --watch.
func reads(e env, command func(env) *cobra.Command) *cobra.Command {
	inner, out := e.outlet()
	cmd := command(inner)
	every := watchFlag(cmd)
	read := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("watch") {
			return e.watch(cmd, out, *every, func() error { return read(cmd, args) })
		}
		return read(cmd, args)
	}
	return cmd
}

// outlet is the destination of a command's data and messages, which may change with
// each reading.
type outlet struct{ data, talk io.Writer }

// outlet returns an env that writes to an outlet, which starts as that of e.
func (e env) outlet() (env, *outlet) {
	out := &outlet{e.stdout, e.stderr}
	e.stdout = writerFunc(func(p []byte) (int, error) { return out.data.Write(p) })
	e.stderr = writerFunc(func(p []byte) (int, error) { return out.talk.Write(p) })
	return e, out
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// interval is the value of --watch.
type interval time.Duration

const (
	defaultInterval  = 2 * time.Second
	shortestInterval = 100 * time.Millisecond
)

func watchFlag(cmd *cobra.Command) *interval {
	every := interval(defaultInterval)
	cmd.Flags().VarP(&every, "watch", "w", "repeat every `time` until Ctrl-C: --watch=10s")
	cmd.Flag("watch").NoOptDefVal = defaultInterval.String()
	return &every
}

// String implements pflag.Value.
func (i *interval) String() string { return time.Duration(*i).String() }

// Type implements pflag.Value.
func (i *interval) Type() string { return "time" }

// Set implements pflag.Value; a plain number is in seconds.
func (i *interval) Set(s string) error {
	d, err := time.ParseDuration(s)
	if seconds, bad := strconv.ParseFloat(s, 64); bad == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil {
		return fmt.Errorf("%q is not a time: write 2s or 500ms", s)
	}
	if d < shortestInterval {
		return fmt.Errorf("%s is too short: at least %s", s, shortestInterval)
	}
	*i = interval(d)
	return nil
}

// watch reads repeatedly until the command is interrupted, and returns the error of the
// last reading. A terminal is redrawn each time. Elsewhere readings follow each other:
// tables with an empty line between them, JSON as a line each, YAML as documents.
func (e env) watch(cmd *cobra.Command, out *outlet, every interval, read func() error) error {
	return e.watchTimes(cmd, out, every, 0, read)
}

// watchTimes is watch for a number of readings; 0 is without end.
func (e env) watchTimes(cmd *cobra.Command, out *outlet, every interval, times int, read func() error) error {
	ctx := cmd.Context()
	format := "table"
	if f := cmd.Flag("output"); f != nil {
		format = f.Value.String()
	}
	drawn := e.screen != nil && format == "table" && times != 1
	if drawn {
		fmt.Fprint(e.stdout, "\x1b[2J")
	}
	var last error
	for n := 1; ; n++ {
		begin := time.Now()
		var text bytes.Buffer
		out.data = &text
		if drawn {
			out.talk = &text
		}
		err := read()
		if ctx.Err() != nil {
			return printed(last) // the reading was interrupted
		}
		last = err
		if exit, ok := errors.AsType[exitError](err); ok && exit.code == exitInvalid {
			return err
		}
		if drawn {
			e.draw(cmd, every, text.String()+message(err))
		} else {
			e.print(text.Bytes(), format, n)
			fmt.Fprint(e.stderr, message(err))
		}
		if n == times {
			break
		}
		// A slow daemon is given as much time for other work.
		took := time.Since(begin)
		if !sleep(ctx, max(time.Duration(every)-took, took)) {
			break
		}
	}
	return printed(last)
}

// printed returns the exit status of an error that has been printed.
func printed(err error) error {
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return exitError{code: exit.code}
	}
	return exitError{code: 1}
}

// sleep waits, and reports whether ctx is still alive after that.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// print prints the nth reading for a program, or a file.
func (e env) print(text []byte, format string, n int) {
	switch {
	case format == "json":
		var line bytes.Buffer
		if json.Compact(&line, text) == nil && line.Len() > 0 {
			fmt.Fprintln(e.stdout, line.String())
		}
	case n == 1:
		_, _ = e.stdout.Write(text)
	case format == "yaml":
		fmt.Fprintf(e.stdout, "---\n%s", text)
	default:
		fmt.Fprintf(e.stdout, "\n%s", text)
	}
}

// draw draws a reading over the last one, as much of it as fits.
func (e env) draw(cmd *cobra.Command, every interval, text string) {
	size := e.screen()
	clock := e.now().Format(time.TimeOnly)
	title := fmt.Sprintf("%s, every %s", cmd.CommandPath(), every.String())
	lines := []string{title + strings.Repeat(" ", max(1, size.width-len(title)-len(clock))) + clock, ""}
	lines = append(lines, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	if room := max(3, size.height-1); len(lines) > room { // the last line is the cursor's
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("... and %d more lines", more))
	}
	var out strings.Builder
	out.WriteString("\x1b[H")
	for _, line := range lines {
		out.WriteString(narrow(line, size.width) + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	fmt.Fprint(e.stdout, out.String())
}

// narrow cuts a line to a width, so that each takes one line of the screen.
func narrow(line string, width int) string {
	if chars := []rune(line); len(chars) > width {
		return string(chars[:width])
	}
	return line
}

// screen is the size of a terminal, in characters.
type screen struct{ width, height int }

// terminal returns a function that returns the size of a terminal, which changes with
// its window; nil if the file is not a terminal.
func terminal(file *os.File) func() screen {
	size := func() (screen, bool) {
		s, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return screen{}, false
		}
		if s.Col == 0 || s.Row == 0 { // not set, as on a serial line
			return screen{80, 24}, true
		}
		return screen{int(s.Col), int(s.Row)}, true
	}
	if _, ok := size(); !ok {
		return nil
	}
	return func() screen { now, _ := size(); return now }
}
