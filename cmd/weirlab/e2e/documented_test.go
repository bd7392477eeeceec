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

var (
	metricType = regexp.MustCompile(`(?m)^# TYPE (weir_[a-z0-9_]+) (\w+)$`)
	labelName  = regexp.MustCompile(`([a-z]+)="`)
)

// areDocumented shows that the metrics which a box has are those of packaging/doc/metrics.md,
// with the same types and labels.
func areDocumented(t testing.TB, metrics string) {
	t.Helper()
	rows, err := metricRows()
	must(t, err)
	for _, m := range metricType.FindAllStringSubmatch(metrics, -1) {
		name, kind := m[1], m[2]
		sample := name
		if kind == "histogram" {
			sample += "_count"
		}
		found := regexp.MustCompile(`(?m)^` + sample + `(?:\{(.*)\})? `).FindStringSubmatch(metrics)
		if found == nil {
			continue // there is none at the moment
		}
		var labels []string
		for _, l := range labelName.FindAllStringSubmatch(found[1], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		if got := kind + " " + strings.Join(labels, ","); rows[name] != got {
			t.Errorf("%s: it is %q, and in metrics.md %q", name, got, rows[name])
		}
	}
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
