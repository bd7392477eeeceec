package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// packaging/doc has every reason of a Note and every metric.
func TestDocumentationHasEveryReasonAndMetric(t *testing.T) {
	doc := sourceText(t, "../../packaging/doc/*.md")
	for _, tt := range []struct {
		what, files, pattern, form string
		least                      int
	}{
		{"reason", "../../lb/note.go", `Reason = "([a-z-]+)"`, "| `%` |", 10},
		{"metric", "internal/metrics/[^d]*.go", `desc\("([a-z_]+)"`, "`weir_%`", 20},
		{"metric", "internal/metrics/[^d]*.go", `Name: +"weir_([a-z_]+)"`, "`weir_%`", 5},
		{"metric", "internal/metrics/traffic.go", `\{?"((?:service|backend|check)_[a-z_]+)"`, "`weir_%`", 9},
	} {
		found := regexp.MustCompile(tt.pattern).FindAllStringSubmatch(sourceText(t, tt.files), -1)
		if len(found) < tt.least {
			t.Errorf("%s: %d are found in %s, want %d at least", tt.what, len(found), tt.files, tt.least)
		}
		for _, m := range found {
			if !strings.Contains(doc, strings.ReplaceAll(tt.form, "%", m[1])) {
				t.Errorf("%s %s is not in packaging/doc", tt.what, m[1])
			}
		}
	}
}

// A metric's help text in the code is its meaning in metrics.md.
func TestMetricHelpIsDocumented(t *testing.T) {
	doc := strings.ReplaceAll(sourceText(t, "../../packaging/doc/metrics.md"), "`", "")
	code := sourceText(t, "internal/*/*.go")
	checked := 0
	for _, pattern := range []string{`desc\("([a-z0-9_]+)",\s*"((?:[^"\\]|\\.)*)\."`, `Name:\s+"weir_([a-z0-9_]+)",\s*Help:\s+"((?:[^"\\]|\\.)*)\."`} {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(code, -1) {
			checked++
			if !regexp.MustCompile(`(?m)^\| weir_` + m[1] + ` \|.*\| ` + regexp.QuoteMeta(m[2]) + ` \|$`).MatchString(doc) {
				t.Errorf("metrics.md does not have the help text of weir_%s: %q", m[1], m[2])
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d help texts are checked, want 100 at least", checked)
	}
}

// The documentation calls commands and their arguments what their usage does.
func TestDocumentationHasEveryCommand(t *testing.T) {
	doc := sourceText(t, "../../packaging/doc/*.md")
	var walk func(c *cobra.Command, path string)
	walk = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			if usage := path + " " + sub.Use; sub.Runnable() && !sub.Hidden && !strings.Contains(doc, "| `"+usage+"` |") {
				t.Errorf("%s is not in packaging/doc", usage)
			}
			walk(sub, path+" "+sub.Name())
		}
	}
	walk(rootCommand(env{}), "weir")
}

// commands.md and --help list the same exit statuses, in the same words.
func TestExitStatusesAreDocumented(t *testing.T) {
	doc := sourceText(t, "../../packaging/doc/commands.md")
	var walk func(c *cobra.Command, path string)
	walk = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			if sub.Runnable() && !sub.Hidden {
				usage := path + " " + sub.Use
				row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(usage) + "` \\|.*\\| ([^|]+) \\|$").FindStringSubmatch(doc)
				help := regexp.MustCompile(`Exit status: ([^.]+)\.`).FindStringSubmatch(sub.Long)
				if row == nil || help == nil {
					t.Errorf("%s: exit statuses are missing in commands.md or in --help", usage)
					continue
				}
				if got, want := strings.ReplaceAll(row[1], "`", ""), strings.Join(strings.Fields(help[1]), " "); got != want {
					t.Errorf("%s: commands.md has %q, --help %q", usage, got, want)
				}
			}
			walk(sub, path+" "+sub.Name())
		}
	}
	walk(rootCommand(env{}), "weir")
}

func sourceText(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		all.Write(text)
	}
	return all.String()
}
