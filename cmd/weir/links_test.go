package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// inCode is what a document has between backticks.
var inCode = regexp.MustCompile("`([^`\n]+)`")

// What the documents name is there: files of the project, files that packages install, other
// documents, commands and their flags.
func TestDocumentsNameWhatThereIs(t *testing.T) {
	files, err := filepath.Glob("../../packaging/doc/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	files = append(files, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md", "../../packaging/CHANGELOG.md")
	installed := sourceText(t, "../../packaging/nfpm.yaml")
	root := rootCommand(env{})
	checked := 0
	for _, file := range files {
		for line := range strings.Lines(sourceText(t, file)) {
			for _, m := range inCode.FindAllStringSubmatch(line, -1) {
				checked++
				if bad := namesNothing(root, file, installed, m[1]); bad != "" {
					t.Errorf("%s: `%s`: %s", filepath.Base(file), m[1], bad)
				}
			}
			if command, typed := typedCommand(line); typed {
				checked++
				if bad := noCommand(root, command); bad != "" {
					t.Errorf("%s: %q: %s", filepath.Base(file), strings.TrimSpace(line), bad)
				}
			}
		}
	}
	if checked < 500 {
		t.Errorf("%d names are checked, want 500 at least", checked)
	}
}

// The index lists every document, and the README links to the index.
func TestIndexListsEveryDocument(t *testing.T) {
	files, err := filepath.Glob("../../packaging/doc/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	index := sourceText(t, "../../packaging/doc/README.md")
	for _, f := range files {
		name := filepath.Base(f)
		if name != "README.md" && !strings.Contains(index, "["+name+"]("+name+")") {
			t.Errorf("packaging/doc/README.md does not list %s", name)
		}
	}
	if !strings.Contains(sourceText(t, "../../README.md"), "](packaging/doc/README.md)") {
		t.Error("README.md does not link to packaging/doc/README.md")
	}
}

// README.md stays short: long transcripts belong to packaging/doc.
func TestREADMEIsShort(t *testing.T) {
	if n := strings.Count(sourceText(t, "../../README.md"), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want 150 at most", n)
	}
}

// linkForm is a link of Markdown to a file, with or without a section.
var linkForm = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// Links between documents have existing files as their targets.
func TestLinksHaveTargets(t *testing.T) {
	files, err := filepath.Glob("../../packaging/doc/*.md")
	must(t, err)
	checked := 0
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../packaging/CHANGELOG.md") {
		for _, m := range linkForm.FindAllStringSubmatch(sourceText(t, file), -1) {
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", filepath.Base(file), m[1])
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d links are checked, want 40 at least", checked)
	}
}

// A section that stands twice makes links to it ambiguous, or the page was pasted into itself.
func TestPagesHaveEachSectionOnce(t *testing.T) {
	files, err := filepath.Glob("../../packaging/doc/*.md")
	must(t, err)
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md") {
		seen := map[string]bool{}
		for line := range strings.Lines(sourceText(t, file)) {
			if strings.HasPrefix(line, "## ") && seen[line] {
				t.Errorf("%s has the section %q twice", filepath.Base(file), strings.TrimSpace(line))
			}
			seen[line] = true
		}
	}
}

// typedCommand is a command of weir in a line that shows what to type.
func typedCommand(line string) (string, bool) {
	m := regexp.MustCompile(`^(?:    (?:\$ )?|[a-z0-9]+[#$] )(weir [a-z].*)$`).FindStringSubmatch(strings.TrimRight(line, "\n"))
	if m == nil || strings.HasPrefix(m[1], "weir is ") || strings.HasPrefix(m[1], "weir.") {
		return "", false
	}
	return m[1], true
}

var (
	pathForm      = regexp.MustCompile(`^(README\.md|(lb|bgp|cluster|k8ssync|l2|cmd|configs|packaging|systemd)/[A-Za-z0-9_./*-]+)$`)
	documentForm  = regexp.MustCompile(`^([a-z][a-z0-9-]*\.md)$`)
	installedForm = regexp.MustCompile(`^/usr/share/doc/weir/([A-Za-z0-9_./-]+)$`)
)

// namesNothing returns what is wrong with a name in a document, "" if nothing is.
func namesNothing(root *cobra.Command, file, installed, name string) string {
	switch {
	case pathForm.MatchString(name):
		if found, err := filepath.Glob("../../" + strings.TrimSuffix(name, "/")); err != nil || len(found) == 0 {
			return "there is no such file"
		}
	case documentForm.MatchString(name):
		if _, err := os.Stat("../../packaging/doc/" + name); err != nil {
			return "there is no such document"
		}
	case installedForm.MatchString(name):
		return notInstalled(installed, installedForm.FindStringSubmatch(name)[1])
	case strings.HasPrefix(name, "weir ") && !strings.HasPrefix(name, "weir is ") && !strings.HasPrefix(name, "weir runs "):
		return noCommand(root, name)
	}
	return ""
}

// notInstalled reports that packages have no such file in the folder of the documentation.
func notInstalled(installed, name string) string {
	if strings.Contains(installed, "/usr/share/doc/weir/"+name+"}") {
		return ""
	}
	for _, m := range regexp.MustCompile(`src: (\S+), dst: (/usr/share/doc/weir/\S*/)}`).FindAllStringSubmatch(installed, -1) {
		found, err := filepath.Glob("../../" + m[1])
		for _, f := range found {
			if err == nil && m[2]+filepath.Base(f) == "/usr/share/doc/weir/"+name {
				return ""
			}
		}
	}
	return "no package has it"
}

// noCommand returns what is wrong with a command line of weir's: a subcommand or a flag that is not.
func noCommand(root *cobra.Command, line string) string {
	line, _, _ = strings.Cut(line, " | ")
	line, _, _ = strings.Cut(line, " >")
	line, _, _ = strings.Cut(line, "  #")
	words := strings.Fields(line)[1:]
	c := root
	for len(words) > 0 {
		sub := subcommand(c, words[0])
		if sub == nil {
			break
		}
		c, words = sub, words[1:]
	}
	if c == root && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return "there is no such command"
	}
	if c.HasSubCommands() && len(words) > 0 && !strings.ContainsAny(words[0], "-[.") && strings.ToLower(words[0]) == words[0] && c.Args != nil && c.Args(c, words[:1]) != nil {
		return "there is no " + c.CommandPath() + " " + words[0]
	}
	for _, w := range words {
		if flag, ok := strings.CutPrefix(strings.Trim(w, "[],;:."), "--"); ok {
			flag, _, _ = strings.Cut(flag, "=")
			if c.Flag(flag) == nil && flag != "help" && flag != "version" {
				return c.CommandPath() + " has no flag --" + flag
			}
		}
	}
	return ""
}

// subcommand is the one of a name, or the only one with a name that begins so; nil if there is none.
func subcommand(c *cobra.Command, word string) *cobra.Command {
	var begin []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.Name() == word {
			return sub
		}
		if strings.HasPrefix(sub.Name(), word) {
			begin = append(begin, sub)
		}
	}
	if len(begin) != 1 {
		return nil
	}
	return begin[0]
}

// The plan in concepts.md is the output of weir plan.
func TestConceptsShowAPlan(t *testing.T) {
	const typed = "    $ weir plan --config configs/minimal.toml --against nothing | tail -8\n"
	_, shown, found := strings.Cut(sourceText(t, "../../packaging/doc/concepts.md"), typed)
	if !found {
		t.Fatalf("concepts.md does not type %q", typed)
	}
	shown, _, _ = strings.Cut(shown, "\n\n")
	var out, talk strings.Builder
	e := env{stdin: strings.NewReader(""), stdout: &out, stderr: &talk, now: time.Now}
	if code := run(t.Context(), e, []string{"plan", "--config", "../../configs/minimal.toml", "--against", "nothing"}); code != 0 {
		t.Fatalf("exit status %d: %s", code, talk.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := strings.Join(lines[len(lines)-8:], "\n")
	if got := strings.TrimSpace(strings.ReplaceAll("\n"+shown, "\n    ", "\n")); got != want {
		t.Errorf("concepts.md shows\n%s\nand weir plan prints\n%s", got, want)
	}
}
