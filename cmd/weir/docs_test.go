package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What operators look up is in packaging/doc: every reason of a Note, every metric.
func TestDocumentationHasEveryReasonAndMetric(t *testing.T) {
	doc := source(t, "../../packaging/doc/*.md")
	for _, tt := range []struct {
		what, files, pattern, form string
		least                      int
	}{
		{"reason", "../../lb/note.go", `Reason = "([a-z-]+)"`, "| `%` |", 10},
		{"metric", "internal/daemon/metrics*.go", `desc\("([a-z_]+)"`, "`weir_%`", 20},
		{"metric", "internal/daemon/metrics*.go", `Name: +"weir_([a-z_]+)"`, "`weir_%`", 5},
		{"metric", "internal/daemon/traffic.go", `name: "([a-z_]+)"`, "`weir_%`", 8},
	} {
		found := regexp.MustCompile(tt.pattern).FindAllStringSubmatch(source(t, tt.files), -1)
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

// The documentation calls commands and their arguments what their usage does.
func TestDocumentationHasEveryCommand(t *testing.T) {
	doc := source(t, "../../packaging/doc/*.md")
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

func source(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
