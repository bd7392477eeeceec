package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config"
)

func configCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "explain the keys of the configuration, and show what is in force",
		Long: `Explain what a key of the configuration means and may be, or show every key as it is in
force, with the file and line that it comes from.`,
	}
	cmd.AddCommand(configExplainCommand(e), configShowCommand(e))
	return cmd
}

func configExplainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [KEY]",
		Short: "explain a key or a table of the configuration",
		Long: `Explain a key of the configuration, or a table with all its keys: type, default,
limits, what may be written, whether a change needs a restart, and what it does.
Without KEY, the tables. KEY may be written as messages have it:
service.web.backend[2].weight.

Exit status: 0 shown, 2 there is no such key.`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			return keysBeginning(args, begun), cobra.ShellCompDirectiveNoFileComp
		},
	}
	format := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, err := config.Explain(strings.Join(args, ""))
		if err != nil {
			return exitError{exitInvalid, err}
		}
		return e.write(m, *format)
	}
	return cmd
}

// keysBeginning completes the name of a key.
func keysBeginning(args []string, begun string) []string {
	var out []string
	for _, name := range config.KeyNames() {
		if len(args) == 0 && strings.HasPrefix(name, begun) {
			out = append(out, name)
		}
	}
	return out
}

func configShowCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show every key as it is in force, and where it comes from",
		Long: `Show the effective configuration: every key of every table that counts, as one
TOML file, with the file and line of each value. A key that is written nowhere has
its default, or what [defaults] says, behind a "#". What is shown can be loaded
again, and is the same configuration. It holds no secrets: those are in files.

It is that of the file and what it includes; with --running that of the daemon,
which differs where the file has been changed since, or was not confirmed.

Exit status: 0 shown, 2 invalid or unreadable, 3 not running (with --running).`,
		Args: cobra.NoArgs,
	}
	socket, file, format := socketFlag(cmd), configFlag(cmd), outputFlag(cmd)
	running := cmd.Flags().Bool("running", false, "what is in force in the daemon")
	changed := cmd.Flags().Bool("changed", false, "leave out what has its default")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		doc := &config.Effective{}
		if *running {
			if err := ask(cmd.Context(), *socket, *file, "GET", "/config", doc); err != nil {
				return notRunning(err)
			}
			if text := differs(doc); text != "" {
				fmt.Fprintln(e.stderr, "weir:", text)
			}
		} else {
			var err error
			if doc, err = config.LoadEffective(*file); err != nil {
				return exitError{exitInvalid, err}
			}
		}
		if *changed {
			doc = doc.Changed()
		}
		return e.write(doc, *format)
	}
	return cmd
}

// differs says whether the file of a configuration in force says something else by now.
func differs(running *config.Effective) string {
	file, err := config.LoadEffective(running.File)
	if err != nil {
		return fmt.Sprintf("whether %s says the same can't be told: %v", running.File, err)
	}
	keys := running.Differences(file)
	if len(keys) == 0 {
		return ""
	}
	return fmt.Sprintf("this is in force, and %s says something else: %s", running.File, names(keys))
}

// names writes the first of many.
func names(all []string) string {
	const most = 8
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
