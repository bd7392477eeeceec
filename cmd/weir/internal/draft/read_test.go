package draft

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocuments(t *testing.T) {
	for _, stream := range []string{
		"a: 1\n---\nb: 2\n",
		"---\na: 1\n--- # the next one\nb: 2\n---",
		"--- {a: 1}\n---\t{b: 2}\r\n---\n",
		"# none\n---\r\na: 1\r\n...\r\n---\r\nb: 2",
		"a: 1\n... # end\nb: 2\n",
	} {
		got, err := Documents(stream)
		if diff := cmp.Diff([]map[string]any{{"a": 1.0}, {"b": 2.0}}, got); err != nil || diff != "" {
			t.Errorf("%q: %v, -want +got:\n%s", stream, err, diff)
		}
	}
	for stream, want := range map[string]string{
		"a: |\n  ---\n  ... \n----: 1\n": "",
		"a: 1\n---\n\nb: [\n":            "yaml: line 5:",
		"a: 1\n--- {b: [\n":              "yaml: line 3:",
	} {
		_, err := Documents(stream)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error %v, want %q", stream, err, want)
		}
	}
}
