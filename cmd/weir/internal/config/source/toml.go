package source

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxSyntaxErrors limits the syntax errors that are reported of one file.
const maxSyntaxErrors = 20

// document is one file while it is read.
type document struct {
	file     string
	src      []byte
	newlines []int // offsets
	parser   unstable.Parser
	base     int // offset of the parser's data in src
	start    int // offset of the last statement, of a key or a header
	end      int // offset after its last node
	problems []Problem

	root, table *Value // table is the one that the last header opened
	path        []string
	// opened are the tables with a header or dotted keys of their own, by that header's path.
	opened map[*Value]bool
}

// parseTOML reads the text of a file. After a syntax error, reading goes on at the next
// statement. The tree is nil if that is not possible.
func parseTOML(file string, src []byte) (*Value, []Problem) {
	d := &document{file: file, src: src, opened: map[*Value]bool{}}
	for i, c := range src {
		if c == '\n' {
			d.newlines = append(d.newlines, i)
		}
	}
	d.root = &Value{At: Place{file, 1}, Table: map[string]*Value{}}
	d.table = d.root
	for range maxSyntaxErrors {
		d.parser.Reset(src[d.base:])
		for d.parser.NextExpression() {
			if d.expression(d.parser.Expression()); d.root == nil {
				return nil, d.problems
			}
		}
		err := d.parser.Error()
		if err == nil {
			d.verify()
			return d.root, d.problems
		}
		if !d.skip(err) {
			return nil, d.problems
		}
	}
	return nil, d.problems
}

// verify adds the error of the library's own reader, if it finds one more.
func (d *document) verify() {
	if len(d.problems) > 0 {
		return
	}
	var all map[string]any
	err := toml.Unmarshal(d.src, &all)
	var at *toml.DecodeError
	switch {
	case errors.As(err, &at):
		line, _ := at.Position()
		d.add(line, strings.Join(at.Key(), "."), plain(at.Error()), "")
	case err != nil:
		d.add(0, "", plain(err.Error()), "")
	}
}

// plain returns a message of the library without its prefix.
func plain(message string) string {
	message = strings.TrimPrefix(message, "toml: ")
	if message == "" {
		return "is not valid TOML"
	}
	return strings.ToLower(message[:1]) + message[1:]
}

func (d *document) add(line int, key, text, fix string) {
	d.problems = append(d.problems, Problem{Error, d.file, line, key, text, fix})
}

// lineOf returns the line of an offset in src.
func (d *document) lineOf(offset int) int {
	i, _ := slices.BinarySearch(d.newlines, offset)
	return i + 1
}

// offsets returns the extent of a node in src, and false if the library does not know it.
func (d *document) offsets(n *unstable.Node) (start, end int, ok bool) {
	r := n.Raw
	if r.Length == 0 && len(n.Data) > 0 && n.Kind != unstable.String {
		r = d.parser.Range(n.Data)
	}
	start = d.base + int(r.Offset)
	return start, start + int(r.Length), r.Length > 0
}

func (d *document) expression(n *unstable.Node) {
	d.start = -1
	names, line := d.names(n.Key())
	if n.Kind == unstable.KeyValue {
		d.assign(d.table, d.path, names, line, n.Value())
		return
	}
	d.header(names, line, n.Kind == unstable.ArrayTable)
}

// names returns the parts of a key and its line.
func (d *document) names(it unstable.Iterator) (names []string, line int) {
	for it.Next() {
		n := it.Node()
		names = append(names, string(n.Data))
		start, end, _ := d.offsets(n)
		if line == 0 {
			line = d.lineOf(start)
		}
		if d.start < 0 {
			d.start = start
		}
		d.end = max(d.end, end)
	}
	return names, line
}

// header opens [a.b] or a new element of [[a.b]].
func (d *document) header(names []string, line int, list bool) {
	at := Place{d.file, line}
	table := d.root
	for i, name := range names {
		last := i == len(names)-1
		v, ok := table.Table[name]
		switch {
		case last && list && ok && v.IsTables() && !d.opened[v]:
			v.List = append(v.List, &Value{At: at, Table: map[string]*Value{}})
			table = v.List[len(v.List)-1]
			continue
		case !ok && last && list:
			first := &Value{At: at, Table: map[string]*Value{}}
			table.Table[name] = &Value{At: at, List: []*Value{first}}
			table = first
			continue
		case !ok:
			v = &Value{At: at, Table: map[string]*Value{}}
			table.Table[name] = v
		case v.IsTables() && !last:
			v = v.List[len(v.List)-1]
		case v.Table == nil || last && (list || d.opened[v]):
			d.duplicate(strings.Join(names, "."), line, v)
			d.root = nil
			return
		}
		table = v
	}
	d.opened[table] = true
	d.table, d.path = table, names
}

// duplicate reports a table that is opened twice.
func (d *document) duplicate(key string, line int, first *Value) {
	d.add(line, key, fmt.Sprintf("is written twice, first on line %d", first.At.Line),
		fmt.Sprintf("put all its keys under the [%s] of line %d", key, first.At.Line))
}

// assign sets a key, which may be dotted, of a table.
func (d *document) assign(table *Value, path, names []string, line int, n *unstable.Node) {
	at := Place{d.file, line}
	for _, name := range names[:len(names)-1] {
		v, ok := table.Table[name]
		if !ok {
			v = &Value{At: at, Table: map[string]*Value{}}
			table.Table[name] = v
			d.opened[v] = true
		}
		table = v
		if table.Table == nil {
			break
		}
	}
	last := names[len(names)-1]
	first, twice := table, true
	if table.Table != nil {
		first, twice = table.Table[last]
	}
	v := d.value(n, line)
	if twice && !first.Bad {
		d.add(line, strings.Join(slices.Concat(path, names), "."), fmt.Sprintf("is written twice, first on line %d", first.At.Line), "keep one of them")
		return
	}
	v.At = at
	table.Table[last] = v
}

// value returns a value; line is that of its key or list.
func (d *document) value(n *unstable.Node, line int) *Value {
	start, end, known := d.offsets(n)
	if known {
		line = d.lineOf(start)
		d.end = max(d.end, end)
	}
	v := &Value{At: Place{d.file, line}}
	switch n.Kind {
	case unstable.Array:
		v.List = []*Value{}
		for it := n.Children(); it.Next(); {
			v.List = append(v.List, d.value(it.Node(), line))
		}
	case unstable.InlineTable:
		v.Table = map[string]*Value{}
		d.opened[v] = true
		for it := n.Children(); it.Next(); {
			names, line := d.names(it.Node().Key())
			if len(v.Table) == 0 {
				v.At.Line = line
			}
			d.assign(v, nil, names, line, it.Node().Value())
		}
	case unstable.String:
		v.Scalar = string(n.Data)
	case unstable.Bool:
		v.Scalar = n.Data[0] == 't'
	default:
		v.Scalar = d.number(n, line)
		v.Bad = v.Scalar == nil
	}
	return v
}

// number returns a number or a date, nil if it is invalid.
func (d *document) number(n *unstable.Node, line int) any {
	var one struct{ V any }
	if err := toml.Unmarshal(slices.Concat([]byte("V = "), n.Data), &one); err != nil {
		d.add(line, "", fmt.Sprintf("%s: %s", n.Data, plain(err.Error())), "")
		return nil
	}
	switch one.V.(type) {
	case int64, float64:
		return one.V
	}
	return time.Time{} // a date, of any type
}

var (
	// statement is a line that looks like the beginning of a statement.
	statement = regexp.MustCompile(`(?m)^[ \t]*([A-Za-z0-9_-]+[ \t]*=|\[{1,2}[A-Za-z0-9_.-]+\]{1,2}[ \t\r]*(#.*)?$)`)
	// between are lines that belong to no statement, or end the one before.
	between = regexp.MustCompile(`^([ \t\r\]},]*(#[^\n]*)?\n)*`)
	// keyForm is the key of a broken statement.
	keyForm = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_.-]+)[ \t]*[=:]?[ \t]*`)
	// leadingZero is a number that TOML does not permit.
	leadingZero = regexp.MustCompile(`^0[0-9]*[1-9]$`)
	// bareText is a string without its quotes.
	bareText = regexp.MustCompile(`^[0-9A-Za-z./:%_-]*[A-Za-z./:%][0-9A-Za-z./:%_-]*$`)
)

// skip reports a syntax error and continues after the broken statement. It returns false
// if that is not possible.
func (d *document) skip(err error) bool {
	var mistake *unstable.ParserError
	if !errors.As(err, &mistake) {
		d.add(0, "", plain(err.Error()), "")
		return false
	}
	at := min(d.base+int(d.parser.Range(mistake.Highlight).Offset), len(d.src)-1)
	start := d.brokenStart(at)
	text := d.src[start:]
	next := len(text)
	if line := bytes.IndexByte(text, '\n'); line >= 0 {
		if i := statement.FindIndex(text[line+1:]); i != nil {
			next = line + 1 + i[0]
		}
	}
	key := keyForm.FindSubmatch(text)
	line := d.lineOf(at)
	if key == nil {
		d.add(line, "", plain(mistake.Message), "")
		return false
	}
	names := slices.Concat(d.path, strings.Split(string(key[1]), "."))
	written := strings.TrimSpace(string(text[min(len(key[0]), next):next]))
	problem, fix := diagnose(written)
	if problem == "" {
		problem = plain(mistake.Message)
	} else {
		line = d.lineOf(start)
	}
	d.add(line, strings.Join(names, "."), problem, fix)
	if name := names[len(d.path)]; d.table.Table[name] == nil || d.table.Table[name].Table == nil {
		d.table.Table[name] = &Value{At: Place{d.file, d.lineOf(start)}, Bad: true}
	}
	d.base, d.end = start+next, start+next
	return true
}

// brokenStart returns the offset of the statement with the mistake at an offset.
func (d *document) brokenStart(at int) int {
	rest := d.src[d.end:max(at, d.end)]
	newline := bytes.IndexByte(rest, '\n')
	if d.end > d.base && newline < 0 && d.src[d.start] != '[' {
		return d.start // the last statement has more on its line
	}
	start := d.end
	if d.end > d.base && newline >= 0 {
		start += newline + 1
	}
	return start + len(between.Find(d.src[start:max(at, start)]))
}

// diagnose returns the usual mistakes of a value and their fixes.
func diagnose(written string) (problem, fix string) {
	line, _, _ := strings.Cut(written, "\n")
	if strings.HasPrefix(line, `"`) && !strings.HasPrefix(line, `"""`) && strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`) == 1 {
		return "is not closed", "add the quote that ends it"
	}
	if i := strings.LastIndexByte(written, '\n'); strings.HasPrefix(written, "[") && strings.Count(written[i+1:], `"`)%2 == 1 {
		return "is not closed", "add the quote that ends it"
	}
	for _, q := range []struct{ open, end string }{{`"""`, `"""`}, {"'''", "'''"}, {"[", "]"}, {"{", "}"}} {
		if strings.HasPrefix(written, q.open) && (!strings.HasSuffix(written, q.end) || len(written) < len(q.open+q.end)) {
			return "is not closed", "add the " + q.end + " that ends it"
		}
	}
	line, _, _ = strings.Cut(line, "#")
	line = strings.TrimSpace(line)
	switch {
	case strings.EqualFold(line, "true"), strings.EqualFold(line, "false"):
		return line + " is not a boolean", "write " + strings.ToLower(line)
	case leadingZero.MatchString(line):
		return line + " has a leading zero", "write " + strings.TrimLeft(line, "0")
	case bareText.MatchString(line):
		return line + " is text without quotes", fmt.Sprintf("write %q", line)
	}
	return "", ""
}
