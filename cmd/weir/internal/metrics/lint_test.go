package metrics

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"weir/lb/health"
)

// TestNames lints names, units and help texts of all metrics as Prometheus does. The documentation lists them all, and
// another test compares it with the code.
func TestNames(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for name, kind := range documented(t) {
		kind, _, _ = strings.Cut(kind, " ")
		text.WriteString("# HELP " + name + " Help.\n# TYPE " + name + " " + kind + "\n")
		if kind == "histogram" {
			text.WriteString(name + "_bucket{le=\"+Inf\"} 1\n" + name + "_sum 1\n" + name + "_count 1\n")
		} else {
			text.WriteString(name + " 1\n")
		}
	}
	for what, text := range map[string]string{"documented": text.String(), "traffic": trafficText(t)} {
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestScrapeIsClean lints an empty scrape, with its help texts.
func TestScrapeIsClean(t *testing.T) {
	t.Parallel()
	families, err := New(func() Sample { return Sample{} }).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "weir_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// trafficText returns what is written for a frontend with a backend: promlint skips a metric without a sample.
func trafficText(t *testing.T) string {
	const backend = "10.0.0.1:80"
	var b strings.Builder
	from := fixed(nil, []health.Backend{{State: "up", Backend: netip.MustParseAddrPort(backend)}}, testServer(backend))
	from.write(t.Context(), &b, true)
	return b.String()
}
