// Package known reads the list of promises that are known to be broken, known-failures.txt
// beside weirlab's sources, and compares it with results. It never runs a test itself, and imports
// nothing of weir.
//
// A listed promise that is broken is logged. A listed promise that is kept fails the test, so
// that its line is removed. A promise that is broken and not listed fails the test.
package known

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// File is the path of the list in the repository.
const File = "cmd/weirlab/known-failures.txt"

// Failure is a line of the list.
type Failure struct {
	Name   string // of the test, check or promise
	Issue  string // will fix it
	Reason string
}

// List maps the names of broken promises to their lines.
type List map[string]Failure

// column separates the columns of a line.
var column = regexp.MustCompile(`\t+| {2,}`)

// Parse reads a list. Empty lines and lines that begin with # are comments.
func Parse(text string) (List, error) {
	list := List{}
	var faults []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := column.Split(line, 3)
		if len(words) < 3 {
			faults = append(faults, fmt.Errorf("%s:%d: %q: want a name, an issue and a reason, two spaces or a tab between them", File, number, line))
			continue
		}
		f := Failure{Name: words[0], Issue: words[1], Reason: words[2]}
		if _, twice := list[f.Name]; twice {
			faults = append(faults, fmt.Errorf("%s:%d: %q is listed twice", File, number, f.Name))
		}
		list[f.Name] = f
	}
	return list, errors.Join(faults...)
}

// Load reads the repository's list. Tests run in the directory of their package, so it looks
// for the list from there upwards.
var Load = sync.OnceValues(func() (List, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, File))
		if err == nil {
			return Parse(string(text))
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, os.ErrNotExist) || parent == dir {
			return nil, fmt.Errorf("find the list of known failures: %w", err)
		}
		dir = parent
	}
})

// Test is the part of testing.TB that Check needs.
type Test interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Check compares the result of a promise with the repository's list. broken is nil if the
// promise was kept.
func Check(t Test, name string, broken error) {
	t.Helper()
	list, err := Load()
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	list.Check(t, name, broken)
}

// Check compares the result of a promise with the list.
func (l List) Check(t Test, name string, broken error) {
	t.Helper()
	result := l.Compare(name, broken)
	switch _, listed := l[name]; {
	case result != nil:
		t.Errorf("%v", result)
	case listed:
		t.Logf("known failure of %s, issue %q: %v", name, l[name].Issue, broken)
	}
}

// Compare compares a promise with the list and returns its error: nil for a kept promise and for
// a listed one that is broken.
func (l List) Compare(name string, broken error) error {
	switch f, listed := l[name]; {
	case listed && broken == nil:
		return fmt.Errorf("unexpected pass of %s: remove its line (issue %q) from %s", name, f.Issue, File)
	case listed:
		return nil
	default:
		return broken
	}
}

// Names returns the listed names that begin with a prefix, sorted. Use it to find lines
// that no longer name a check.
func (l List) Names(prefix string) []string {
	var names []string
	for name := range l {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
