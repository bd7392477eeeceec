package doctor

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of checks into doctor.md")

// docFile has a table of all checks, between two marking lines.
const docFile = "../../../../packaging/doc/doctor.md"

// The documentation has what Checks has.
//
//	go test ./cmd/weir/internal/doctor -run TestDocumentation -update
func TestDocumentationHasEveryCheck(t *testing.T) {
	var table strings.Builder
	table.WriteString("| check | passed | effect of a problem | remedy |\n| --- | --- | --- | --- |\n")
	ids := map[string]bool{}
	for _, c := range Checks() {
		if ids[c.ID] || c.Passed == "" || c.Means == "" || c.Fix == "" {
			t.Errorf("%s is there twice, or lacks a text", c.ID)
		}
		ids[c.ID] = true
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", c.ID, c.Passed, c.Means, c.Fix)
	}
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "| check |")
	_, tail, ok2 := strings.Cut(rest, "\n\n")
	if !ok || !ok2 {
		t.Fatal("there is no table in doctor.md")
	}
	want := head + table.String() + "\n" + tail
	if *update {
		if err := os.WriteFile(docFile, []byte(want), 0o644); err != nil { //nolint:gosec // for readers
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("(-checks +doctor.md):\n%s", d)
	}
}
