package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
)

// Exit codes beside 0 and 1, as systemctl and LSB init scripts have them.
const (
	exitInvalid    = 2 // the configuration is invalid, or the command line is
	exitNotRunning = 3
	// The configuration is invalid or empty, and a restart would not help: EX_CONFIG of
	// sysexits.h. It differs from 2, the status of a Go program after a crash, which
	// systemd restarts.
	exitUnconfigured = 78
)

// exitError ends the program with a code of its own. Without err nothing more is
// printed.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// env is the environment of a command; tests bring their own.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	// screen returns the size of the terminal that stdout is; nil if it is not one.
	screen func() screen
}

// placedError begins with its file.
type placedError struct{ text string }

func (e placedError) Error() string { return e.text }

// message returns the line that reports an error. The errors of a file begin with its name and
// the line, so that editors can jump to them.
func message(err error) string {
	var exit exitError
	if err == nil || errors.As(err, &exit) && exit.err == nil {
		return ""
	}
	line := text.Plain(err.Error())
	if place, ok := errors.AsType[placedError](err); ok && line == text.Plain(place.text) {
		return line + "\n"
	}
	if faults, ok := errors.AsType[*source.Errors](err); ok && line == text.Plain(faults.Error()) {
		return line + "\n"
	}
	return "weir: " + line + "\n"
}

// defaultConfig is the path of the configuration that the packages install.
const defaultConfig = source.MainFile

const configUsage = "configuration `file`"

func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", defaultConfig, configUsage)
}

// fileArg returns the configuration file of a command that takes it as an argument
// or with --config.
func fileArg(cmd *cobra.Command, flag string, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return flag, nil
	case cmd.Flags().Changed("config"):
		return "", exitError{exitInvalid, errors.New("give the file as an argument or with --config, not both")}
	}
	return args[0], nil
}

// format is the value of --output. An unknown one is refused before a command changes anything.
type format string

var formats = []string{"table", "json", "yaml"}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "string" }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("use one of %s", strings.Join(formats, ", "))
	}
	*f = format(s)
	return nil
}

func outputFlag(cmd *cobra.Command) *string {
	out := formats[0]
	cmd.Flags().VarP((*format)(&out), "output", "o", "output `format`: table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return &out
}

func (e env) write(doc status.Tabler, format string) error {
	return status.Write(e.stdout, doc, format, e.now())
}
