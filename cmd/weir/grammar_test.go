package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestNounsMayBeAbbreviatedAndVerbsNot(t *testing.T) {
	t.Parallel()
	root := rootCommand(env{})
	for line, want := range map[string]string{
		"status":              "status",
		"ser -o json":         "services -o json",
		"b n --peer x":        "bgp neighbors --peer x",
		"conf ex kernel":      "config explain kernel", // confirm changes something
		"config e kernel":     "config explain kernel",
		"s":                   "s",
		"cle":                 "cle",
		"drai --all":          "drai --all",
		"rel":                 "rel",
		"g r prod":            "guard r prod",
		"explain st":          "explain st",
		"-h":                  "-h",
		"__complete stat":     "__complete stat",
		"members health --no": "members health --no",
	} {
		got := strings.Join(written(root, strings.Fields(line)), " ")
		if got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

// What --help says: each command belongs to a group, says what it does and how it is used.
func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	groups := []string{groupRead, groupTry, groupChange}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			if c.Parent() == nil && !slices.Contains(groups, sub.GroupID) {
				t.Errorf("%s is in no group", sub.CommandPath())
			}
			if sub.Long == "" || sub.Runnable() && sub.Example == "" {
				t.Errorf("%s: Long of %d bytes, Example of %d", sub.CommandPath(), len(sub.Long), len(sub.Example))
			}
			for line := range strings.Lines(sub.Example) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.Contains(line, sub.CommandPath()) {
					t.Errorf("%s: the example %q is of something else", sub.CommandPath(), line)
				}
			}
			walk(sub)
		}
	}
	walk(rootCommand(env{}))
}
