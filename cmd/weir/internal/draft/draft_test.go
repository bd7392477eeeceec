package draft

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWriter(t *testing.T) {
	var w Writer
	w.Text("# head\n")
	w.Table("[kernel]")
	w.Key("mode", "a \"b\"\n\x7f", "from\nhere")
	w.Key("sync_period", 90*time.Second, "x")
	w.Key("drain_timeout", 2*time.Hour, "x")
	w.Key("list", []string{"a", "b"}, "x")
	w.Key("ports", []any{int64(80), "53/udp"}, "x")
	w.Key("long", []string{strings.Repeat("a", 50), strings.Repeat("b", 50)}, "x")
	w.Key("labels", map[string]string{"b": "2", "a": "1"}, "x")
	w.Left("other", 1.5, "no reason")
	w.Remark("A remark that is longer than a line has columns, so that it is written in two of them, the second one short.")
	want := `# head

[kernel]
mode = "a \"b\"\n\u007f" # from here
sync_period = "1m30s" # x
drain_timeout = "2h" # x
list = ["a", "b"] # x
ports = [80, "53/udp"] # x
long = [ # x
	"` + strings.Repeat("a", 50) + `",
	"` + strings.Repeat("b", 50) + `",
]
labels = { a = "1", b = "2" } # x
# other = 1.5: no reason.
# A remark that is longer than a line has columns, so that it is written in two of them, the second
# one short.
`
	if d := cmp.Diff(want, w.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
