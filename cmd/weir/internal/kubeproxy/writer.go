package kubeproxy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// writer writes TOML.
type writer struct{ strings.Builder }

func (w *writer) text(s string) { w.WriteString(s) }

func (w *writer) table(header string) { w.text("\n" + header + "\n") }

// wide is where a list gets a line for each element.
const wide = 80

// key writes a key with a comment that says where its value comes from.
func (w *writer) key(name string, v any, from string) {
	if list, ok := v.([]string); ok && len(literal(v)) > wide {
		fmt.Fprintf(w, "%s = [ # %s\n", name, oneLine(from))
		for _, s := range list {
			fmt.Fprintf(w, "\t%s,\n", quote(s))
		}
		w.text("]\n")
		return
	}
	fmt.Fprintf(w, "%s = %s # %s\n", name, literal(v), oneLine(from))
}

// comment names a field and its value.
func (w *writer) comment(path string, v any, why string) {
	fmt.Fprintf(w, "# %s = %s: %s.\n", path, literal(v), why)
}

// literal writes a value in TOML.
func literal(v any) string {
	switch x := v.(type) {
	case string:
		return quote(x)
	case time.Duration:
		return quote(short(x))
	case []string:
		quoted := make([]string, len(x))
		for i, s := range x {
			quoted[i] = quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case map[string]bool:
		var parts []string
		for name, on := range x {
			parts = append(parts, fmt.Sprintf("%s = %t", quote(name), on))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case bool, int64, float64:
		return fmt.Sprint(x)
	default:
		out, _ := json.Marshal(x) // it was JSON before
		return oneLine(string(out))
	}
}

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

// short writes a duration as people do: 1m instead of 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
