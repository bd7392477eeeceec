package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxSyntaxErrors is how many are found in one file: each costs another reading
// of it.
const maxSyntaxErrors = 20

// syntax reads the text of a file. The library stops at the first mistake; to
// find the others, and what else is wrong, the statement with the mistake is
// blanked out, marked as broken, and the rest read again. The data is nil if
// that does not help: then nothing more can be said about the file.
func syntax(file, src string) (data map[string]any, root *spot, problems []Problem) {
	text, ends := src, map[int]int{}
	for range maxSyntaxErrors {
		var statements []statement
		root, statements = scan(src, ends)
		data = map[string]any{}
		_, err := toml.Decode(text, &data)
		if err == nil {
			return data, root, problems
		}
		var mistake toml.ParseError
		if !errors.As(err, &mistake) {
			return nil, root, append(problems, Problem{Severity: Error, File: file, Text: err.Error()})
		}
		i := statementAt(statements, mistake)
		problems = append(problems, syntaxProblem(file, src, statements, i, mistake))
		if i < 0 || statements[i].header {
			return nil, root, problems
		}
		st := statements[i]
		if _, again := ends[st.start]; again {
			return nil, root, problems
		}
		ends[st.start] = brokenEnd(src, st)
		text = blank(text, st.start, ends[st.start])
	}
	return nil, root, problems
}

// anew is a line that looks like the beginning of a statement.
var anew = regexp.MustCompile(`(?m)^[ \t]*([A-Za-z0-9_-]+[ \t]*=|\[{1,2}[A-Za-z0-9_.-]+\]{1,2}[ \t\r]*(#.*)?$)`)

// brokenEnd tells where a broken statement ends. A bracket or a quote that is
// missing makes it seem to go on over the following ones.
func brokenEnd(src string, st statement) int {
	line := strings.IndexByte(src[st.start:st.end], '\n')
	if line < 0 {
		return st.end
	}
	if next := anew.FindStringIndex(src[st.start+line+1 : st.end]); next != nil {
		return st.start + line + next[0]
	}
	return st.end
}

// statementAt finds the statement that holds a mistake, -1 if none does.
func statementAt(statements []statement, mistake toml.ParseError) int {
	found := -1
	for i, st := range statements {
		if st.start > mistake.Position.Start || st.line > mistake.Position.Line {
			break
		}
		found = i
	}
	return found
}

// blank makes a part of src spaces, byte by byte, so that all else stays where
// it is.
func blank(src string, start, end int) string {
	out := []byte(src)
	for i := start; i < end; i++ {
		if out[i] != '\n' {
			out[i] = ' '
		}
	}
	return string(out)
}

func syntaxProblem(file, src string, statements []statement, i int, mistake toml.ParseError) Problem {
	p := Problem{Severity: Error, File: file, Line: mistake.Position.Line, Text: lowerFirst(mistake.Message)}
	p.Line = min(max(p.Line, 1), 1+strings.Count(src, "\n"))
	if i < 0 {
		return p
	}
	st := statements[i]
	p.Key = strings.Join(st.path, ".")
	if strings.Contains(mistake.Message, "already") {
		p.Line = st.line
		if first := firstOf(statements[:i], st); first > 0 {
			p.Text = fmt.Sprintf("is written twice, first on line %d", first)
			p.Suggestion = "keep one of them"
			if st.header {
				p.Suggestion = fmt.Sprintf("put all its keys under the [%s] of line %d", p.Key, first)
			}
		}
		return p
	}
	if st.header {
		return p
	}
	if closing := unclosed(src, st, mistake); closing != "" {
		p.Line = st.line
		p.Text, p.Suggestion = "is not closed", "add the "+closing+" that ends it"
		return p
	}
	value, _, _ := strings.Cut(src[st.value:st.end], "#")
	if value = strings.TrimSpace(value); bareText.MatchString(value) {
		p.Line = st.line
		p.Text = fmt.Sprintf("%s is text without quotes", value)
		p.Suggestion = fmt.Sprintf("write %q", value)
		if strings.EqualFold(value, "true") || strings.EqualFold(value, "false") {
			p.Text = value + " is not a boolean"
			p.Suggestion = "write " + strings.ToLower(value)
		}
	}
	return p
}

// unclosed gives the bracket or quote that is missing at the end of a value, ""
// if the mistake is another one.
func unclosed(src string, st statement, mistake toml.ParseError) string {
	if mistake.Message == "strings cannot contain newlines" {
		return "quote"
	}
	if end := brokenEnd(src, st); mistake.Position.Start < end && end < len(strings.TrimSpace(src)) {
		return ""
	}
	for opening, closing := range map[string]string{"[": "]", "{": "}", `"""`: `"""`, "'''": "'''"} {
		if strings.HasPrefix(src[st.value:st.end], opening) {
			return closing
		}
	}
	return ""
}

// firstOf gives the line on which the key or table of st was written before.
func firstOf(earlier []statement, st statement) int {
	for _, e := range earlier {
		if e.spot == st.spot {
			return e.line
		}
	}
	return 0
}

// bareText is what people write when they forget the quotes.
var bareText = regexp.MustCompile(`^[0-9A-Za-z./:%_-]*[A-Za-z./:%][0-9A-Za-z./:%_-]*$`)

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
