// Package draft writes configurations for operators to review: TOML with a comment behind
// each key about the origin of its value. It never interprets keys. The importers of other
// programs' configurations use it; read.go has their common readers.
package draft

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Writer writes TOML. The zero value is empty.
type Writer struct{ strings.Builder }

// Text writes s as it is.
func (w *Writer) Text(s string) { w.WriteString(s) }

// Table begins a table: "[kernel]", "[[service]]".
func (w *Writer) Table(header string) { w.Text("\n" + header + "\n") }

// wide is the width from which a list gets a line for each element.
const wide = 80

// Key writes a key with a comment about the origin of its value.
func (w *Writer) Key(name string, v any, from string) {
	if list, ok := v.([]string); ok && len(Literal(v)) > wide {
		fmt.Fprintf(w, "%s = [ # %s\n", name, oneLine(from))
		for _, s := range list {
			fmt.Fprintf(w, "\t%s,\n", quote(s))
		}
		w.Text("]\n")
		return
	}
	fmt.Fprintf(w, "%s = %s # %s\n", name, Literal(v), oneLine(from))
}

// Left names a setting that becomes no key, its value, and why.
func (w *Writer) Left(name string, v any, reason string) {
	fmt.Fprintf(w, "# %s = %s: %s.\n", name, Literal(v), reason)
}

// Remark writes a comment, in as many lines as it takes.
func (w *Writer) Remark(text string) {
	for _, line := range Wrap(oneLine(text), 98) {
		w.Text("# " + line + "\n")
	}
}

// Wrap breaks a text into lines of at most so many bytes, where words allow.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// Command writes a command for a shell as a comment, in one line.
func (w *Writer) Command(text string) { w.Text("#   " + oneLine(text) + "\n") }

// Literal writes a value in TOML; what TOML has no word for, as JSON.
func Literal(v any) string {
	switch x := v.(type) {
	case string:
		return quote(x)
	case time.Duration:
		return quote(Duration(x))
	case []string:
		quoted := make([]string, len(x))
		for i, s := range x {
			quoted[i] = quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = Literal(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]bool:
		return inline(x)
	case map[string]string:
		return inline(x)
	case map[string]any:
		return inline(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case bool, int, int64:
		return fmt.Sprint(x)
	default:
		out, _ := json.Marshal(x) // it was JSON before
		return oneLine(string(out))
	}
}

// inline writes an inline table, its keys sorted.
func inline[V any](table map[string]V) string {
	if len(table) == 0 {
		return "{}"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		key := name
		if !bareKey.MatchString(name) {
			key = quote(name)
		}
		parts = append(parts, key+" = "+Literal(table[name]))
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// bareKey is a key that needs no quotes.
var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// quote writes a basic string: JSON's escapes are TOML's, but for DEL, which
// TOML wants escaped too.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can be encoded
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// oneLine keeps control characters out of comments, where TOML has none.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Duration returns a duration without zero units: 1m instead of 1m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
