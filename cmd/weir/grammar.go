package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The groups of commands in the help.
const (
	groupRead   = "read"
	groupChange = "change"
	groupTry    = "try"
)

// addGroups adds the groups of the help.
func addGroups(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRead, Title: "Commands that read:"},
		&cobra.Group{ID: groupTry, Title: "Commands that try, and change nothing:"},
		&cobra.Group{ID: groupChange, Title: "Commands that change:"},
	)
	root.SetHelpCommandGroupID(groupRead)
}

// add adds commands to a group.
func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
	}
	root.AddCommand(commands...)
}

// unknown returns an error for an unknown subcommand of a command that does nothing by
// itself; cobra would print the help and report success.
func unknown(root *cobra.Command, args []string) error {
	cmd, rest, _ := root.Find(args) // cobra refuses an unknown command of root
	if cmd == root || cmd.Runnable() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil
	}
	names := cmd.SuggestionsFor(rest[0])
	if len(names) == 0 {
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
	}
	return exitError{exitInvalid, fmt.Errorf("unknown command %q for %q; it has %s", rest[0], cmd.CommandPath(), strings.Join(names, ", "))}
}

// begins sets begun as soon as a command runs. An error before that is an invalid
// command line.
func begins(cmd *cobra.Command, begun *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*begun = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		begins(sub, begun)
	}
}
