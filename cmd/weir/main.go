// Command weir is the load balancer: the daemon (weir run) and the command line
// that reads and changes it.
//
// Nouns read (status, services, health, events, top and so on), verbs change (run,
// reload, drain, undrain, cleanup) or try (check, plan, import): see grammar.go. Data goes
// to standard output, talk to standard error. Each subcommand is one file; this one only puts them
// together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status"
)

// Exit codes beside 0 and 1, as systemctl and LSB init scripts have them.
const (
	exitInvalid    = 2 // the configuration is invalid, or the command line is
	exitNotRunning = 3
	// The daemon has nothing to begin with, and would have nothing at the next try: EX_CONFIG
	// of sysexits.h. It is not 2, which is how a Go program ends that has crashed: systemd
	// starts that one again.
	exitUnconfigured = 78
)

// exitError ends the program with a code of its own. An err of nil says nothing
// more: what there is to say has been printed.
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

// env is the outside of a command; tests bring their own.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	// screen is the terminal that stdout is; nil if it is none.
	screen func() screen
	// plain is without colours (NO_COLOR, see no-color.org).
	plain bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, env{os.Stdin, os.Stdout, os.Stderr, time.Now, terminal(os.Stdout), os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"}, os.Args[1:]))
}

// run is main without the process around it.
func run(ctx context.Context, e env, args []string) int {
	root := rootCommand(e)
	args = written(root, args)
	root.SetArgs(args)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	begun := false
	begins(root, &begun)
	cmd, err := root, unknown(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return 0
	}
	var exit exitError
	switch {
	case errors.As(err, &exit):
	case begun:
		exit = exitError{1, err}
	case cmd == root:
		exit = exitError{exitInvalid, err}
	default:
		exit = exitError{exitInvalid, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	}
	if exit.err != nil {
		fmt.Fprintln(e.stderr, "weir:", status.Plain(exit.err.Error()))
	}
	return exit.code
}

func rootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "load balancer for bare metal, in the kernel's IPVS",
		Long: `weir is a load balancer: it programs the kernel's IPVS, which does the work, checks
the backends, and keeps the kernel as it should be. It serves what its configuration
says and what Kubernetes clusters want, gives out addresses, and leads clients to
them by BGP, ARP and NDP. What is served outlives the daemon.

The daemon is weir run; systemd starts it. All other commands ask it, or change what
it does. Where to begin: weir status says whether all is well, weir doctor what is
wrong with the box, and weir explain what a client meets at an address.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{exitInvalid, err} })
	addGroups(root)
	add(root, groupRead, reads(e, statusCommand), reads(e, servicesCommand), reads(e, connsCommand), reads(e, explainCommand),
		reads(e, poolsCommand), bgpCommand(e), reads(e, membersCommand), reads(e, healthCommand), reads(e, eventsCommand), topCommand(e),
		reads(e, guardCommand), configCommand(e), reads(e, doctorCommand), versionCommand(e))
	add(root, groupTry, checkCommand(e), planCommand(e), importCommand(e))
	add(root, groupChange, runCommand(e), reloadCommand(e), confirmCommand(e), drainCommand(e), undrainCommand(e), cleanupCommand(e))
	root.AddCommand(manualCommand(e))
	exemplify(root)
	completions(root)
	return root
}

// defaultConfig is where the packages put the configuration.
const defaultConfig = "/etc/weir/weir.toml"

const configUsage = "configuration `file`"

func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", defaultConfig, configUsage)
}

func outputFlag(cmd *cobra.Command) *string {
	out := cmd.Flags().StringP("output", "o", "table", "output `format`: table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return out
}

func (e env) write(doc status.Tabler, format string) error {
	if err := status.Write(e.stdout, doc, format, e.now()); err != nil {
		return exitError{exitInvalid, err}
	}
	return nil
}
