package metrics

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// metricTable has the type and labels of each metric in packaging/doc/metrics.md.
type metricTable map[string]string

// TestMetricsAreDocumented compares the table of packaging/doc/metrics.md with what the
// code makes, both ways: names, types and labels.
func TestMetricsAreDocumented(t *testing.T) {
	made := metricTable{}
	made.ofCode(t)
	made.ofTraffic(t)
	if len(made) < 100 {
		t.Errorf("only %d metrics are found in the code", len(made))
	}
	if d := cmp.Diff(made, documented(t)); d != "" {
		t.Errorf("-code +packaging/doc/metrics.md:\n%s", d)
	}
}

func documented(t *testing.T) metricTable {
	t.Helper()
	text, err := os.ReadFile("../../../../packaging/doc/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := metricTable{}
	row := regexp.MustCompile("(?m)^\\| `(weir_[a-z0-9_]+)` \\| ([a-z]+) \\| ([a-z, ]*)\\| [^|]+ \\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if _, again := out[m[1]]; again {
			t.Errorf("%s is in the table twice", m[1])
		}
		out.add(m[1], m[2], strings.Split(strings.TrimSpace(m[3]), ", "))
	}
	if rows := strings.Count(string(text), "\n| `"); rows != len(out) {
		t.Errorf("%d rows have not the form of the table", rows-len(out))
	}
	return out
}

func (m metricTable) add(name, kind string, labels []string) {
	labels = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == "" })
	slices.Sort(labels)
	m[name] = kind + " " + strings.Join(labels, ",")
}

// metricTexts are tests that read the documentation, and provoke nothing.
var metricTexts = []string{
	"cmd/weir/internal/metrics/documented_test.go", "cmd/weir/observability_test.go", "cmd/weirlab/e2e/documented_test.go",
}

// TestEveryMetricHasATest finds each documented metric in a string of a test that reads
// its value, so that a new metric needs one.
func TestEveryMetricHasATest(t *testing.T) {
	t.Parallel()
	tested := testedMetrics(t, "../../../..")
	var without []string
	for _, name := range slices.Sorted(maps.Keys(documented(t))) {
		if !tested[name] {
			without = append(without, name)
		}
	}
	if len(without) > 0 {
		t.Errorf("no test reads these metrics:\n%s", strings.Join(without, "\n"))
	}
}

// testedMetrics gives the names of metrics in the strings of all tests below root. Of a
// histogram the tests read _sum and _count.
func testedMetrics(t *testing.T, root string) map[string]bool {
	t.Helper()
	out, name := map[string]bool{}, regexp.MustCompile(`\bweir_[a-z0-9_]+`)
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path) // below it
		if err != nil || !strings.HasSuffix(path, "_test.go") || slices.Contains(metricTexts, filepath.ToSlash(rel)) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				for _, m := range name.FindAllString(lit.Value, -1) {
					out[m], out[strings.TrimSuffix(m, "_count")] = true, true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ofCode finds desc("name", "help", labels...) with the functions that give it a value,
// and the metrics of the client library.
func (m metricTable) ofCode(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named, kinds := map[string][]string{}, map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.ValueSpec:
				if len(x.Names) == 1 && len(x.Values) == 1 {
					if call, ok := x.Values[0].(*ast.CallExpr); ok && fmt.Sprint(call.Fun) == "desc" {
						named[x.Names[0].Name] = words(call.Args)
					}
				}
			case *ast.CallExpr:
				m.call(x, kinds)
			}
			return true
		})
	}
	for variable, args := range named {
		if kinds[variable] == "" {
			t.Errorf("%s is never given a value", variable)
		}
		m.add("weir_"+args[0], kinds[variable], args[2:])
	}
}

// call reads gauge(out, descX, ...), count(out, descX, ...) and
// prometheus.NewX(prometheus.XOpts{Name: ...}, labels).
func (m metricTable) call(x *ast.CallExpr, kinds map[string]string) {
	if f, ok := x.Fun.(*ast.Ident); ok && (f.Name == "gauge" || f.Name == "count") {
		kinds[fmt.Sprint(x.Args[1])] = map[string]string{"gauge": "gauge", "count": "counter"}[f.Name]
	}
	f, ok := x.Fun.(*ast.SelectorExpr)
	if !ok || fmt.Sprint(f.X) != "prometheus" || len(x.Args) == 0 {
		return
	}
	opts, ok := x.Args[0].(*ast.CompositeLit)
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(f.Sel.Name, "New"), "Vec"))
	if !ok || !slices.Contains([]string{"counter", "gauge", "histogram"}, kind) {
		return
	}
	var labels []string
	if len(x.Args) > 1 {
		labels = words(x.Args[1].(*ast.CompositeLit).Elts)
	}
	for _, e := range opts.Elts {
		if pair := e.(*ast.KeyValueExpr); fmt.Sprint(pair.Key) == "Name" {
			m.add(words([]ast.Expr{pair.Value})[0], kind, labels)
		}
	}
}

// words gives the values of string literals.
func words(list []ast.Expr) []string {
	var out []string
	for _, e := range list {
		if lit, ok := e.(*ast.BasicLit); ok {
			s, _ := strconv.Unquote(lit.Value) // it has been parsed
			out = append(out, s)
		}
	}
	return out
}

// ofTraffic reads what is written at a scrape.
func (m metricTable) ofTraffic(t *testing.T) {
	t.Helper()
	kinds, labels := map[string]string{}, map[string][]string{}
	sample := regexp.MustCompile(`^(weir_[a-z_]+)(?:\{(.*)\})? `)
	for line := range strings.Lines(trafficText(t)) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			f := strings.Fields(rest)
			kinds[f[0]] = f[1]
		} else if s := sample.FindStringSubmatch(line); s != nil {
			labels[s[1]] = nil
			for _, l := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(s[2], -1) {
				labels[s[1]] = append(labels[s[1]], l[1])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		m.add(name, kinds[name], labels[name])
	}
}
