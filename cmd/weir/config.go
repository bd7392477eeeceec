package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/status/text"
)

func configCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "explain the keys of the configuration, and show the one in force",
		Long: `Explain the meaning and the values of a key, or show every key as it is in force,
with its file and line.`,
	}
	cmd.AddCommand(configExplainCommand(e), configShowCommand(e))
	return cmd
}

func configExplainCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [KEY]",
		Short: "explain a key or a table of the configuration",
		Long: `Explain a key of the configuration, or a table with all its keys. The explanation has
the type, the default, the limits, the permitted values, the effect, and whether a
change needs a restart. Without KEY it lists the tables. KEY may have the form of messages: service.web.backend[2].weight.

Exit status: 0 shown, 2 there is no such key.`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			return keysBeginning(args, begun), cobra.ShellCompDirectiveNoFileComp
		},
	}
	format := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, err := load.Schema().Explain(strings.Join(args, ""))
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
	for _, name := range load.Schema().Names() {
		if len(args) == 0 && strings.HasPrefix(name, begun) {
			out = append(out, name)
		}
	}
	return out
}

func configShowCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "show every key as it is in force, with its file and line",
		Long: `Show the effective configuration: every key of every table in use, as one TOML file,
with the file and line of each value. Defaults, and values of [defaults], follow a
"#". The output is a valid configuration, equal to the original. It has no secrets:
those are in files.

It is read from the file and its includes. With --running it is that of the daemon,
which differs if the file was changed since, or was not confirmed.

Exit status: 0 shown, 2 invalid or unreadable, 3 not running (with --running).`,
		Args: cobra.NoArgs,
	}
	socket, file, format := socketFlag(cmd), configFlag(cmd), outputFlag(cmd)
	running := cmd.Flags().Bool("running", false, "show the configuration of the daemon")
	changed := cmd.Flags().Bool("changed", false, "omit keys that have their default")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		doc := &load.Effective{}
		if *running {
			if err := ask(cmd.Context(), *socket, *file, "GET", "/config", doc); err != nil {
				return notRunning(err)
			}
			if text := differs(doc); text != "" {
				fmt.Fprintln(e.stderr, "weir:", text)
			}
		} else {
			var err error
			if doc, err = load.LoadEffective(*file); err != nil {
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

// differs returns a message if the file of the running configuration differs from it.
func differs(running *load.Effective) string {
	file, err := load.LoadEffective(running.File)
	if err != nil {
		return fmt.Sprintf("can't compare with %s: %v", running.File, err)
	}
	keys := running.Differences(file)
	if len(keys) == 0 {
		return ""
	}
	return fmt.Sprintf("this configuration is in force; %s differs: %s", running.File, text.Names(keys))
}
