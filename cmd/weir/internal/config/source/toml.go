package source

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// deepest limits the open brackets and braces of a file: the parser's stack has an end, and a process does
// not survive it. Those in comments and text count, so the limit is far above any use.
const deepest = 100_000

// tooDeep returns the line at which a file has more of them; 0 if it never has.
func tooDeep(src []byte) int {
	depth, line := 0, 1
	for _, c := range src {
		switch c {
		case '\n':
			line++
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		}
		if depth > deepest {
			return line
		}
	}
	return 0
}

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
	made        map[*Value]maker
	// doubtful reports that a statement extended a table or list that another kind of statement made.
	// TOML rarely permits that, and verify decides.
	doubtful bool
}

// maker is the kind of statement that made a table, or a list of tables.
type maker uint8

const (
	byPath   maker = iota + 1 // a longer header
	byHeader                  // its own header
	byKey                     // a dotted key, or an inline table
)

// complete reports whether no header of its own may follow.
func (m maker) complete() bool { return m == byHeader || m == byKey }

// parseTOML reads the text of a file. The tree is nil if the text has a problem. After a
// mistake that ends with its line, reading goes on at the next line; any other is the last one.
func parseTOML(file string, src []byte) (*Value, []Problem) {
	d := &document{file: file, src: src, made: map[*Value]maker{}}
	if bytes.HasPrefix(src, []byte("\xff\xfe")) || bytes.HasPrefix(src, []byte("\xfe\xff")) {
		d.add(Problem{Line: 1, Text: "the text is UTF-16", Suggestion: "save the file as UTF-8"})
		return nil, d.problems
	}
	if line := tooDeep(src); line > 0 {
		d.add(Problem{Line: line, Text: fmt.Sprintf("more than %d brackets and braces are open", deepest), Suggestion: "close them"})
		return nil, d.problems
	}
	for i, c := range src {
		if c == '\n' {
			d.newlines = append(d.newlines, i)
		}
	}
	d.root = &Value{At: Place{file, 1}, Table: map[string]*Value{}}
	d.table = d.root
	for range maxSyntaxErrors {
		d.parser.Reset(src[d.base:])
		for d.root != nil && d.parser.NextExpression() {
			d.expression(d.parser.Expression())
		}
		if err := d.parser.Error(); d.root == nil || err == nil || !d.skip(err) {
			break
		}
	}
	d.verify()
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	return d.root, nil
}

// verify adds the error of the library's own reader, if it may find one more. It takes as long as all
// the rest.
func (d *document) verify() {
	if len(d.problems) > 0 || !d.doubtful {
		return
	}
	var all map[string]any
	err := toml.Unmarshal(d.src, &all)
	var at *toml.DecodeError
	switch {
	case errors.As(err, &at):
		line, column := at.Position()
		d.add(Problem{Line: line, Column: column, Key: strings.Join(at.Key(), "."), Text: plain(at.Error())})
	case err != nil:
		d.add(Problem{Text: plain(err.Error())})
	}
}

// plain returns a message of the library without its prefix, on one line.
func plain(message string) string {
	message = strings.Join(strings.Fields(strings.ToValidUTF8(strings.TrimPrefix(message, "toml: "), "?")), " ")
	if message == "" {
		return "is not valid TOML"
	}
	return strings.ToLower(message[:1]) + message[1:]
}

func (d *document) add(p Problem) {
	p.Severity, p.File = Error, d.file
	if p.Suggestion == "" {
		p.Suggestion = "correct the TOML syntax"
	}
	d.problems = append(d.problems, p)
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
		maker := d.made[v]
		switch {
		case !ok && last && list:
			v = &Value{At: at}
			table.Table[name], d.made[v] = v, byHeader
			table = d.element(v, at)
			continue
		case !ok:
			v = &Value{At: at, Table: map[string]*Value{}}
			table.Table[name], d.made[v] = v, byPath
		case v.List != nil && maker == byHeader && last && list:
			table = d.element(v, at)
			continue
		case v.List != nil && maker == byHeader && !last:
			v = v.List[len(v.List)-1]
		case v.IsTables() && (list || !last):
			d.doubtful = true // a list of inline tables
			v = v.List[len(v.List)-1]
		case v.Table == nil || last && (list || maker.complete()):
			d.duplicate(strings.Join(names[:i+1], "."), line, v, last && list)
			d.root = nil
			return
		default:
			d.doubtful = d.doubtful || maker == byKey
		}
		table = v
	}
	d.made[table] = byHeader
	d.table, d.path = table, names
}

// element adds a table to a list.
func (d *document) element(list *Value, at Place) *Value {
	table := &Value{At: at, Table: map[string]*Value{}}
	list.List = append(list.List, table)
	return table
}

// duplicate reports a header with a name that is taken: list is set for [[key]].
func (d *document) duplicate(key string, line int, first *Value, list bool) {
	fix := "keep one of them"
	switch {
	case first.Table != nil && list:
		fix = fmt.Sprintf("write [[%s]] on line %d, too", key, first.At.Line)
	case first.Table != nil:
		fix = fmt.Sprintf("put all its keys under the [%s] of line %d", key, first.At.Line)
	case first.IsTables() && !list:
		fix = fmt.Sprintf("write [[%s]]", key)
	}
	d.add(Problem{Line: line, Key: key, Text: fmt.Sprintf("is written twice, first on line %d", first.At.Line), Suggestion: fix})
}

// assign sets a key, which may be dotted, of a table.
func (d *document) assign(table *Value, path, names []string, line int, n *unstable.Node) {
	at := Place{d.file, line}
	for _, name := range names[:len(names)-1] {
		v, ok := table.Table[name]
		if !ok {
			v = &Value{At: at, Table: map[string]*Value{}}
			table.Table[name], d.made[v] = v, byKey
		}
		d.doubtful = d.doubtful || ok
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
	path = slices.Concat(path, names)
	v := d.value(n, path, line)
	if twice {
		d.add(Problem{Line: line, Key: strings.Join(path, "."), Text: fmt.Sprintf("is written twice, first on line %d", first.At.Line), Suggestion: "keep one of them"})
		return
	}
	v.At = at
	table.Table[last] = v
}

// value returns the value of a key; line is that of the key or list.
func (d *document) value(n *unstable.Node, path []string, line int) *Value {
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
			v.List = append(v.List, d.value(it.Node(), path, line))
		}
	case unstable.InlineTable:
		v.Table = map[string]*Value{}
		d.made[v] = byKey
		for it := n.Children(); it.Next(); {
			names, line := d.names(it.Node().Key())
			if len(v.Table) == 0 {
				v.At.Line = line
			}
			d.assign(v, path, names, line, it.Node().Value())
		}
	case unstable.String:
		v.Scalar = string(n.Data)
	case unstable.Bool:
		v.Scalar = n.Data[0] == 't'
	default:
		v.Scalar = d.number(n, path, start)
	}
	return v
}

// number returns the number or date at an offset.
func (d *document) number(n *unstable.Node, path []string, start int) any {
	if short := len(n.Data) < 19 && (n.Data[0] != '0' || len(n.Data) == 1); short {
		if i, err := strconv.ParseUint(string(n.Data), 10, 63); err == nil {
			return int64(i) //nolint:gosec // 63 bits
		}
	}
	var one struct{ V any }
	if err := toml.Unmarshal(slices.Concat([]byte("V = "), n.Data), &one); err != nil {
		text, fix := diagnose(string(n.Data))
		switch {
		case text != "":
		case strings.HasSuffix(err.Error(), "value out of range"):
			text, fix = fmt.Sprintf("%s does not fit in 64 bits", n.Data), "write a smaller number"
		default:
			text, fix = fmt.Sprintf("%s is neither a number nor text in quotes", n.Data), fmt.Sprintf("write a number, or %q", n.Data)
		}
		d.addAt(start, path, text, fix)
		return nil
	}
	switch one.V.(type) {
	case int64, float64:
		return one.V
	}
	return time.Time{} // a date, of any type
}

// addAt adds a problem at an offset.
func (d *document) addAt(offset int, path []string, text, fix string) {
	line := d.lineOf(offset)
	column := offset + 1
	if line > 1 {
		column = offset - d.newlines[line-2]
	}
	d.add(Problem{Line: line, Column: column, Key: strings.Join(path, "."), Text: text, Suggestion: fix})
}
