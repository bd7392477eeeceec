// Package prose checks the text of the project against its word list. It never judges
// identifiers, strings of tests or generated text. It reads Markdown, HTML and SVG, the
// comments of TOML, YAML, shell scripts and units, the comments and strings of Go, JavaScript
// and CSS, and the texts of the dashboard.
//
// The rules are in words.txt: one regular expression and its replacement a line, in sections
// for all texts, for the documentation, and for some files.
// exceptions.txt lists reviewed uses, with the reason for each.
package prose

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// longest is the greatest number of words in a sentence of the documentation.
const longest = 25

//go:embed words.txt
var words string

//go:embed exceptions.txt
var exceptions string

// Finding is one place where the text breaks a rule.
type Finding struct {
	File string
	Line int
	Text string // the offending words
	Use  string // the replacement or the rule
}

// String formats the finding as an editor can jump to it.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q: %s", f.File, f.Line, f.Text, f.Use)
}

// rule is one line of words.txt.
type rule struct {
	match *regexp.Regexp
	use   string
	docs  bool     // for the documentation only, help texts included
	in    []string // the beginnings of the names of its files; all files if it has none
}

// exception is one line of exceptions.txt: the findings within match are no faults.
type exception struct {
	file  string // "*" is every file
	match *regexp.Regexp
}

// list is words.txt and exceptions.txt.
type list struct {
	rules      []rule
	exceptions []exception
}

// of returns the rules and exceptions for a file.
func (l list) of(name string) (out list) {
	for _, r := range l.rules {
		if len(r.in) == 0 || slices.ContainsFunc(r.in, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out.rules = append(out.rules, r)
		}
	}
	for _, e := range l.exceptions {
		if e.file == "*" || e.file == name {
			out.exceptions = append(out.exceptions, e)
		}
	}
	return out
}

// passage is a piece of running text that starts at a line.
type passage struct {
	line int
	text string
	docs bool // part of the documentation, with its limits on sentences
}

// Check returns the findings in the files below the given folders of root, sorted by
// file and line. Without folders it checks everything.
func Check(root string, folders ...string) ([]Finding, error) {
	all, err := readList(words, exceptions)
	if err != nil {
		return nil, err
	}
	if len(folders) == 0 {
		folders = []string{"."}
	}
	var out []Finding
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if d.IsDir() {
				if skipsFolder(name) {
					return filepath.SkipDir
				}
				return nil
			}
			if reader(filepath.ToSlash(name)) == nil {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found, err := checkText(filepath.ToSlash(name), string(text), all)
			out = append(out, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// skipsFolder reports whether a folder has nothing that people wrote for readers.
func skipsFolder(name string) bool {
	base := filepath.Base(name)
	return slices.Contains([]string{"testdata", "artifacts", "dist", "bin", "prose", "peers"}, base) || len(base) > 1 && base[0] == '.'
}

func checkText(name, text string, all list) ([]Finding, error) {
	passages, err := reader(name)(name, text)
	if err != nil {
		return nil, err
	}
	var out []Finding
	own := all.of(name)
	for _, p := range passages {
		out = append(out, judge(p, own)...)
	}
	if strings.HasSuffix(name, ".go") {
		keys, err := logKeys(name, text)
		if err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
	for i := range out {
		out[i].File = name
	}
	return out, nil
}

// otherKeys are keys of log attributes with another standard name.
var otherKeys = map[string]string{
	"err": "error", "failure": "error",
	"why": "reason", "how": "reason", "who": "reason", "because": "reason", "cause": "reason",
}

// logMethods are the methods of slog.Logger, and the helpers of this project that pass keys
// to one.
var logMethods = []string{
	"Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "With",
	"DebugContext", "InfoContext", "WarnContext", "ErrorContext",
	"info", "warning", "warn",
}

// logKeys returns the keys of log attributes that are not the standard ones. A call is a
// log call if it has the name of a method of slog.Logger, or of a helper of it (logMethods),
// and a constant key.
func logKeys(name, text string) ([]Finding, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		return nil, err
	}
	var out []Finding
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		keys := call.Args[1:] // after a message or a context
		if x, ok := method.X.(*ast.Ident); ok && x.Name == "slog" {
			keys = call.Args[:1] // slog.String and the other constructors of attributes
		} else if !slices.Contains(logMethods, method.Sel.Name) {
			return true
		}
		for _, arg := range keys {
			l, ok := arg.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				continue
			}
			key, err := strconv.Unquote(l.Value)
			if use := otherKeys[key]; err == nil && use != "" {
				out = append(out, Finding{Line: set.Position(l.Pos()).Line, Text: key, Use: "the key of this log attribute is " + use})
			}
		}
		return true
	})
	return out, nil
}

// judge returns what is wrong with a passage.
func judge(p passage, all list) []Finding {
	var out []Finding
	var excused [][]int
	for _, e := range all.exceptions {
		excused = append(excused, e.match.FindAllStringIndex(p.text, -1)...)
	}
	for _, r := range all.rules {
		if r.docs && !p.docs {
			continue
		}
		for _, at := range r.match.FindAllStringIndex(p.text, -1) {
			if slices.ContainsFunc(excused, func(e []int) bool { return e[0] <= at[0] && at[1] <= e[1] }) {
				continue
			}
			out = append(out, Finding{Line: p.line + strings.Count(p.text[:at[0]], "\n"), Text: p.text[at[0]:at[1]], Use: r.use})
		}
	}
	if !p.docs {
		return out
	}
	line := p.line
	for _, s := range sentenceEnd.Split(p.text, -1) {
		if n := len(strings.Fields(s)); n > longest {
			start := strings.Join(strings.Fields(s)[:6], " ")
			out = append(out, Finding{Line: line, Text: start + " ...", Use: strconv.Itoa(n) + " words in a sentence; at most " + strconv.Itoa(longest)})
		}
		line += strings.Count(s, "\n")
	}
	return out
}

// sentenceEnd is not a colon or a semicolon: a chain of clauses is one sentence.
var sentenceEnd = regexp.MustCompile(`[.!?]["')]*(?:\s|$)|\n\n`)

// readList parses words.txt and exceptions.txt.
func readList(words, exceptions string) (list, error) {
	var out list
	now := rule{}
	for l := range strings.Lines(words) {
		l = strings.TrimSpace(l)
		if section, ok := strings.CutPrefix(l, "["); ok {
			words := strings.Fields(strings.TrimSuffix(section, "]"))
			now.docs, now.in = words[0] == "docs", words[1:]
		}
		match, use, ok := strings.Cut(l, " => ")
		if !ok || l[0] == '#' {
			continue
		}
		re, err := phrase(`\b(?:` + strings.TrimSpace(match) + `)\b`)
		if err != nil {
			return list{}, fmt.Errorf("words.txt: %w", err)
		}
		now.match, now.use = re, strings.TrimSpace(use)
		out.rules = append(out.rules, now)
	}
	for l := range strings.Lines(exceptions) {
		l, _, _ = strings.Cut(l, "#")
		file, found, ok := strings.Cut(strings.TrimSpace(l), ": ")
		if !ok {
			continue
		}
		re, err := phrase(strings.TrimSpace(found))
		if err != nil {
			return list{}, fmt.Errorf("exceptions.txt: %w", err)
		}
		out.exceptions = append(out.exceptions, exception{file, re})
	}
	return out, nil
}

// phrase compiles an expression in any case. Its spaces may be line breaks in the text.
func phrase(expression string) (*regexp.Regexp, error) {
	return regexp.Compile(`(?i)` + strings.ReplaceAll(expression, " ", `\s+`))
}
