// Package manual generates weir's manual pages in man(7) format from the commands, their
// help and the keys of the configuration. It never writes files: packages install the
// pages.
//
// cobra/doc is no replacement. It needs fewer lines, but mandoc -T lint warns about
// each option (a tab in filled text) and about the date, a month. Its pages have no sections
// for exit statuses and files, and indented tables lose their columns, as it reads help as
// Markdown. The parser of Markdown would be part of the daemon.
package manual

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/cmd/weir/internal/draft"
)

// Edition is the footer of every page.
type Edition struct {
	Version string
	Date    time.Time // of the described code, so that builds are reproducible
}

// Page is a manual page.
type Page struct {
	File string // "weir-status.8"
	Text string // in man(7)
}

// Commands returns the pages of a command and its visible subcommands.
func Commands(root *cobra.Command, edition Edition) []Page {
	pages := []Page{commandPage(root, edition)}
	for _, sub := range below(root) {
		pages = append(pages, Commands(sub, edition)...)
	}
	return pages
}

// below returns the visible subcommands of a command.
func below(c *cobra.Command) []*cobra.Command {
	var subs []*cobra.Command
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			subs = append(subs, sub)
		}
	}
	return subs
}

// name returns the name of a command's page: weir-bgp-routes.
func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func commandPage(c *cobra.Command, edition Edition) Page {
	w := newWriter(name(c), 8, edition)
	w.section("NAME")
	w.fill(name(c) + " - " + c.Short)
	w.section("SYNOPSIS")
	w.synopsis(c)
	long := c.Long
	if long == "" {
		long = sentence(c.Short)
	}
	rest, exits := exitStatus(long)
	w.section("DESCRIPTION")
	w.prose(rest)
	w.commands(c)
	w.options("OPTIONS", c.NonInheritedFlags())
	w.options("OPTIONS OF "+strings.ToUpper(parentPath(c)), c.InheritedFlags())
	w.exits(c, exits)
	w.files(c)
	if c.Example != "" {
		w.section("EXAMPLES")
		w.unfilled(c.Example)
	}
	w.seeAlso(c)
	return w.page()
}

func parentPath(c *cobra.Command) string {
	if c.Parent() == nil {
		return ""
	}
	return c.Parent().CommandPath()
}

// sentence capitalizes a line and adds a full stop.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// synopsis writes the usage: literal words in bold, placeholders in italics.
func (w *writer) synopsis(c *cobra.Command) {
	if !c.Runnable() {
		w.line("%s %s ...", bold(c.CommandPath()), italic("command"))
		return
	}
	path, args, _ := strings.Cut(c.UseLine()+" ", c.CommandPath())
	line := path + bold(c.CommandPath())
	for word := range strings.FieldsSeq(args) {
		switch bare := strings.Trim(word, "[]."); {
		case word == "[flags]":
			line += " [" + italic("options") + "]"
		case strings.HasPrefix(bare, "-"):
			line += " " + strings.ReplaceAll(text(word), text(bare), bold(bare))
		default:
			line += " " + strings.ReplaceAll(text(word), text(bare), italic(bare))
		}
	}
	w.line("%s", line)
}

// commands lists the subcommands in the groups of the help.
func (w *writer) commands(c *cobra.Command) {
	if len(below(c)) == 0 {
		return
	}
	w.section("COMMANDS")
	w.group(c, "")
	for _, g := range c.Groups() {
		w.macro("SS", strings.TrimSuffix(g.Title, ":"))
		w.group(c, g.ID)
	}
}

func (w *writer) group(c *cobra.Command, id string) {
	for _, sub := range below(c) {
		if sub.GroupID == id {
			w.item(bold(name(sub))+"(8)", sentence(sub.Short))
		}
	}
}

func (w *writer) options(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	w.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		term := bold("--" + f.Name)
		if f.Shorthand != "" {
			term = bold("-"+f.Shorthand) + ", " + term
		}
		switch {
		case value != "" && f.NoOptDefVal != "":
			term += "[=" + italic(value) + "]"
		case value != "":
			term += " " + italic(value)
		}
		usage = sentence(usage)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "[]" {
			usage += " Default: " + f.DefValue + "."
		}
		w.item(term, usage)
	})
}

// statuses are the exit statuses of main.go for commands without their own.
var statuses = []exit{{"0", "done"}, {"1", "failed, or refused"}, {"2", "the command line or the configuration is invalid"}, {"3", "weir is not running"}}

// exit is an exit status and its meaning.
type exit struct{ code, means string }

var exitForm = regexp.MustCompile(`(?:^|, |; )(\d) `)

// exitStatus separates the paragraph about exit statuses from a command's help.
func exitStatus(long string) (rest string, exits []exit) {
	var keep []string
	for _, p := range strings.Split(long, "\n\n") {
		list, found := strings.CutPrefix(p, "Exit status: ")
		if !found {
			keep = append(keep, p)
			continue
		}
		list = strings.TrimSuffix(strings.Join(strings.Fields(list), " "), ".")
		at := exitForm.FindAllStringSubmatchIndex(list, -1)
		for i, m := range at {
			end := len(list)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			exits = append(exits, exit{list[m[2]:m[3]], list[m[1]:end]})
		}
	}
	return strings.Join(keep, "\n\n"), exits
}

func (w *writer) exits(c *cobra.Command, exits []exit) {
	w.section("EXIT STATUS")
	if len(exits) == 0 && c.HasParent() {
		w.prose("See " + reference(c.Root()) + ".")
		return
	}
	if len(exits) == 0 {
		exits = statuses
	}
	for _, x := range exits {
		w.item(bold(x.code), sentence(x.means))
	}
}

func reference(c *cobra.Command) string { return name(c) + "(8)" }

// place is a file or folder, and the flag that replaces it.
type place struct{ path, flag, what string }

var places = []place{
	{"/etc/weir/weir.toml", "config", "The configuration; weir.toml(5) describes every key."},
	{"/etc/weir/conf.d/", "", "More configuration: the installed weir.toml includes conf.d/*.toml."},
	{"/etc/weir/credentials/", "", "Kubeconfigs, passwords and keys, readable by root only. Keys for secret files accept credential:NAME for a file in this folder."},
	{"/var/lib/weir/", "", "State for the next start: drains, the last known state of clusters, assigned addresses."},
	{"/run/weir/weir.sock", "socket", "The socket of the daemon for the other commands."},
	{"/run/weir/owner-*.lock", "", "The lock of the daemon: one weir for each network namespace."},
	{"/usr/share/doc/weir/", "", "Quick starts, operations, every Note, error and metric, examples, dashboard and alert rules."},
}

func (w *writer) files(c *cobra.Command) {
	var mine []place
	for _, p := range places {
		if !c.HasParent() || p.flag != "" && c.Flag(p.flag) != nil {
			mine = append(mine, p)
		}
	}
	if len(mine) == 0 {
		return
	}
	w.section("FILES")
	for _, p := range mine {
		w.item(italic(p.path), p.what)
	}
}

func (w *writer) seeAlso(c *cobra.Command) {
	var refs []string
	if p := c.Parent(); p != nil {
		refs = append(refs, bold(name(p))+"(8)")
		for _, other := range below(p) {
			if other != c {
				refs = append(refs, bold(name(other))+"(8)")
			}
		}
	}
	for _, sub := range below(c) {
		refs = append(refs, bold(name(sub))+"(8)")
	}
	refs = append(refs, bold("weir.toml")+"(5)")
	w.section("SEE ALSO")
	w.line("%s", strings.Join(refs, ",\n"))
}

// writer collects a page. Its methods take plain text, except line, which takes the
// results of text, bold and italic.
type writer struct {
	file string
	out  strings.Builder
}

func newWriter(name string, section int, edition Edition) *writer {
	w := &writer{file: fmt.Sprintf("%s.%d", name, section)}
	// Programs read the date and do not understand escapes.
	w.line(`.TH "%s" %d %s "weir %s" weir`, text(strings.ToUpper(name)), section, edition.Date.UTC().Format(time.DateOnly), text(edition.Version))
	return w
}

func (w *writer) page() Page { return Page{w.file, w.out.String()} }

// macro writes a line that begins with a dot.
func (w *writer) macro(name string, args ...string) {
	w.out.WriteString("." + name)
	for _, a := range args {
		w.out.WriteString(` "` + strings.ReplaceAll(text(a), `"`, `\(dq`) + `"`)
	}
	w.out.WriteByte('\n')
}

func (w *writer) section(title string) { w.macro("SH", title) }

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(&w.out, format+"\n", args...)
}

// item writes a term, formatted by bold or italic, and its meaning.
func (w *writer) item(term, means string) {
	w.macro("TP")
	w.line("%s", term)
	w.fill(means)
}

// fill writes a paragraph in short lines.
func (w *writer) fill(s string) {
	for _, line := range draft.Wrap(s, 72) {
		w.line("%s", text(line))
	}
}

// prose writes paragraphs, which are separated by empty lines. Indented lines stay
// unchanged.
func (w *writer) prose(s string) {
	first := true // a section begins a paragraph by itself
	for _, p := range strings.Split(strings.Trim(s, "\n"), "\n\n") {
		if strings.HasPrefix(p, " ") {
			w.example(p)
			continue
		}
		if !first {
			w.macro("PP")
		}
		first = false
		plain, table, _ := strings.Cut(p, "\n ")
		w.fill(plain)
		if table != "" {
			w.example(" " + table)
		}
	}
}

func (w *writer) example(lines string) {
	w.macro("PP")
	w.unfilled(lines)
}

func (w *writer) unfilled(lines string) {
	w.macro("RS", "2")
	w.macro("EX")
	for l := range strings.Lines(lines) {
		w.line("%s", text(strings.TrimPrefix(strings.TrimRight(l, "\n"), "  ")))
	}
	w.macro("EE")
	w.macro("RE")
}

func bold(s string) string   { return `\fB` + text(s) + `\fR` }
func italic(s string) string { return `\fI` + text(s) + `\fR` }

var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// text escapes plain text for man(7).
func text(s string) string {
	s = escapes.Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
