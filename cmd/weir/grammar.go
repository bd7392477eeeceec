package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/status/text"
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

// unknown returns an error for an unknown command, also behind help and behind a command
// that does nothing by itself: for these cobra would print a help and report success.
func unknown(root *cobra.Command, args []string) error {
	if len(args) > 1 && args[0] == "help" {
		args = args[1:]
		if _, _, err := root.Find(args); err != nil {
			return unknownCommand(root, args[0])
		}
	}
	cmd, rest, _ := root.Find(args)
	if cmd == root || cmd.Runnable() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil
	}
	return unknownCommand(cmd, rest[0])
}

// unknownCommand returns the error for a name that is no subcommand, with similar ones, or
// else all.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	names := cmd.SuggestionsFor(name)
	fix := "did you mean " + strings.Join(names, " or ") + "?"
	if len(names) == 0 {
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		fix = "use one of " + strings.Join(names, ", ")
	}
	return exitError{exitInvalid, fmt.Errorf("there is no command %q; %s", cmd.CommandPath()+" "+name, fix)}
}

// unknownFlag returns the error for an invalid flag.
func unknownFlag(cmd *cobra.Command, err error) error {
	return exitError{exitInvalid, fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())}
}

// wrongArgs makes a command report arguments that it does not accept in the words of its help.
func wrongArgs(cmd *cobra.Command) {
	if accepts := cmd.Args; accepts != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if accepts(cmd, args) == nil {
				return nil
			}
			return exitError{exitInvalid, fmt.Errorf("%s given: the command is %s; see %s --help", text.Count(len(args), "argument"), cmd.UseLine(), cmd.CommandPath())}
		}
	}
}

// begins sets begun as soon as a command runs. An error before that is an invalid
// command line.
func begins(cmd *cobra.Command, begun *bool) {
	wrongArgs(cmd)
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
