package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The groups of commands, as the help shows them: nouns read, verbs change or try.
const (
	groupRead   = "read"
	groupChange = "change"
	groupTry    = "try"
)

// addGroups makes the groups of weir's help.
func addGroups(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRead, Title: "Nouns read:"},
		&cobra.Group{ID: groupTry, Title: "Verbs that try, and change nothing:"},
		&cobra.Group{ID: groupChange, Title: "Verbs that change:"},
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

// written gives arguments with the names of commands written out: "ser" is services, and
// "b n" is bgp neighbors. What changes something has to be written out by whoever wants
// it; so has what could be two commands.
func written(root *cobra.Command, args []string) []string {
	out := slices.Clone(args)
	cmd := root
	for i, arg := range out {
		if !cmd.HasSubCommands() || arg == "" || strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "__") {
			break
		}
		next := meant(cmd, arg)
		if next == nil {
			break
		}
		out[i] = next.Name()
		cmd = next
	}
	return out
}

// meant is the subcommand that a word is the name of, or the beginning of its name; nil
// if there is none, or more than one.
func meant(cmd *cobra.Command, word string) *cobra.Command {
	var found []*cobra.Command
	for _, c := range cmd.Commands() {
		switch {
		case c.Name() == word || c.HasAlias(word):
			return c
		case strings.HasPrefix(c.Name(), word) && !c.Hidden && c.GroupID != groupChange:
			found = append(found, c)
		}
	}
	if len(found) != 1 || !found[0].Runnable() && !found[0].HasSubCommands() {
		return nil
	}
	return found[0]
}

// unknown gives an error for a word that is none of the subcommands of a command which
// does nothing by itself; cobra would show the help, and call that a success.
func unknown(root *cobra.Command, args []string) error {
	cmd, rest, _ := root.Find(args) // what begins no command is left to root, and cobra refuses it
	if cmd == root || cmd.Runnable() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil
	}
	names := cmd.SuggestionsFor(rest[0])
	if len(names) == 0 {
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
	}
	return exitError{exitInvalid, fmt.Errorf("unknown command %q for %q; there is %s", rest[0], cmd.CommandPath(), strings.Join(names, ", "))}
}

// begins has begun set as soon as a command runs: what fails before that is a command
// line that is wrong, whatever the library calls it.
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
