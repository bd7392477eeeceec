package config

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table writes the configuration as one TOML file, from which the same one can be
// loaded. As in the reference, a key that is not written has its value behind a "#".
func (e *Effective) Table(w io.Writer, _ time.Time) {
	fmt.Fprintf(w, "# In force: %s\n", strings.Join(e.Files, ", "))
	for _, t := range e.Tables {
		if t.Path != "" {
			k := compiled().byPath[t.Path]
			fmt.Fprintf(w, "\n%s # %s\n", k.header(), t.origin())
		}
		for _, s := range t.Keys {
			fmt.Fprintln(w, s.line())
		}
	}
}

// Changed leaves out what has its default: tables that are written nowhere, and keys
// that the files do not say.
func (e *Effective) Changed() *Effective {
	out := &Effective{File: e.File, Files: e.Files, Tables: []InForce{}}
	for _, t := range e.Tables {
		t.Keys = slices.DeleteFunc(slices.Clone(t.Keys), func(s Setting) bool {
			k := compiled().byPath[join(t.Path, s.Key)]
			return !s.Written() || k.from == "" && k.Default != "" && tomlText(s.Value) == k.canonicalDefault()
		})
		if t.File != "" || len(t.Keys) > 0 {
			out.Tables = append(out.Tables, t)
		}
	}
	return out
}

// Differences names what is not the same in two configurations: keys as users know
// them, and tables that only one has.
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
	told := map[string]bool{} // of a new table the keys are new, too, and the tables in it
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if table, _ := split(name); !told[table] {
			out = append(out, name)
		}
		told[name] = true
	}
	return out
}

func (e *Effective) texts() map[string]string {
	out := map[string]string{}
	for _, t := range e.Tables {
		out[t.Name] = ""
		for _, s := range t.Keys {
			out[join(t.Name, s.Key)] = tomlText(s.Value)
		}
	}
	return out
}

func (t InForce) origin() string {
	if t.File == "" {
		return "default"
	}
	return place{t.File, t.Line}.String()
}

// line writes a key, its value and where that comes from.
func (s Setting) line() string {
	switch {
	case s.Value == nil:
		return fmt.Sprintf("#%s # not set", s.Key)
	case s.Written():
		return fmt.Sprintf("%s = %s # %s", s.Key, tomlText(s.Value), place{s.File, s.Line})
	case s.From != "" && s.File != "":
		return fmt.Sprintf("#%s = %s # %s, %s", s.Key, tomlText(s.Value), s.From, place{s.File, s.Line})
	case s.From != "":
		return fmt.Sprintf("#%s = %s # %s, default", s.Key, tomlText(s.Value), s.From)
	}
	return fmt.Sprintf("#%s = %s # default", s.Key, tomlText(s.Value))
}

// canonicalDefault is the default as tomlText writes it.
func (k Key) canonicalDefault() string {
	return tomlText(compiled().defaults[k.Path].plain(k))
}

func percentText(p percent) string { return strconv.FormatInt(int64(p), 10) + "%" }

// tomlText writes a value that is one of Setting's, even if it has been through JSON.
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
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r > 127 || !isBare(byte(r)) }) {
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

// tomlString quotes text. What JSON escapes TOML does, too; beyond that it does not
// admit DEL.
func tomlString(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can't fail
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
