package config

import (
	"slices"
	"time"
)

// section is a table that is being read, after the checker has been over it. A
// key that is not written, or bad, has its default.
type section struct {
	*collector
	schema *schema
	path   string // in the schema
	shown  string // as users know it
	v      *value // never nil
}

// sub is a table within s, an empty one if it is not written.
func (s section) sub(name string) section {
	v := s.v.table[name]
	if v == nil || v.bad {
		v = &value{at: s.v.at}
	}
	return section{s.collector, s.schema, join(s.path, name), join(s.shown, name), v}
}

// subs are the tables of a list within s.
func (s section) subs(name string) []section {
	list := s.sub(name)
	out := make([]section, len(list.v.list))
	for i, v := range list.v.list {
		out[i] = section{s.collector, s.schema, list.path, shownItem(list.shown, i, v), v}
	}
	return out
}

// has tells whether a key is written, even if it is bad.
func (s section) has(name string) bool {
	_, ok := s.v.table[name]
	return ok
}

// emptyList tells whether a list is written, and holds nothing.
func (s section) emptyList(name string) bool {
	v, ok := s.v.table[name]
	return ok && !v.bad && len(v.list) == 0
}

// written tells whether a list is there with something in it.
func (s section) written(name string) bool {
	v, ok := s.v.table[name]
	return ok && (v.bad || len(v.list) > 0)
}

// says tells whether a key is written with something else than its default.
func (s section) says(name string) bool {
	v, ok := s.v.table[name]
	if !ok || v.bad {
		return false
	}
	def := s.schema.defaults[join(s.path, name)]
	return def == nil || len(v.list) > 0 || len(v.table) > 0 || v.scalar != def.scalar
}

// bad tells whether something was wrong with a key, or in its list.
func (s section) bad(name string) bool {
	v, ok := s.v.table[name]
	return ok && (v.bad || slices.ContainsFunc(v.list, func(e *value) bool { return e.bad }))
}

// at is where a key is written, or would be.
func (s section) at(name string) place {
	if v, ok := s.v.table[name]; ok {
		return v.at
	}
	return s.v.at
}

// get gives the value or the default of a key; nil if it has neither.
func (s section) get(name string) *value {
	if v, ok := s.v.table[name]; ok && !v.bad {
		return v
	}
	path := join(s.path, name)
	if _, ok := s.schema.byPath[path]; !ok {
		panic("config: " + path + " is not in the schema")
	}
	return s.schema.defaults[path]
}

func scalar[T any](s section, name string) T {
	var none T
	if v := s.get(name); v != nil {
		return v.scalar.(T)
	}
	return none
}

func (s section) text(name string) string { return scalar[string](s, name) }

func (s section) flag(name string) bool { return scalar[bool](s, name) }

func (s section) integer(name string) int { return int(scalar[int64](s, name)) }

func (s section) duration(name string) time.Duration { return scalar[time.Duration](s, name) }

// share gives a percentage as a part of 1.
func (s section) share(name string) float64 { return float64(scalar[percent](s, name)) / 100 }

// elements gives the good elements of a list.
func (s section) elements(name string) []*value {
	v := s.get(name)
	if v == nil {
		return nil
	}
	var out []*value
	for _, e := range v.list {
		if !e.bad {
			out = append(out, e)
		}
	}
	return out
}

// fail complains about a key, or about an element of its list at e.
func (s section) fail(name, text, suggestion string) {
	s.add(Error, s.at(name), join(s.shown, name), text, suggestion)
}

func (s section) failAt(e *value, name, text, suggestion string) {
	s.add(Error, e.at, join(s.shown, name), text, suggestion)
}

func (s section) warn(severity Severity, name, text, suggestion string) {
	s.add(severity, s.at(name), join(s.shown, name), text, suggestion)
}
