package load

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// Table writes the configuration as one TOML file that has the same effect. As in the
// reference, a key that is not written is commented out.
func (e *Effective) Table(w io.Writer, _ time.Time) {
	fmt.Fprintf(w, "# In effect: %s\n", strings.Join(e.Files, ", "))
	for _, t := range e.Tables {
		if t.Path != "" {
			k, _ := Schema().Key(t.Path)
			fmt.Fprintf(w, "\n%s # %s\n", k.Header(), t.origin())
		}
		for _, s := range t.Keys {
			fmt.Fprintln(w, s.line())
		}
	}
}

// Changed returns only tables and keys that are in the files with another value than the
// default.
func (e *Effective) Changed() *Effective {
	out := &Effective{File: e.File, Files: e.Files, Tables: []InForce{}}
	for _, t := range e.Tables {
		t.Keys = slices.DeleteFunc(slices.Clone(t.Keys), func(s Setting) bool {
			k, _ := Schema().Key(source.Join(t.Path, s.Key))
			return !s.Written() || k.From == "" && k.Default != "" && tomlText(s.Value) == canonicalDefault(k)
		})
		if t.File != "" || len(t.Keys) > 0 {
			out.Tables = append(out.Tables, t)
		}
	}
	return out
}

// Differences returns the names of keys that differ between two configurations, and of
// tables that only one has.
func (e *Effective) Differences(other *Effective) []string {
	a, b := e.texts(), other.texts()
	names := maps.Clone(a)
	maps.Copy(names, b)
	maps.DeleteFunc(names, func(name, _ string) bool {
		x, ok := a[name]
		y, both := b[name]
		return ok && both && x == y
	})
	var out []string
	listed := map[string]bool{} // a new table stands for its keys and tables
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if table, _ := source.Split(name); !listed[table] {
			out = append(out, name)
		}
		listed[name] = true
	}
	return out
}

func (e *Effective) texts() map[string]string {
	out := map[string]string{}
	for _, t := range e.Tables {
		out[t.Name] = ""
		for _, s := range t.Keys {
			out[source.Join(t.Name, s.Key)] = tomlText(s.Value)
		}
	}
	return out
}

func (t InForce) origin() string {
	if t.File == "" {
		return "default"
	}
	return source.Place{File: t.File, Line: t.Line}.String()
}

// line returns a key, its value and the origin.
func (s Setting) line() string {
	switch {
	case s.Value == nil:
		return fmt.Sprintf("#%s # not set", s.Key)
	case s.Written():
		return fmt.Sprintf("%s = %s # %s", s.Key, tomlText(s.Value), source.Place{File: s.File, Line: s.Line})
	case s.From != "" && s.File != "":
		return fmt.Sprintf("#%s = %s # %s, %s", s.Key, tomlText(s.Value), s.From, source.Place{File: s.File, Line: s.Line})
	case s.From != "":
		return fmt.Sprintf("#%s = %s # %s, default", s.Key, tomlText(s.Value), s.From)
	}
	return fmt.Sprintf("#%s = %s # default", s.Key, tomlText(s.Value))
}

// canonicalDefault returns the default as tomlText writes it.
func canonicalDefault(k schema.Key) string {
	return tomlText(plain(Schema().Default(k.Path), k))
}

// tomlText returns a value of a Setting as TOML, even if it was decoded from JSON.
func tomlText(x any) string {
	switch x := x.(type) {
	case string:
		return tomlString(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = tomlText(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(x)) {
			key := name
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !bare(r) }) {
				key = tomlString(name)
			}
			parts = append(parts, key+" = "+tomlText(x[name]))
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return fmt.Sprint(x) // an integer or a boolean
}

// bare reports whether a key may have r without quotes.
func bare(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

// tomlString quotes text. TOML has the escapes of JSON, and does not permit DEL.
func tomlString(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can't fail
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
