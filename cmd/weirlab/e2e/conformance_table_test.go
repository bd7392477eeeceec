package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// writing in the environment names the folder of the manual, in which the table is written to
// conformance.md: WEIR_CONFORMANCE_WRITE=packaging/doc, from the root of the sources.
const writing = "WEIR_CONFORMANCE_WRITE"

// conformed is the table, printed after all tests.
var conformed struct {
	sync.Mutex
	kernel  string
	engines []string
	results map[cell]result
}

// word is the content of a cell.
func (r result) word() string {
	switch {
	case r.lacks != "":
		return "not applicable: " + r.lacks
	case len(r.faults) == 0:
		return "pass" + r.note
	case r.known:
		return "known failure" + r.note
	}
	return "FAIL" + r.note
}

// printConformance prints the table, and writes it where that is asked for.
func printConformance(out io.Writer) error {
	if conformed.results == nil {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nno.\tcheck")
	for _, e := range conformed.engines {
		fmt.Fprintf(w, "\t%s", e)
	}
	fmt.Fprintln(w)
	var notes []string
	for _, ch := range claims {
		fmt.Fprintf(w, "%d\t%s", ch.number, ch.name)
		for _, e := range conformed.engines {
			r, put := conformed.results[cell{e, ch.number}]
			switch {
			case !put:
				fmt.Fprint(w, "\tnot run")
				continue
			case r.lacks != "":
				fmt.Fprintf(w, "\t%s", r.word())
				continue
			case len(r.faults) > 0:
				notes = append(notes, fmt.Sprintf("%d %s: %s", ch.number, e, strings.Join(r.faults, "; ")))
			}
			fmt.Fprintf(w, "\t%s %.1f s", r.word(), r.took.Seconds())
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\tpassed")
	for _, e := range conformed.engines {
		fmt.Fprintf(w, "\t%s", totals(e))
	}
	fmt.Fprintln(w)
	_ = w.Flush()
	if len(notes) > 0 {
		fmt.Fprintf(out, "\nwhat was seen instead\n  %s\n", strings.Join(notes, "\n  "))
	}
	if folder := os.Getenv(writing); folder != "" {
		return writeConformance(filepath.Join(folder, "conformance.md"))
	}
	return nil
}

// totals sums up the column of an engine.
func totals(engine string) string {
	passed, put := 0, 0
	var took, start time.Duration
	for at, r := range conformed.results {
		if at.engine != engine || r.lacks != "" {
			continue
		}
		put++
		took += r.took
		start += r.start
		if len(r.faults) == 0 {
			passed++
		}
	}
	return fmt.Sprintf("%d of %d in %.0f s (%.0f s of it to start engines)", passed, put, took.Seconds(), start.Seconds())
}

// writeConformance writes the table for the manual, if all of it was run.
func writeConformance(file string) error {
	for _, ch := range claims {
		for _, e := range conformed.engines {
			if _, put := conformed.results[cell{e, ch.number}]; !put {
				return fmt.Errorf("%s is not written: check %d was not put to %s", file, ch.number, e)
			}
		}
	}
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(root, file)
	}
	return os.WriteFile(file, []byte(conformancePage(time.Now(), processor(), comparedVersions(root))), 0o644) //nolint:gosec // a page of the manual
}

// conformancePage is the page of the manual.
func conformancePage(now time.Time, processor, versions string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Conformance with Kubernetes Services

%d checks state Services and EndpointSlices through a real API server, and then send packets. After a state is reached,
%d more visits must agree with it. Negative checks visit %d times from each of %d locations.
`+"`make conformance ARGS='--write packaging/doc'`"+` writes this page.

- Date: %s
- Kernel: Linux %s, one simulated processor
- Processor: %s
- Versions: %s

`, len(claims), probes, probes, len(everywhere), now.UTC().Format(time.DateOnly), conformed.kernel, processor, versions)
	titles := map[string]string{ipvsMode: "weir, IPVS", iptablesMode: "weir, iptables", peerMode: "kube-proxy, IPVS"}
	fmt.Fprint(&b, "| No. | Check |")
	for _, e := range conformed.engines {
		fmt.Fprintf(&b, " %s |", titles[e])
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(conformed.engines)))
	for _, ch := range claims {
		fmt.Fprintf(&b, "| %d | %s |", ch.number, ch.name)
		for _, e := range conformed.engines {
			fmt.Fprintf(&b, " %s |", strings.Replace(conformed.results[cell{e, ch.number}].word(), "FAIL", "fail", 1))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprint(&b, "| | passed |")
	for _, e := range conformed.engines {
		passed, _, _ := strings.Cut(totals(e), " in ")
		fmt.Fprintf(&b, " %s |", passed)
	}
	fmt.Fprintln(&b)
	return b.String()
}

// repositoryRoot is the folder of go.mod.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "", fmt.Errorf("find the root of the sources: %w", err)
}

// processor is the model of this machine's processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if found := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return "unknown"
}

// comparedVersions names what was compared: weir's sources and the Kubernetes of the lab's peers.
func comparedVersions(root string) string {
	text, _ := os.ReadFile(filepath.Join(root, "cmd/weirlab/peers/go.mod"))
	kubernetes := "unknown"
	if found := regexp.MustCompile(`k8s.io/kubernetes (v\S+)`).FindSubmatch(text); found != nil {
		kubernetes = string(found[1])
	}
	return "weir " + weirVersion(root) + ", kube-apiserver and kube-proxy " + kubernetes
}

// weirVersion is that of git, or "devel".
func weirVersion(root string) string {
	out, err := exec.Command("git", "-C", root, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "devel"
	}
	return strings.TrimSpace(string(out))
}

func TestConformancePageHasACellForEachEngine(t *testing.T) {
	conformed.Lock()
	defer conformed.Unlock()
	was, kernel, results := conformed.engines, conformed.kernel, conformed.results
	defer func() { conformed.engines, conformed.kernel, conformed.results = was, kernel, results }()
	conformed.kernel, conformed.engines = "7.3", []string{ipvsMode, peerMode}
	conformed.results = map[cell]result{
		{ipvsMode, 1}: {}, {ipvsMode, 2}: {faults: []string{"it"}, known: true},
		{peerMode, 1}: {faults: []string{"it"}}, {peerMode, 2}: {lacks: "it has none"},
	}
	page := conformancePage(time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), "a processor", "weir v1")
	file := filepath.Join(t.TempDir(), "conformance.md")
	if err := writeConformance(file); err == nil {
		t.Error("a table is written though checks are missing")
	}
	for _, ch := range claims {
		for _, e := range conformed.engines {
			if _, put := conformed.results[cell{e, ch.number}]; !put {
				conformed.results[cell{e, ch.number}] = result{}
			}
		}
	}
	if err := writeConformance(file); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "| 1 | "+claims[0].name+" | pass | fail |") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, want := range []string{
		"- Date: 2026-11-22\n", "- Kernel: Linux 7.3,", "- Processor: a processor\n", "- Versions: weir v1\n",
		"| No. | Check | weir, IPVS | kube-proxy, IPVS |\n", "| pass | fail |\n", "| known failure | not applicable: it has none |\n", "| 1 of 2 | 0 of 1 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
