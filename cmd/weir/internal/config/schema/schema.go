package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
)

// Key is one key of the file, or one table.
type Key struct {
	// Path is the key with its tables, without the positions in lists:
	// "service.backend.weight".
	Path string
	// To receives the value, or the default: a pointer to a string (of any type), bool,
	// int, unsigned integer, duration, float64 (a percentage), list of strings, Prefixes or
	// map. It may be nil for tables and for values with a reader of their own; these need
	// a Type. The type of others follows from it.
	To   any
	Type Type
	// Unit of the value, empty for values without one.
	Unit string
	// Default as it is written in TOML. Empty means none; unless the key is Required, Doc
	// then explains a missing key.
	Default  string
	Required bool
	// Example is for keys without a default, as it is written in TOML.
	Example string
	// Restart means that a change needs a restart.
	Restart bool
	// Values are the only permitted ones, for a closed set. For a Duration they are words
	// that are permitted in its place.
	Values []string
	// Check returns the fault of a string (in lists of each) or of a duration.
	Check func(value any) *source.Fault
	// From is the key with the default.
	From string
	// Min and Max are the limits of numbers, and of durations in nanoseconds. Both zero
	// means no limit.
	Min, Max int64
	// File means that the value is the name of a file, relative to the one it is in.
	File bool
	// Doc is the documentation.
	Doc string
}

// Type is the type of a key's value, in words.
type Type string

// The types.
const (
	Table    Type = "table"
	Tables   Type = "list of tables"
	Text     Type = "string"
	Bool     Type = "boolean"
	Integer  Type = "integer"
	Duration Type = "duration"   // a string with units: "1m30s"
	Percent  Type = "percentage" // a string: "10%"
	Texts    Type = "list of strings"
	// Mixed has numbers and ranges, for instance: [200, "300-399"].
	Mixed       Type = "list of strings and integers"
	TextOrTexts Type = "string or list of strings"
	// Map has names of the operator's choice: labels = {tier = "gold"}, or a table.
	Map Type = "table of strings"
)

// Units of limits.
const (
	Millisecond = int64(time.Millisecond)
	Second      = int64(time.Second)
	Hour        = int64(time.Hour)
)

// Limits returns the limits in words, "" for none.
func (k Key) Limits() string {
	switch {
	case k.Min == 0 && k.Max == 0:
		return ""
	case k.Type == Duration:
		return draft.Duration(time.Duration(k.Min)) + " to " + draft.Duration(time.Duration(k.Max))
	}
	form := "%d to %d"
	if k.Type == Percent {
		form = "%d%% to %d%%"
	}
	return fmt.Sprintf(form, k.Min, k.Max)
}

// Name returns the key without its tables.
func (k Key) Name() string {
	_, name := source.Split(k.Path)
	return name
}

// IsTable reports whether the key is a table or a list of tables.
func (k Key) IsTable() bool { return k.Type == Table || k.Type == Tables }

// Header returns a table's header in the file.
func (k Key) Header() string {
	if k.Type == Tables {
		return "[[" + k.Path + "]]"
	}
	return "[" + k.Path + "]"
}

// Schema is all keys of the file.
type Schema struct {
	keys []Key
	// byPath has the keys, children the names in each table, in order.
	byPath   map[string]*Key
	children map[string][]string
	// defaults are the values of Default.
	defaults map[string]*source.Value
}

// New returns the schema of keys: tables before the keys in them, in the order of the
// reference. An invalid default panics.
func New(keys []Key) *Schema {
	s := &Schema{
		keys: slices.Clone(keys), byPath: map[string]*Key{},
		children: map[string][]string{}, defaults: map[string]*source.Value{},
	}
	for i := range s.keys {
		k := &s.keys[i]
		if k.From != "" {
			k.Default = s.byPath[k.From].Default
		}
		if k.Type == "" {
			k.Type = typeOf(k)
		}
		if k.Type == Duration {
			k.Unit = "ms, s, m, h"
		}
		s.byPath[k.Path] = k
		table, name := source.Split(k.Path)
		s.children[table] = append(s.children[table], name)
		if k.Default != "" {
			s.defaults[k.Path] = s.parseDefault(*k)
		}
	}
	return s
}

func (s *Schema) parseDefault(k Key) *source.Value {
	var doc struct{ V any }
	if err := toml.Unmarshal([]byte("V = "+k.Default), &doc); err != nil {
		panic("schema: default of " + k.Path + ": " + err.Error())
	}
	v := valueOf(doc.V)
	var problems source.Problems
	checker{s, &problems}.value(k, k.Path, v)
	if len(problems.All) > 0 {
		panic("schema: default of " + problems.All[0].String())
	}
	return v
}

// valueOf returns decoded data as a value.
func valueOf(data any) *source.Value {
	switch d := data.(type) {
	case []any:
		v := &source.Value{List: []*source.Value{}}
		for _, e := range d {
			v.List = append(v.List, valueOf(e))
		}
		return v
	case map[string]any:
		v := &source.Value{Table: map[string]*source.Value{}}
		for name, e := range d {
			v.Table[name] = valueOf(e)
		}
		return v
	}
	return &source.Value{Scalar: data}
}

// Keys returns all keys, in order.
func (s *Schema) Keys() []Key { return slices.Clone(s.keys) }

// Key returns a key by its path.
func (s *Schema) Key(path string) (Key, bool) {
	k, ok := s.byPath[path]
	if !ok {
		return Key{}, false
	}
	return *k, true
}

// Children returns the keys in a table, in order.
func (s *Schema) Children(path string) []Key {
	var out []Key
	for _, name := range s.children[path] {
		out = append(out, *s.byPath[source.Join(path, name)])
	}
	return out
}

// Default returns the default of a key, nil for none.
func (s *Schema) Default(path string) *source.Value { return s.defaults[path] }

// Check checks all values of a tree.
func (s *Schema) Check(root *source.Value, problems *source.Problems) {
	checker{s, problems}.table("", "", root)
}

// Top returns the top table of a tree, after Check.
func (s *Schema) Top(root *source.Value, problems *source.Problems) Section {
	return Section{problems, s, "", "", root}
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}
