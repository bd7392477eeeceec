package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/lab"
)

func upCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "boot a site and look around in it, until Ctrl-C",
		Long: `Boot the demo's site, a client behind a router that speaks BGP, one box and three web servers, and take commands:

  box ipvsadm -Ln
  client curl -s http://192.0.2.10/
  router birdc show protocols

Everything is gone when this command ends.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

const webPort = 80

func up(ctx context.Context, in io.Reader, out io.Writer) error {
	start := time.Now()
	fmt.Fprintln(out, "booting client, router, api, pod1 to pod3, box, web1 to web3 ...")
	wish := lab.Site{Hosts: demoSite.Hosts, Boxes: slices.Clone(demoSite.Boxes)}
	wish.Boxes[0].Forward = true // there is no weir to switch it on
	site, err := lab.Open(ctx, wish)
	if err != nil {
		return err
	}
	defer site.Close()
	if err := startUpRouter(ctx, site); err != nil {
		return err
	}
	for _, name := range []string{"web1", "web2", "web3"} {
		stop, err := startWeb(site.Host(name), webPort)
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Fprintf(out, "up after %.1f s; web1 to web3 serve their names on port %d\n", time.Since(start).Seconds(), webPort)
	fmt.Fprintln(out, "Type a machine and a command, as in: box ipvsadm -Ln. Ctrl-C ends it all.")
	return prompt(ctx, site, in, out)
}

// startUpRouter starts the router's BGP. Who runs no weir, but tries things by hand,
// has the routes all the same: those that weir announces come first.
func startUpRouter(ctx context.Context, site *lab.Lab) error {
	if err := startDemoRouter(ctx, site); err != nil {
		return err
	}
	_, err := site.Host("router").Run(ctx, "sh", "-ec",
		"ip route add 192.0.2.0/24 via 10.1.0.1 metric 4096; ip route add 2001:db8::/32 via fd00:1::1 metric 4096")
	return err
}

// prompt takes a line after the other, until there is none or ctx ends.
func prompt(ctx context.Context, site *lab.Lab, in io.Reader, out io.Writer) error {
	lines := make(chan string)
	go func() { // ends with the program at the latest: a read from a terminal cannot be called off
		defer close(lines)
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		fmt.Fprint(out, "> ")
		select {
		case line, open := <-lines:
			if !open {
				return nil
			}
			obey(ctx, site, line, out)
		case <-ctx.Done():
			fmt.Fprintln(out)
			return nil
		}
	}
}

// obey runs one line: the name of a machine and a command for its shell.
func obey(ctx context.Context, site *lab.Lab, line string, out io.Writer) {
	name, command, _ := strings.Cut(strings.TrimSpace(line), " ")
	if name == "" {
		return
	}
	var names []string
	for _, m := range site.Machines() {
		names = append(names, m.Name())
		if m.Name() != name {
			continue
		}
		result, err := m.Run(ctx, "sh", "-c", command)
		said := result.Stdout + result.Stderr
		if said != "" && !strings.HasSuffix(said, "\n") {
			said += "\n"
		}
		fmt.Fprint(out, said)
		if err != nil && result.Code == 0 {
			fmt.Fprintln(out, err)
		}
		return
	}
	fmt.Fprintf(out, "no machine is called %s; there are: %s\n", name, strings.Join(names, ", "))
}
