package source

import (
	"strings"
	"testing"
)

func TestLinesAreLimitedAndErrorsComeFirst(t *testing.T) {
	few := []Problem{{Warning, "a.toml", 1, 0, "", "odd", ""}, {Error, "a.toml", 2, 0, "", "bad", "repair it"}}
	if got := strings.Join(Lines(few), "|"); got != "a.toml:1: warning: odd|a.toml:2: bad; repair it" {
		t.Errorf("a few: %s", got)
	}
	var many []Problem
	for i := range 200 {
		many = append(many, Problem{Warning, "a.toml", i + 1, 0, "", "odd", ""})
	}
	many = append(many, Problem{Error, "a.toml", 300, 0, "", "bad", ""})
	got := Lines(many)
	if len(got) != 101 || got[0] != "a.toml:300: bad" || got[1] != "a.toml:1: warning: odd" || got[100] != "... and 101 more: repair these first" {
		t.Errorf("%d lines: %q, %q, ... %q", len(got), got[0], got[1], got[len(got)-1])
	}
	if many[0].Severity != Warning {
		t.Error("the problems themselves are in another order now")
	}
}
