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
	template   = regexp.MustCompile(`\{\{.*?\}\}`)
	inlineCode = regexp.MustCompile("`[^`\n]+`")
	unread     = regexp.MustCompile(`(?s)<(?:script|style).*?</(?:script|style)>|<code>.*?</code>|\{\{.*?\}\}|<!--.*?-->`)
	phrasing   = regexp.MustCompile(`</?(?:a|abbr|b|em|i|small|strong|tspan)(?:\s[^>]*)?>`)
	tag        = regexp.MustCompile(`<[^>]*>`)
)

// reader returns the function that takes the passages out of a file, nil for files
// that are not checked.
func reader(name string) func(name, text string) ([]passage, error) {
	switch {
	case name == "LICENSE":
		return nil
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

// paragraphs collects passages line by line.
type paragraphs struct {
	now passage
	all []passage
}

// add appends a line to the passage that is being read.
func (p *paragraphs) add(line int, text string) {
	if p.now.text == "" {
		p.now.line = line
	} else {
		p.now.text += "\n"
	}
	p.now.text += text
}

func (p *paragraphs) end() {
	if p.now.text != "" {
		p.all = append(p.all, p.now)
	}
	p.now = passage{}
}

// markdownPassages returns paragraphs, list items and table cells, without code.
func markdownPassages(_, text string) ([]passage, error) {
	var p paragraphs
	fenced := false
	for i, l := range strings.Split(blank(text, inlineCode), "\n") {
		trimmed := strings.TrimSpace(l)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			p.end()
		case fenced, trimmed == "", strings.HasPrefix(l, "    ") && p.now.text == "":
			p.end()
		case strings.HasPrefix(trimmed, "|"):
			p.end()
			for _, cell := range strings.Split(trimmed, "|") {
				p.add(i+1, strings.TrimSpace(cell))
				p.end()
			}
		case strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "- "), strings.HasPrefix(trimmed, "<"):
			p.end()
			p.add(i+1, trimmed)
		default:
			p.add(i+1, trimmed)
		}
	}
	p.end()
	for i := range p.all {
		p.all[i].docs = true
	}
	return p.all, nil
}

// commentPassages returns the comments of TOML and YAML, and the descriptions of alerts.
func commentPassages(name, text string) ([]passage, error) {
	var p paragraphs
	for i, l := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(l)
		comment, is := strings.CutPrefix(trimmed, "# ")
		if key, value, ok := strings.Cut(trimmed, ": "); !is && ok && (key == "summary" || key == "description") {
			comment, is, p.now.docs = template.ReplaceAllString(value, "X"), true, true
		}
		if !is {
			p.end()
			continue
		}
		if strings.HasPrefix(comment, " ") { // a line of a table or of an example
			p.end()
		}
		p.add(i+1, comment)
	}
	p.end()
	for i, q := range p.all {
		p.all[i].docs = q.docs || strings.HasPrefix(name, "configs/")
		p.all[i].text = blank(q.text, inlineCode)
	}
	return p.all, nil
}

// htmlPassages returns the text between the tags that begin or end a block. Phrasing tags are part of
// the text.
func htmlPassages(_, text string) ([]passage, error) {
	var out []passage
	text = blank(text, unread)
	begin := 0
	end := func(at int) {
		if words := strings.TrimLeft(text[begin:at], " \n\t"); words != "" {
			out = append(out, passage{line: lineOf(text, at-len(words)), text: words, docs: true})
		}
	}
	text = phrasing.ReplaceAllString(text, "")
	for _, at := range tag.FindAllStringIndex(text, -1) {
		end(at[0])
		begin = at[1]
	}
	end(len(text))
	return out, nil
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
		out = append(out, passage{line: lineOf(text, at[0]), text: panelKey.ReplaceAllString(text[at[0]:at[1]], ""), docs: true})
	}
	return out, nil
}

// lineOf returns the number of the line at an offset.
func lineOf(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }

// goPassages returns the comments of a Go file, and its strings if it is no test: those of tests are of many kinds.
func goPassages(name, text string) ([]passage, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var out []passage
	for _, c := range file.Comments {
		out = append(out, passage{line: set.Position(c.Pos()).Line, text: blank(c.Text(), inlineCode)})
	}
	if strings.HasSuffix(name, "_test.go") {
		return out, nil
	}
	documents := map[*ast.BasicLit]bool{} // strings that are checked as documentation, with those before and after them
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Long" || key.Name == "Doc") {
				out = append(out, manualPassages(set.Position(n.Value.Pos()).Line, joined(n.Value, documents))...)
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(n.Value)
			if err != nil || !strings.Contains(s, " ") {
				return true
			}
			if !documents[n] {
				out = append(out, passage{line: set.Position(n.Pos()).Line, text: s})
			}
		}
		return true
	})
	return out, nil
}

// joined returns the text of a string, or of a sum of strings, and adds these to seen.
func joined(e ast.Expr, seen map[*ast.BasicLit]bool) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return joined(e.X, seen) + joined(e.Y, seen)
	case *ast.BasicLit:
		seen[e] = true
		s, err := strconv.Unquote(e.Value)
		if err == nil {
			return s
		}
	}
	return "X"
}

// manualPassages returns the paragraphs of a help text or of a key's description. Indented lines are
// examples and tables.
func manualPassages(line int, text string) []passage {
	var p paragraphs
	for i, l := range strings.Split(text, "\n") {
		if l == "" || l[0] == ' ' || l[0] == '\t' {
			p.end()
			continue
		}
		p.add(line+i, l)
		p.now.docs = true
	}
	p.end()
	return p.all
}
