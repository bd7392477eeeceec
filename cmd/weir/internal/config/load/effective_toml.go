package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
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
			return !s.Written() || k.From == "" && k.Default != "" && draft.Literal(s.Value) == canonicalDefault(k)
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
	a, b := e.entries(), other.entries()
	all := maps.Clone(a)
	maps.Copy(all, b)
	maps.DeleteFunc(all, func(x part, _ content) bool {
		inA, ok := a[x]
		inB, both := b[x]
		return ok && both && inA.text == inB.text
	})
	var out []string
	for _, x := range slices.SortedFunc(maps.Keys(all), func(x, y part) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.path, y.path))
	}) {
		if _, listed := all[all[x].in]; !listed { // a new table stands for its keys and tables
			out = append(out, x.name)
		}
	}
	return slices.Compact(out)
}

// part is a table or a key. Names of services have dots, so that a table of one may have the name of another.
type part struct{ path, name string }

// content is the value of a key, or nothing, and the table that it is in.
type content struct {
	text string
	in   part
}

func (e *Effective) entries() map[part]content {
	out, last := map[part]content{}, map[string]part{} // the last table of a path
	for _, t := range e.Tables {
		own := part{t.Path, t.Name}
		outer, _ := source.Split(t.Path)
		last[t.Path], out[own] = own, content{in: last[outer]}
		for _, s := range t.Keys {
			out[part{source.Join(t.Path, s.Key), source.Join(t.Name, s.Key)}] = content{draft.Literal(s.Value), own}
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
		return fmt.Sprintf("%s = %s # %s", s.Key, draft.Literal(s.Value), source.Place{File: s.File, Line: s.Line})
	case s.From != "" && s.File != "":
		return fmt.Sprintf("#%s = %s # %s, %s", s.Key, draft.Literal(s.Value), s.From, source.Place{File: s.File, Line: s.Line})
	case s.From != "":
		return fmt.Sprintf("#%s = %s # %s, default", s.Key, draft.Literal(s.Value), s.From)
	}
	return fmt.Sprintf("#%s = %s # default", s.Key, draft.Literal(s.Value))
}

// canonicalDefault returns the default as Literal writes it.
func canonicalDefault(k schema.Key) string {
	return draft.Literal(plain(Schema().Default(k.Path), k))
}
