package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// metricRow is a metric of packaging/doc/metrics.md, which a test of the daemon compares
// with what the daemon has.
type metricRow struct {
	kind   string
	labels []string
}

// documentedMetrics gives those of the table, a histogram as its samples.
func documentedMetrics(t *testing.T) map[string]metricRow {
	t.Helper()
	out := map[string]metricRow{}
	row := regexp.MustCompile("(?m)^\\| `(weir_[a-z0-9_]+)` \\| ([a-z]+) \\| ([a-z, ]*)\\|")
	for _, m := range row.FindAllStringSubmatch(sourceText(t, "../../packaging/doc/metrics.md"), -1) {
		r := metricRow{m[2], strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })}
		if r.kind != "histogram" {
			out[m[1]] = r
			continue
		}
		for _, end := range []string{"_sum", "_count"} {
			out[m[1]+end] = r
		}
		out[m[1]+"_bucket"] = metricRow{r.kind, append([]string{"le"}, r.labels...)}
	}
	if len(out) < 100 {
		t.Fatalf("only %d metrics are documented", len(out))
	}
	return out
}

var (
	metricUse  = regexp.MustCompile(`\b(weir_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`([a-z_]+) *(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring) *\(([^)]*)\)`)
	rateOf     = regexp.MustCompile(`\b(?:rate|increase)\((weir_[a-z0-9_]+)`)
	inTemplate = regexp.MustCompile(`\$labels\.([a-z_]+)|\{\{([a-z_]+)\}\}`)
)

// checkQuery complains of metrics that don't exist, of labels that they don't have, and
// of rates of what is no counter. What else stands with the query names labels too.
func checkQuery(metrics map[string]metricRow, query string, texts ...string) (problems []string) {
	have := []string{"instance", "job"} // every sample gets them from Prometheus
	for _, m := range metricUse.FindAllStringSubmatch(query, -1) {
		r, ok := metrics[m[1]]
		if !ok && m[1] != "up" {
			problems = append(problems, "there is no metric "+m[1])
		}
		have = append(have, r.labels...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(append([]string{"instance", "job"}, r.labels...), l[1]) {
				problems = append(problems, m[1]+" has no label "+l[1])
			}
		}
	}
	for _, m := range rateOf.FindAllStringSubmatch(query, -1) {
		if metrics[m[1]].kind == "gauge" {
			problems = append(problems, m[1]+" is no counter")
		}
	}
	var named []string
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		named = append(named, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, text := range texts {
		for _, m := range inTemplate.FindAllStringSubmatch(text, -1) {
			named = append(named, m[1]+m[2])
		}
	}
	for _, l := range named {
		if !slices.Contains(have, l) {
			problems = append(problems, "no metric here has a label "+l)
		}
	}
	return problems
}

// The check itself finds what it is for.
func TestQueriesAreChecked(t *testing.T) {
	t.Parallel()
	metrics := documentedMetrics(t)
	for query, want := range map[string]string{
		`weir_upp == 0`:                                   "there is no metric weir_upp",
		`weir_bgp_session_up{pear="x"} == 0`:              "weir_bgp_session_up has no label pear",
		`sum by (pool) (weir_up)`:                         "no metric here has a label pool",
		`rate(weir_up[5m])`:                               "weir_up is no counter",
		`weir_sync_duration_seconds > 1`:                  "there is no metric weir_sync_duration_seconds",
		`sum by (le) (weir_sync_duration_seconds_bucket)`: "",
	} {
		if got := strings.Join(checkQuery(metrics, query), "; "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	must(t, yaml.UnmarshalStrict([]byte(sourceText(t, "../../packaging/prometheus/weir.rules.yml")), &file))
	var out []alertRule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 40 {
		t.Fatalf("only %d rules", len(out))
	}
	return out
}

// The reader of an alert finds what to type, and a section with the remedy.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	metrics, commands := documentedMetrics(t), sourceText(t, "../../packaging/doc/commands.md")
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Weir\w+)\n\n(critical|warning|info), `+"`(weir [a-z ]+)`\n").FindAllStringSubmatch(sourceText(t, "../../packaging/doc/alerts.md"), -1) {
		sections[m[1]+" "+m[2]+" "+m[3]] = true
	}
	for _, r := range alertRules(t) {
		for _, p := range checkQuery(metrics, r.Expr, r.Annotations["summary"], r.Annotations["description"]) {
			t.Errorf("%s: %s", r.Alert, p)
		}
		severity, command := r.Labels["severity"], r.Annotations["command"]
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Annotations["runbook"] != "alerts.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s: its annotations are %v", r.Alert, r.Annotations)
		}
		if !regexp.MustCompile("(?m)^\\| `" + command + "[` ]").MatchString(commands) {
			t.Errorf("%s: %q is no command", r.Alert, command)
		}
		section := r.Alert + " " + severity + " " + command
		if !sections[section] {
			t.Errorf("%q has no section in packaging/doc/alerts.md", section)
		}
		delete(sections, section)
	}
	for s := range sections {
		t.Errorf("packaging/doc/alerts.md has %q, and there is no such rule", s)
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               map[string]string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr, LegendFormat, RefID string
		Datasource                map[string]string
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	metrics := documentedMetrics(t)
	data, err := os.ReadFile("../../packaging/grafana/weir.json")
	must(t, err)
	var board struct {
		Title, UID    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	must(t, json.Unmarshal(data, &board))
	var variables []string
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
	}
	if board.Title != "weir" || board.UID != "weir" || board.SchemaVersion < 36 || !slices.Equal(variables, []string{"datasource", "instance", "service"}) {
		t.Errorf("%q %q, schema %d, variables %q", board.Title, board.UID, board.SchemaVersion, variables)
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	used := map[string]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: another panel has its id", p.Title)
		}
		ids[p.ID] = true
		for _, problem := range p.problems(metrics, taken) {
			t.Errorf("%s: %s", p.Title, problem)
		}
		for _, target := range p.Targets {
			for _, m := range metricUse.FindAllStringSubmatch(target.Expr, -1) {
				used[m[1]] = true
			}
		}
	}
	if len(used) < 35 {
		t.Errorf("only %d metrics are shown", len(used))
	}
}

// problems are what is wrong with a panel, which takes its place on the dashboard.
func (p panel) problems(metrics map[string]metricRow, taken map[[2]int]string) (out []string) {
	g := p.GridPos
	if g.W == 0 || g.H == 0 || g.X+g.W > 24 {
		out = append(out, fmt.Sprintf("its place is %+v", g))
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if other, ok := taken[[2]int{x, y}]; ok {
				return append(out, "it lies upon "+other)
			}
			taken[[2]int{x, y}] = p.Title
		}
	}
	if p.Type == "row" {
		return out
	}
	if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource["uid"] != "${datasource}" || len(p.Targets) == 0 {
		out = append(out, "it lacks a title, a description, a unit, its data source or a query")
	}
	for _, target := range p.Targets {
		if target.Datasource["uid"] != "${datasource}" || target.RefID == "" {
			out = append(out, "a query has no data source or name")
		}
		out = append(out, checkQuery(metrics, target.Expr, target.LegendFormat)...)
	}
	return out
}
