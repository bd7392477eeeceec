package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// metricRows are the metrics of packaging/doc/metrics.md: the type and the sorted labels.
var metricRows = sync.OnceValues(func() (map[string]string, error) {
	text, err := os.ReadFile("../../../packaging/doc/metrics.md")
	if err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z0-9_]+)` \\| ([a-z]+) \\| ([a-z, ]*)\\|").FindAllStringSubmatch(string(text), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		rows[m[1]] = m[2] + " " + strings.Join(labels, ",")
	}
	return rows, nil
})

var labelName = regexp.MustCompile(`([a-z]+)="`)

// areDocumented shows that the metrics which a box has are those of packaging/doc/metrics.md,
// with the same types and labels.
func areDocumented(t testing.TB, metrics string) {
	t.Helper()
	rows, err := metricRows()
	must(t, err)
	kinds, labels := firstSamples(metrics)
	for name, kind := range kinds {
		sample := name
		if kind == "histogram" {
			sample += "_count"
		}
		found, there := labels[sample]
		if !there {
			continue // there is none at the moment
		}
		var names []string
		for _, l := range labelName.FindAllStringSubmatch(found, -1) {
			names = append(names, l[1])
		}
		slices.Sort(names)
		if got := kind + " " + strings.Join(names, ","); rows[name] != got {
			t.Errorf("%s: it is %q, and in metrics.md %q", name, got, rows[name])
		}
	}
}

// firstSamples returns the types of weir's metrics, and the labels of the first sample of each name. It reads
// the text once, for tests read metrics in loops that wait.
func firstSamples(metrics string) (kinds, labels map[string]string) {
	kinds, labels = map[string]string{}, map[string]string{}
	for line := range strings.Lines(metrics) {
		line = strings.TrimSuffix(line, "\n")
		if typed, ok := strings.CutPrefix(line, "# TYPE "); ok {
			if name, kind, _ := strings.Cut(typed, " "); strings.HasPrefix(name, "weir_") {
				kinds[name] = kind
			}
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		if end < 0 || line[0] == '#' {
			continue
		}
		name, own, _ := strings.Cut(line[:end], "{")
		if _, again := labels[name]; !again {
			labels[name] = own
		}
	}
	return kinds, labels
}

func TestMetricsAreComparedWithTheirTable(t *testing.T) {
	t.Parallel()
	areDocumented(t, "# TYPE weir_up gauge\nweir_up 1\n# TYPE weir_bgp_session_up gauge\nweir_bgp_up{peer=\"a\",address=\"10.0.0.1\"} 1\n"+
		"# TYPE weir_sync_duration_seconds histogram\nweir_sync_duration_seconds_bucket{le=\"1\"} 1\nweir_sync_duration_seconds_count 1\n")
	for _, wrong := range []string{"# TYPE weir_up counter\nweir_up 1\n", "# TYPE weir_up gauge\nweir_up{x=\"1\"} 1\n", "# TYPE weir_other gauge\nweir_other 1\n"} {
		said := &recorder{TB: t}
		areDocumented(said, wrong)
		if said.errors != 1 {
			t.Errorf("%q: %d errors", wrong, said.errors)
		}
	}
}

// recorder counts errors in place of failing.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }
