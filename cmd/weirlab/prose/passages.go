package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

var (
	inlineCode = regexp.MustCompile("`[^`\n]+`")
	tag        = regexp.MustCompile(`(?s)<(?:script|style).*?</(?:script|style)>|<code>.*?</code>|\{\{.*?\}\}|<[^>]*>`)
)

// reader returns the function that takes the passages out of a file, nil for files
// that are not checked.
func reader(name string) func(name, text string) ([]passage, error) {
	switch {
	case name == "LICENSE":
		return nil
	case strings.HasSuffix(name, "_test.go"):
		if strings.HasPrefix(name, "lb/") {
			return nil
		}
		return goComments
	case strings.HasSuffix(name, ".go"):
		return goPassages
	case strings.HasSuffix(name, ".md"):
		return markdownPassages
	case strings.HasSuffix(name, ".toml"), strings.HasSuffix(name, ".yml"), strings.HasSuffix(name, ".yaml"):
		return commentPassages
	case strings.HasSuffix(name, ".html"), strings.HasSuffix(name, ".svg"):
		return htmlPassages
	case strings.HasSuffix(name, ".js"), strings.HasSuffix(name, ".css"):
		return scriptPassages
	case strings.HasPrefix(name, "packaging/grafana/"):
		return dashboardPassages
	case strings.HasSuffix(name, ".sh"), strings.HasPrefix(name, "systemd/"), strings.HasPrefix(name, "packaging/scripts/"):
		return commentPassages
	}
	return nil
}

// blank replaces code by one word, and keeps the line breaks.
func blank(s string, code *regexp.Regexp) string {
	return code.ReplaceAllStringFunc(s, func(c string) string { return " X " + strings.Repeat("\n", strings.Count(c, "\n")) })
}

// markdownPassages returns paragraphs, list items and table cells, without code.
func markdownPassages(_, text string) ([]passage, error) {
	var out []passage
	var now passage
	end := func() {
		if now.text != "" {
			now.docs = true
			out = append(out, now)
		}
		now = passage{}
	}
	fenced := false
	for i, l := range strings.Split(blank(text, inlineCode), "\n") {
		trimmed := strings.TrimSpace(l)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			end()
		case fenced, trimmed == "", strings.HasPrefix(l, "    ") && now.text == "":
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for _, cell := range strings.Split(trimmed, "|") {
				now = passage{line: i + 1, text: strings.TrimSpace(cell)}
				end()
			}
		case strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "- "), strings.HasPrefix(trimmed, "<"):
			end()
			now = passage{line: i + 1, text: trimmed}
		default:
			if now.text == "" {
				now.line = i + 1
			} else {
				now.text += "\n"
			}
			now.text += trimmed
		}
	}
	end()
	return out, nil
}

// commentPassages returns the comments of TOML and YAML, and the descriptions of alerts.
func commentPassages(name, text string) ([]passage, error) {
	var out []passage
	var now passage
	end := func() {
		if now.text != "" {
			now.docs = strings.HasPrefix(name, "configs/")
			now.text = blank(now.text, inlineCode)
			out = append(out, now)
		}
		now = passage{}
	}
	for i, l := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(l)
		comment, is := strings.CutPrefix(trimmed, "# ")
		if key, value, ok := strings.Cut(trimmed, ": "); !is && ok && (key == "summary" || key == "description") {
			comment, is = value, true
		}
		if !is {
			end()
			continue
		}
		if now.text == "" {
			now.line = i + 1
		} else {
			now.text += "\n"
		}
		now.text += comment
	}
	end()
	return out, nil
}

func htmlPassages(_, text string) ([]passage, error) {
	return []passage{{line: 1, text: blank(text, tag)}}, nil
}

var (
	scriptComment = regexp.MustCompile(`(?s)/\*.*?\*/|(?m:(?:^|[^:"'` + "`" + `])//[^\n]*(?:\n\s*//[^\n]*)*)`)
	scriptString  = regexp.MustCompile(`"(?:[^"\\\n]|\\.)* (?:[^"\\\n]|\\.)*"`)
	scriptMark    = regexp.MustCompile(`(?m)^\s*(?://|/\*|\*/?)|\*/`)
	panelText     = regexp.MustCompile(`"(?:title|description|text|content)": "(?:[^"\\\n]|\\.)*"`)
	panelKey      = regexp.MustCompile(`^"[a-z]+": `)
)

// scriptPassages returns the comments and strings of JavaScript and CSS.
func scriptPassages(_, text string) ([]passage, error) {
	var out []passage
	code := scriptComment.ReplaceAllStringFunc(text, func(c string) string { return strings.Repeat("\n", strings.Count(c, "\n")) })
	for _, at := range scriptComment.FindAllStringIndex(text, -1) {
		out = append(out, passage{line: lineOf(text, at[0]), text: blank(scriptMark.ReplaceAllString(text[at[0]:at[1]], " "), inlineCode)})
	}
	for _, at := range scriptString.FindAllStringIndex(code, -1) {
		out = append(out, passage{line: lineOf(code, at[0]), text: code[at[0]:at[1]]})
	}
	return out, nil
}

// dashboardPassages returns the titles and descriptions of a dashboard.
func dashboardPassages(_, text string) ([]passage, error) {
	var out []passage
	for _, at := range panelText.FindAllStringIndex(text, -1) {
		out = append(out, passage{line: lineOf(text, at[0]), text: panelKey.ReplaceAllString(text[at[0]:at[1]], "")})
	}
	return out, nil
}

// lineOf returns the number of the line at an offset.
func lineOf(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }

// comments returns the comments of a Go file.
func comments(set *token.FileSet, file *ast.File) []passage {
	var out []passage
	for _, c := range file.Comments {
		out = append(out, passage{line: set.Position(c.Pos()).Line, text: blank(c.Text(), inlineCode)})
	}
	return out
}

// goComments returns the comments of a Go file: the strings of tests are of many kinds.
func goComments(name, text string) ([]passage, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return comments(set, file), nil
}

// goPassages returns the strings of a Go file and, except for lb, its comments.
func goPassages(name, text string) ([]passage, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var out []passage
	if !strings.HasPrefix(name, "lb/") { // the comments of lb have words of their own so far
		out = comments(set, file)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		l, ok := n.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return true
		}
		s, err := strconv.Unquote(l.Value)
		if err == nil && strings.Contains(s, " ") {
			out = append(out, passage{line: set.Position(l.Pos()).Line, text: s})
		}
		return true
	})
	return out, nil
}
