package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// reads gives a command that reads what all of them have: --watch, and colours on a
// terminal.
func reads(e env, command func(env) *cobra.Command) *cobra.Command {
	inner, out := e.outlet()
	cmd := command(inner)
	every := watchFlag(cmd)
	read := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("watch") {
			return e.watch(cmd, out, *every, func() error { return read(cmd, args) })
		}
		if e.screen == nil || e.plain || !isTable(cmd) {
			return read(cmd, args)
		}
		lines := &tinter{to: e.stdout}
		defer lines.flush()
		out.data = lines
		return read(cmd, args)
	}
	return cmd
}

// outlet is where a command writes data and talk, which may be another place at each
// reading.
type outlet struct{ data, talk io.Writer }

// outlet gives an env that writes to an outlet, which leads to where e writes.
func (e env) outlet() (env, *outlet) {
	out := &outlet{e.stdout, e.stderr}
	e.stdout = writerFunc(func(p []byte) (int, error) { return out.data.Write(p) })
	e.stderr = writerFunc(func(p []byte) (int, error) { return out.talk.Write(p) })
	return e, out
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// isTable tells whether a command was asked for what people read.
func isTable(cmd *cobra.Command) bool {
	f := cmd.Flag("output")
	return f == nil || f.Value.String() == "table"
}

// interval is the value of --watch.
type interval time.Duration

const (
	defaultInterval  = 2 * time.Second
	shortestInterval = 100 * time.Millisecond
)

func watchFlag(cmd *cobra.Command) *interval {
	every := interval(defaultInterval)
	cmd.Flags().VarP(&every, "watch", "w", "read again and again, until Ctrl-C, every `time`: --watch=10s")
	cmd.Flag("watch").NoOptDefVal = defaultInterval.String()
	return &every
}

// String implements pflag.Value.
func (i *interval) String() string { return time.Duration(*i).String() }

// Type implements pflag.Value.
func (i *interval) Type() string { return "time" }

// Set implements pflag.Value; a number alone is seconds.
func (i *interval) Set(s string) error {
	d, err := time.ParseDuration(s)
	if seconds, bad := strconv.ParseFloat(s, 64); bad == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil {
		return fmt.Errorf("%q is no time: write 2s or 500ms", s)
	}
	if d < shortestInterval {
		return fmt.Errorf("%s is too short: at least %s", s, shortestInterval)
	}
	*i = interval(d)
	return nil
}

// watch reads again and again until the command is interrupted; what it ends with is the
// last reading's. A terminal is drawn anew each time; elsewhere readings come one after
// the other: tables with an empty line between them, JSON as a line each, YAML as
// documents.
func (e env) watch(cmd *cobra.Command, out *outlet, every interval, read func() error) error {
	return e.watchTimes(cmd, out, every, 0, read)
}

// watchTimes is watch that ends after so many readings; 0 is without end.
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
			return last // cut off in the midst of a reading
		}
		last = err
		var exit exitError
		if errors.As(err, &exit) && exit.code == exitInvalid {
			return err
		}
		if drawn {
			e.draw(cmd, every, text.String()+complaint(err))
		} else {
			e.print(text.Bytes(), format, n)
			fmt.Fprint(e.stderr, complaint(err))
		}
		if n == times {
			break
		}
		// Who is slow to answer has as much time for other things.
		took := time.Since(begin)
		if !sleep(ctx, max(time.Duration(every)-took, took)) {
			break
		}
	}
	return said(last)
}

// said gives an error that has been printed already.
func said(err error) error {
	var exit exitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return exitError{code: exit.code}
	}
	return exitError{code: 1}
}

// complaint is what main would say of an error.
func complaint(err error) string {
	var exit exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return ""
	}
	return fmt.Sprintln("weir:", err)
}

// sleep waits, and tells whether ctx has not ended meanwhile.
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

// draw draws a reading over the last one, as much of it as there is room for.
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
	for i, line := range lines {
		line = narrow(line, size.width)
		if !e.plain && i > 0 {
			line = tint(line)
		}
		out.WriteString(line + "\x1b[K\n")
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
