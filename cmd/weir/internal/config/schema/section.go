package schema

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
)

// Section is a table of a checked tree. A key that is missing or bad has its default.
type Section struct {
	*source.Problems
	schema *Schema
	path   string // in the schema
	// Shown is the name of the table in messages.
	Shown string
	v     *source.Value // never nil
}

// Sub returns a table within s, an empty one if it is missing.
func (s Section) Sub(name string) Section {
	v := s.v.Table[name]
	if v == nil || v.Bad {
		v = &source.Value{At: s.v.At}
	}
	return Section{s.Problems, s.schema, source.Join(s.path, name), source.Join(s.Shown, name), v}
}

// Subs returns the tables of a list within s.
func (s Section) Subs(name string) []Section {
	list := s.Sub(name)
	out := make([]Section, len(list.v.List))
	for i, v := range list.v.List {
		out[i] = Section{s.Problems, s.schema, list.path, ShownItem(list.Shown, i, v), v}
	}
	return out
}

// Pos returns the position of the table.
func (s Section) Pos() source.Place { return s.v.At }

// Names returns the keys of the table that are set, sorted.
func (s Section) Names() []string { return s.v.Names() }

// Has reports whether a key is set, even if it is bad.
func (s Section) Has(name string) bool {
	_, ok := s.v.Table[name]
	return ok
}

// EmptyList reports whether a list is set and empty.
func (s Section) EmptyList(name string) bool {
	v, ok := s.v.Table[name]
	return ok && !v.Bad && len(v.List) == 0
}

// Written reports whether a list is set and not empty.
func (s Section) Written(name string) bool {
	v, ok := s.v.Table[name]
	return ok && (v.Bad || len(v.List) > 0)
}

// Changed reports whether a key is set to another value than its default.
func (s Section) Changed(name string) bool {
	v, ok := s.v.Table[name]
	if !ok || v.Bad {
		return false
	}
	def := s.schema.defaults[source.Join(s.path, name)]
	return def == nil || len(v.List) > 0 || len(v.Table) > 0 || v.Scalar != def.Scalar
}

// Bad reports whether a key, or an element of its list, has a reported problem.
func (s Section) Bad(name string) bool {
	v, ok := s.v.Table[name]
	return ok && (v.Bad || slices.ContainsFunc(v.List, func(e *source.Value) bool { return e.Bad }))
}

// Set reports whether a key is set and not bad.
func (s Section) Set(name string) bool { return s.Has(name) && !s.Bad(name) }

// At returns the position of a key, or of the table if the key is missing.
func (s Section) At(name string) source.Place {
	if v, ok := s.v.Table[name]; ok {
		return v.At
	}
	return s.v.At
}

// Get returns the value or the default of a key, nil if it has neither.
func (s Section) Get(name string) *source.Value {
	if v, ok := s.v.Table[name]; ok && !v.Bad {
		return v
	}
	return s.value(source.Join(s.path, name), name)
}

// value is Get for a key with a known path.
func (s Section) value(path, name string) *source.Value {
	if v, ok := s.v.Table[name]; ok && !v.Bad {
		return v
	}
	if _, ok := s.schema.byPath[path]; !ok {
		panic("schema: " + path + " is not in the schema")
	}
	return s.schema.defaults[path]
}

// Text returns a string, "" for a missing one without a default.
func (s Section) Text(name string) string {
	if v := s.Get(name); v != nil {
		return v.Scalar.(string)
	}
	return ""
}

// Integer returns an integer, 0 for a missing one without a default.
func (s Section) Integer(name string) int {
	if v := s.Get(name); v != nil {
		return int(v.Scalar.(int64))
	}
	return 0
}

// Duration returns a duration, 0 for a missing one without a default.
func (s Section) Duration(name string) time.Duration {
	if v := s.Get(name); v != nil {
		return v.Scalar.(time.Duration)
	}
	return 0
}

// Elements returns the valid elements of a list.
func (s Section) Elements(name string) []*source.Value {
	v := s.Get(name)
	if v == nil {
		return nil
	}
	var out []*source.Value
	for _, e := range v.List {
		if !e.Bad {
			out = append(out, e)
		}
	}
	return out
}

// Fail reports an error of a key.
func (s Section) Fail(name, text, fix string) {
	s.Add(source.Error, s.At(name), source.Join(s.Shown, name), text, fix)
}

// FailAt reports an error of a value of a key, such as an element of its list.
func (s Section) FailAt(e *source.Value, name, text, fix string) {
	s.Add(source.Error, e.At, source.Join(s.Shown, name), text, fix)
}

// Warn reports a problem of a key that is not an error.
func (s Section) Warn(severity source.Severity, name, text, fix string) {
	s.Add(severity, s.At(name), source.Join(s.Shown, name), text, fix)
}

// Known reports the names in a list that are not among the existing ones.
func (s Section) Known(name, noun string, existing []string) {
	for _, e := range s.Elements(name) {
		if text := e.Scalar.(string); !slices.Contains(existing, text) {
			f := UnknownName(text, noun, existing, "remove it")
			s.FailAt(e, name, f.Text, f.Fix)
		}
	}
}

// UnknownName returns the fault of a name that does not exist, with the nearest one that
// does.
func UnknownName(name, noun string, existing []string, fix string) *source.Fault {
	if near, ok := nearest(name, existing); ok {
		fix = fmt.Sprintf("did you mean %s?", strconv.Quote(near))
	} else if len(existing) > 0 {
		fix += "; existing: " + quoteAll(existing)
	}
	return source.Faultf(fix, "there is no %s %q", noun, name)
}

// short returns a duration without units that are zero: 1m instead of 1m0s.
func short(d time.Duration) string { return draft.Duration(d) }
