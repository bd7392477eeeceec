package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The texts of --help: each command belongs to a group, describes what it does and how it is used.
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
