package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files of a package form layers: a file uses those below it.
const (
	layeredFiles = 8  // a package with fewer files can be read in any order
	mostUpwards  = 10 // percent of the references between files
	orderings    = 60 // from which the search begins
)

// TestFilesFormLayers counts, for each package, the pairs of files in which the first uses a declaration of the second. The
// files are ordered so that few of these references point up, and at most 10 % may.
func TestFilesFormLayers(t *testing.T) {
	for _, p := range exported(t) {
		if len(p.GoFiles) < layeredFiles {
			continue
		}
		uses := p.references(t)
		order := layered(uses)
		up, all := upwards(uses, order)
		t.Logf("%-40s %3d of %3d references point up (%2.0f %%)", p.ImportPath, len(up), all, 100*float64(len(up))/float64(max(all, 1)))
		if 100*len(up) > mostUpwards*all {
			t.Errorf("%s: %d of %d references between files point up, at most %d %% may: move a declaration to the file that needs it, or below\n%s",
				p.ImportPath, len(up), all, mostUpwards, strings.Join(up, "\n"))
		}
	}
}

// exports finds the compiled packages.
type exports map[string]string

func (e exports) open(path string) (io.ReadCloser, error) {
	if e[path] == "" {
		return nil, fmt.Errorf("no export data of %s", path)
	}
	return os.Open(e[path])
}

// goPackage is a package with what it imports.
type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	exports         exports
}

// exported returns the packages of weir without those of the test bed.
func exported(t *testing.T) (out []goPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \" \"}}", "./...")
	cmd.Dir = filepath.Join("..", "..")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &errors)
	}
	e := exports{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		e[f[0]] = f[1]
		if strings.HasPrefix(f[0], "weir/") && !strings.Contains(f[0], "weirlab") {
			out = append(out, goPackage{f[0], f[2], strings.Fields(f[3]), e})
		}
	}
	return out
}

// edge is a use of declarations of a file by another.
type edge struct{ from, to string }

// references returns the uses of declarations of another file, with the first used name.
func (p goPackage) references(t *testing.T) map[edge]string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		must(t, err)
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", p.exports.open)}
	pkg, err := cfg.Check(p.ImportPath, fset, files, &info)
	must(t, err)
	out := map[edge]string{}
	for ident, o := range info.Uses {
		if o.Pkg() != pkg || !o.Pos().IsValid() {
			continue
		}
		e := edge{filepath.Base(fset.Position(ident.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)}
		if e.from != e.to && (out[e] == "" || o.Name() < out[e]) {
			out[e] = o.Name()
		}
	}
	return out
}

// layered orders files so that few references point up. The best order is hard to find in general. So the search begins with
// some orders, the same in each run, moves single files as long as that helps, and takes the best result.
func layered(uses map[edge]string) []string {
	names := map[string]bool{}
	for e := range uses {
		names[e.from], names[e.to] = true, true
	}
	files, shuffled := slices.Sorted(maps.Keys(names)), rand.New(rand.NewPCG(1, 1))
	best, fewest := files, len(uses)+1
	for range orderings {
		order := slices.Clone(files)
		shuffled.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for better := true; better; {
			better = false
			for _, f := range files {
				better = improve(uses, order, f) || better
			}
		}
		if up, _ := upwards(uses, order); len(up) < fewest {
			best, fewest = order, len(up)
		}
	}
	return best
}

// improve moves one file to the place at which the fewest references point up, and reports whether that is another.
func improve(uses map[edge]string, order []string, f string) bool {
	at := slices.Index(order, f)
	best, gain := at, 0
	for _, step := range []int{-1, 1} {
		saved := 0
		for i := at + step; i >= 0 && i < len(order); i += step {
			above, below := edge{order[i], f}, edge{f, order[i]}
			if step > 0 {
				above, below = below, above
			}
			// To pass order[i] turns the reference between the two around.
			if _, points := uses[below]; points {
				saved++
			}
			if _, points := uses[above]; points {
				saved--
			}
			if saved > gain {
				best, gain = i, saved
			}
		}
	}
	if gain == 0 {
		return false
	}
	copy(order[at:], order[at+1:])
	copy(order[best+1:], order[best:len(order)-1])
	order[best] = f
	return true
}

// upwards returns the references that point up, and the number of all.
func upwards(uses map[edge]string, order []string) (up []string, all int) {
	place := map[string]int{}
	for i, f := range order {
		place[f] = i
	}
	for e, name := range uses {
		if place[e.to] < place[e.from] {
			up = append(up, fmt.Sprintf("  %s uses %s of %s", e.from, name, e.to))
		}
	}
	slices.Sort(up)
	return up, len(uses)
}
