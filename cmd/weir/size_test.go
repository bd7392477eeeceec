package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The limits of a package, so that a reader can hold it in mind.
const (
	mostLines        = 400  // of a file
	mostPackageLines = 2500 // of a package below cmd/weir/internal, without tests
	mostDaemonLines  = 2000 // of the composition root
	mostFields       = 15   // of a struct with methods
	mostMethods      = 25   // of a type
	mostReconciler   = 40   // of lb.Reconciler, which is what others know of lb
)

// records are configurations and formats of JSON and the kernel, which have as many fields as
// their format. A method of a record checks, completes, compares or prints this one record, as
// those of bgp.Peer do; it has no other state.
var records = []string{
	"cmd/weir/internal/status.Cluster", "cmd/weir/internal/status.Frontend", "cmd/weir/internal/status.Member", "cmd/weir/internal/status/routing.Neighbor", "cmd/weir/internal/status.Status",
	"lb.Service", "lb/linux.Config", "bgp.Peer", "k8ssync.Config", "k8ssync.service", "k8ssync/ipam.Request",
	"cmd/weir/internal/config.Kernel", "lb/health.Check",
}

// hasNever matches a comment with the word never in one of its first two sentences.
var hasNever = regexp.MustCompile(`(?s)^(?:[^.]|\.\S)*(?:\.\s(?:[^.]|\.\S)*)?\bnever\b`)

var sizesOf = flag.String("sizes", "", "check the sizes of these folders only, separated by commas; empty means all")

// TestSizes checks the limits above. Types without methods are plain configuration or
// wire records, which have as many fields as their format.
func TestSizes(t *testing.T) {
	for folder, files := range sourceFolders(t) {
		if *sizesOf != "" && !slices.Contains(strings.Split(*sizesOf, ","), folder) {
			continue
		}
		for _, fault := range sizeFaults(t, folder, files) {
			t.Error(fault)
		}
	}
}

// sourceFolders returns the Go files that are not tests, by folder.
func sourceFolders(t *testing.T) map[string][]string {
	const root = "../.."
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, rel := filepath.Rel(root, path)
		switch {
		case err != nil || rel != nil:
			return fmt.Errorf("%w, %w", err, rel)
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "artifacts" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			folder := filepath.ToSlash(filepath.Dir(name))
			out[folder] = append(out[folder], path)
		}
		return nil
	})
	must(t, err)
	return out
}

// sizeFaults returns what in a package is over a limit.
func sizeFaults(t *testing.T, folder string, files []string) []string {
	var out []string
	fields, methods, doc, total := map[string]int{}, map[string]int{}, "", 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		lines := bytes.Count(text, []byte("\n"))
		if total += lines; lines > mostLines {
			out = append(out, fmt.Sprintf("%s has %d lines, at most %d", name, lines, mostLines))
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		must(t, err)
		if f.Doc != nil && doc == "" {
			doc = f.Doc.Text()
		}
		countDeclarations(f, fields, methods)
	}
	if !hasNever.MatchString(doc) {
		out = append(out, folder+": the package comment states in its first two sentences what the package does and what it never does")
	}
	limit := mostPackageLines
	if folder == "cmd/weir/internal/daemon" {
		limit = mostDaemonLines
	}
	if strings.HasPrefix(folder, "cmd/weir/internal/") && total > limit {
		out = append(out, fmt.Sprintf("%s has %d lines, at most %d", folder, total, limit))
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		most := mostMethods
		if folder == "lb" && name == "Reconciler" {
			most = mostReconciler
		}
		if n := methods[name]; n > most {
			out = append(out, fmt.Sprintf("%s.%s has %d methods, at most %d", folder, name, n, most))
		}
		if n := fields[name]; n > mostFields && !slices.Contains(records, folder+"."+name) {
			out = append(out, fmt.Sprintf("%s.%s has methods and %d fields, at most %d", folder, name, n, mostFields))
		}
	}
	return out
}

// countDeclarations adds the fields of the structs of a file and the methods of its types.
func countDeclarations(f *ast.File, fields, methods map[string]int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				methods[receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				spec, isType := s.(*ast.TypeSpec)
				if !isType {
					continue
				}
				if body, isStruct := spec.Type.(*ast.StructType); isStruct {
					for _, field := range body.Fields.List {
						fields[spec.Name.Name] += max(1, len(field.Names))
					}
				}
			}
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
