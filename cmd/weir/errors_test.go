package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/k8ssync/ipam"
)

// errors.md has every reason that there is for something that is not done, beside those of Notes.
func TestErrorsHaveEveryReason(t *testing.T) {
	doc := sourceText(t, "../../packaging/doc/errors.md")
	has := func(what, reason string) {
		if !strings.Contains(doc, "\n| `"+reason+"` | ") {
			t.Errorf("%s %q has no row in errors.md", what, reason)
		}
	}
	for _, r := range ipam.Reasons() {
		has("a reason why a Service has no address", string(r))
	}
	for _, tt := range []struct {
		what, files, pattern string
		least                int
	}{
		{"a reason of a route", "../../bgp/advertise/policy.go", ` Reason = "([a-z-]+)"`, 14},
		{"a reason of survival", "../../lb/survive.go", ` SurvivalReason = "([a-z-]+)"`, 12},
		{"a reason to be unfit", "internal/fleet/fitness.go", `return "((?:the|health) [^":]+)"`, 3},
	} {
		found := regexp.MustCompile(tt.pattern).FindAllStringSubmatch(sourceText(t, tt.files), -1)
		if len(found) < tt.least {
			t.Errorf("%s: %d are found in %s, want %d at least", tt.what, len(found), tt.files, tt.least)
		}
		for _, m := range found {
			has(tt.what, strings.TrimSuffix(m[1], ":"))
		}
	}
}

// errors.md quotes the program's messages, and none that it does not have any more.
func TestErrorsAreDocumented(t *testing.T) {
	var said strings.Builder
	for _, dir := range []string{".", "internal/*", "internal/*/*", "../../lb", "../../lb/*", "../../bgp", "../../cluster", "../../k8ssync", "../../k8ssync/*", "../../cluster/l2"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				said.WriteString(sourceText(t, f))
			}
		}
	}
	code := strings.ReplaceAll(said.String(), `\"`, `"`)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ").FindAllStringSubmatch(sourceText(t, "../../packaging/doc/errors.md"), -1)
	if len(rows) < 60 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		for part := range strings.SplitSeq(row[1], "...") {
			if part = strings.TrimSpace(part); part != "" && !strings.Contains(code, part) {
				t.Errorf("errors.md quotes %q of %q, and nothing says that", part, row[1])
			}
		}
	}
}
