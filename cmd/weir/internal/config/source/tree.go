package source

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Place is a position in a file.
type Place struct {
	File string
	Line int
}

func (p Place) String() string { return p.File + ":" + strconv.Itoa(p.Line) }

// Value is a value of the file with its position: a table, a list or a scalar.
type Value struct {
	At     Place
	Table  map[string]*Value // of a table
	List   []*Value          // of a list, nil for others
	Scalar any               // of a scalar: string, int64, float64, bool, time.Time
	// Bad marks a value with a reported problem. It is not missing, but must not be used.
	Bad bool
}

// Names returns the keys of a table, sorted.
func (v *Value) Names() []string { return slices.Sorted(maps.Keys(v.Table)) }

// merge adds a table of another file to v. Tables become one, lists of tables one list;
// any other key in both is a conflict.
func (v *Value) merge(other *Value, path string, conflict func(key string, first, second *Value)) {
	for _, name := range other.Names() {
		theirs := other.Table[name]
		ours, both := v.Table[name]
		key := Join(path, name)
		switch {
		case !both:
			v.Table[name] = theirs
		case ours.Table != nil && theirs.Table != nil:
			ours.merge(theirs, key, conflict)
		case ours.IsTables() && theirs.IsTables():
			ours.List = append(ours.List, theirs.List...)
		default:
			conflict(key, ours, theirs)
		}
	}
}

// IsTables reports whether v is a list of only tables, at least one.
func (v *Value) IsTables() bool {
	return len(v.List) > 0 && !slices.ContainsFunc(v.List, func(e *Value) bool { return e.Table == nil })
}

// String returns the value as it is written in TOML.
func (v *Value) String() string {
	switch x := v.Scalar.(type) {
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
		if v.Table != nil {
			return "a table"
		}
		return "a list"
	default:
		return fmt.Sprint(x)
	}
}

// Join returns the path of a name in a table.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Split returns the table and the name of a path.
func Split(path string) (table, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
