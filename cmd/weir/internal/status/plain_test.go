package status

import (
	"strings"
	"testing"
	"time"
)

func TestTablesObeyNobody(t *testing.T) {
	doc := Absent{State: NotRunning, Why: []string{"\x1b]0;owned\x07\x1b[2J", "\u009b31m", "a\u202eb", "\xff", "über\tdrei\nvier"}}
	var out strings.Builder
	if err := Write(&out, doc, "table", time.Time{}); err != nil {
		t.Fatal(err)
	}
	const want = "weir is not running: \ufffd]0;owned\ufffd\ufffd[2J; \ufffd31m; a\ufffdb; \ufffd; über\tdrei\nvier\n"
	if out.String() != want {
		t.Errorf("the table is %q, want %q", out.String(), want)
	}
}
