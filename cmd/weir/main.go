// Command weir is the load balancer: the daemon (weir run) and the commands that read
// and change it. It never decides anything itself: the packages below internal do.
//
// Commands that read are nouns (status, services, health, events), commands that change
// are verbs (run, reload, drain, cleanup), as are those that only try or explain (check, plan,
// import, explain). Data goes to standard output, messages go to standard error. A file
// has one command, or two that belong together (drain and undrain); main.go puts them together.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/supervise"
)

func main() {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { end(supervise.Signaled{Signal: (<-signals).(syscall.Signal)}) }()
	os.Exit(run(ctx, env{os.Stdin, os.Stdout, os.Stderr, time.Now, terminal(os.Stdout)}, os.Args[1:]))
}

// run is main without the process around it.
func run(ctx context.Context, e env, args []string) int {
	root := rootCommand(e)
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
	case cmd == root && len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		errors.As(unknownCommand(root, args[0]), &exit)
	default:
		exit = exitError{exitInvalid, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	}
	fmt.Fprint(e.stderr, message(exit))
	return exit.code
}

func rootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "load balancer for bare metal, based on the kernel's IPVS",
		Long: `weir is a load balancer. It programs the kernel's IPVS, which forwards the packets,
checks the backends, and repairs changes by other programs. It serves the services
of its configuration and of Kubernetes clusters, assigns addresses, and advertises
them via BGP, ARP and NDP. The kernel keeps forwarding when the daemon stops.

The daemon is weir run; systemd starts it. All other commands query or change it.
Start with weir status for the state of the box, weir doctor for its problems, and
weir explain for the path of a client's packet.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(versionLine())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(unknownFlag)
	addGroups(root)
	add(root, groupRead, reads(e, statusCommand), reads(e, servicesCommand), reads(e, connsCommand), reads(e, explainCommand),
		reads(e, poolsCommand), bgpCommand(e), reads(e, membersCommand), reads(e, healthCommand), reads(e, eventsCommand), topCommand(e),
		reads(e, guardCommand), configCommand(e), reads(e, doctorCommand), versionCommand(e))
	add(root, groupTry, checkCommand(e), planCommand(e), importCommand(e))
	add(root, groupChange, runCommand(e), reloadCommand(e), confirmCommand(e), drainCommand(e), undrainCommand(e), cleanupCommand(e), backendCommand(e))
	root.AddCommand(manualCommand(e), programsCommand())
	exemplify(root)
	completions(root)
	return root
}
