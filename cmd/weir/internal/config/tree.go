package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// place is where something is written.
type place struct {
	file string
	line int
}

func (p place) String() string { return p.file + ":" + strconv.Itoa(p.line) }

// value is a value of the file with its place: a table, a list or a scalar.
type value struct {
	at     place
	table  map[string]*value // of a table
	list   []*value          // of a list, nil for others
	scalar any               // of a scalar: string, int64, float64, bool, time.Time
	// bad marks a value that has had its complaint: it is written, so it is not
	// missing, but nobody reads it.
	bad bool
}

// build puts the data of a file and the places of its parts together.
func build(data any, file string, s *spot) *value {
	v := &value{at: place{file, s.line}}
	switch d := data.(type) {
	case map[string]any:
		v.table = make(map[string]*value, len(d))
		for name, x := range d {
			v.table[name] = build(x, file, s.find(name))
		}
		for name, k := range s.keys {
			if _, ok := d[name]; !ok && k.broken {
				v.table[name] = &value{at: place{file, k.line}, bad: true}
			}
		}
	case []map[string]any:
		v.list = make([]*value, len(d))
		for i, x := range d {
			v.list[i] = build(x, file, s.nth(i))
		}
	case []any:
		v.list = make([]*value, len(d))
		for i, x := range d {
			v.list[i] = build(x, file, s.nth(i))
		}
	default:
		v.scalar = d
	}
	return v
}

// find and nth give the place of a part, and that of the whole where the scanner
// has missed it.
func (s *spot) find(name string) *spot {
	if k, ok := s.keys[name]; ok {
		return k
	}
	return &spot{line: s.line}
}

func (s *spot) nth(i int) *spot {
	if i < len(s.items) {
		return s.items[i]
	}
	return &spot{line: s.line}
}

// names gives the keys of a table, sorted.
func (v *value) names() []string { return slices.Sorted(maps.Keys(v.table)) }

// merge adds a table of another file to v. Tables become one, lists of tables
// one list; whatever else is in both is a clash.
func (v *value) merge(other *value, path string, clash func(key string, first, second *value)) {
	for _, name := range other.names() {
		theirs := other.table[name]
		ours, both := v.table[name]
		key := join(path, name)
		switch {
		case !both:
			v.table[name] = theirs
		case ours.table != nil && theirs.table != nil:
			ours.merge(theirs, key, clash)
		case ours.tables() && theirs.tables():
			ours.list = append(ours.list, theirs.list...)
		default:
			clash(key, ours, theirs)
		}
	}
}

// tables tells whether v is a list of nothing but tables.
func (v *value) tables() bool {
	return len(v.list) > 0 && !slices.ContainsFunc(v.list, func(e *value) bool { return e.table == nil })
}

// String shows a value in a message, as it is written in TOML.
func (v *value) String() string {
	switch x := v.scalar.(type) {
	case string:
		return strconv.Quote(x)
	case float64:
		s := strconv.FormatFloat(x, 'g', -1, 64)
		if x == math.Trunc(x) && !strings.ContainsAny(s, ".eIN") {
			s += ".0" // or it would look like an integer
		}
		return s
	case time.Time:
		return "a date or time"
	case nil:
		if v.table != nil {
			return "a table"
		}
		return "a list"
	default:
		return fmt.Sprint(x)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
