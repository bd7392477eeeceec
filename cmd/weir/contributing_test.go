package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const contributing = "../../CONTRIBUTING.md"

var updateDiagram = flag.Bool("update-diagram", false, "write the package diagram of CONTRIBUTING.md")

// TestPackageDiagram compares the diagram in CONTRIBUTING.md with the imports of the sources.
func TestPackageDiagram(t *testing.T) {
	const begin, end = "<!-- package diagram: begin -->\n```\n", "```\n<!-- package diagram: end -->\n"
	text := sourceText(t, contributing)
	before, rest, found := strings.Cut(text, begin)
	shown, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("CONTRIBUTING.md has no %q", begin)
	}
	want := packageDiagram(listPackages(t))
	switch {
	case shown == want:
	case *updateDiagram:
		must(t, os.WriteFile(contributing, []byte(before+begin+want+end+after), 0o644))
	default:
		t.Errorf("the package diagram of CONTRIBUTING.md is outdated: go test ./cmd/weir -run TestPackageDiagram -update-diagram\n%s", want)
	}
}

// packageDiagram returns one line for each package of the product, from the top layer down:
// the layer, the package, and its direct imports that no other import includes.
func packageDiagram(packages []listed) string {
	imports := map[string][]string{}
	for _, p := range packages {
		if !ofProduct(p.ImportPath) {
			continue
		}
		imports[p.ImportPath] = slices.DeleteFunc(slices.Clone(p.Imports), func(i string) bool { return !ofProduct(i) })
	}
	var layer func(string) int
	layer = func(p string) int {
		top := 0
		for _, i := range imports[p] {
			top = max(top, layer(i)+1)
		}
		return top
	}
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return slices.ContainsFunc(imports[from], func(i string) bool { return i == to || reaches(i, to) })
	}
	names := make([]string, 0, len(imports))
	for p := range imports {
		names = append(names, p)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(layer(b)-layer(a), strings.Compare(a, b)) })
	var out strings.Builder
	for _, p := range names {
		var direct []string
		for _, i := range imports[p] {
			if !slices.ContainsFunc(imports[p], func(other string) bool { return reaches(other, i) }) {
				direct = append(direct, shortName(i))
			}
		}
		slices.Sort(direct)
		fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("%2d  %-24s  %s", layer(p), shortName(p), strings.Join(direct, ", ")), " "))
	}
	return out.String()
}

// ofProduct reports whether a package is part of the program weir.
func ofProduct(p string) bool {
	return strings.HasPrefix(p, "weir/") && !strings.HasPrefix(p, "weir/cmd/weirlab") && p != "weir/packaging/pack"
}

func shortName(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, "weir/"), "cmd/weir/")
}

// TestContributingNamesFiles checks that the paths in the tables of CONTRIBUTING.md exist, and
// that every folder of the repository has a row.
func TestContributingNamesFiles(t *testing.T) {
	_, table, _ := strings.Cut(sourceText(t, contributing), "## Decisions and their files")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for _, row := range regexp.MustCompile("(?m)^\\| [^|`]+ \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		rows++
		for _, m := range inCode.FindAllStringSubmatch(row[1], -1) {
			if found, err := filepath.Glob("../../" + m[1]); err != nil || len(found) == 0 {
				t.Errorf("CONTRIBUTING.md: %s does not exist", m[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows are checked, want 20 at least", rows)
	}
}

// topLevel are the only entries of the repository's root, besides dot files.
var topLevel = []string{
	"cmd", "lb", "k8ssync", "bgp", "cluster", "packaging", "systemd", "configs", "go.mod", "go.sum",
	"Makefile", "README.md", "LICENSE", "CONTRIBUTING.md", "SECURITY.md",
}

// TestTopLevel checks that the root of the repository has exactly the entries of topLevel.
func TestTopLevel(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files").Output()
	if err != nil {
		t.Skipf("the sources have no history: %v", err)
	}
	found := map[string]bool{}
	for file := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(file), "/")
		if _, err := os.Stat("../../" + name); err == nil {
			found[name] = true
		}
	}
	for _, name := range topLevel {
		if !found[name] {
			t.Errorf("%s is missing at the top level", name)
		}
		delete(found, name)
	}
	for name := range found {
		if !strings.HasPrefix(name, ".") {
			t.Errorf("%s does not belong to the top level: move it, or add it to topLevel and to CONTRIBUTING.md", name)
		}
	}
}
