package status

import (
	"strings"
	"testing"
	"time"
)

func TestTablesEscapeControlCharacters(t *testing.T) {
	doc := Absent{State: NotRunning, Problems: []Problem{{Text: "\x1b]0;owned\x07\x1b[2J"}, {Text: "\u009b31m"}, {Text: "a\u202eb"}, {Text: "\xff"}, {Text: "über\tdrei\nvier"}}}
	var out strings.Builder
	if err := Write(&out, doc, "table", time.Time{}); err != nil {
		t.Fatal(err)
	}
	const want = "weir is not running: \ufffd]0;owned\ufffd\ufffd[2J; \ufffd31m; a\ufffdb; \ufffd; über drei vier\n"
	if out.String() != want {
		t.Errorf("the table is %q, want %q", out.String(), want)
	}
}
