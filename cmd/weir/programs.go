package main

import (
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/program"
)

// programsCommand is for weir-exec.service, and so hidden.
func programsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "run-programs",
		Short:  "run the programs of checks and hooks, at the socket of systemd",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := activated()
			if err != nil {
				return exitError{exitInvalid, err}
			}
			return program.Serve(cmd.Context(), l)
		},
	}
}

// activated returns the listener that systemd has opened for this process: sd_listen_fds(3).
func activated() (net.Listener, error) {
	const first = 3
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
		return nil, errors.New("only systemd runs this command: systemctl enable --now weir-exec.socket")
	}
	file := os.NewFile(first, "weir-exec.socket")
	defer file.Close()
	return net.FileListener(file)
}
