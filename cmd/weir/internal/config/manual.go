package config

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Manual is what there is to know of a key, of a table with its keys, or, without a
// name, of all tables.
type Manual struct {
	// Of is the key or table itself; nil if all tables are told.
	Of *ManualKey `json:"of,omitempty"`
	// Keys are those of the table and the tables in it, or all tables, in the order of
	// the reference.
	Keys []ManualKey `json:"keys"`
}

// ManualKey is one key or table.
type ManualKey struct {
	Key  string `json:"key"`
	Type Type   `json:"type"` // what its value is
	// Unit is that of numbers, Limits the least and the greatest value, in words.
	Unit   string `json:"unit,omitempty"`
	Limits string `json:"limits,omitempty"`
	// Default and Example are as they are written in TOML; a key that has neither a default
	// nor is required may be left out, and Doc says what that means.
	Default  string   `json:"default,omitempty"`
	Example  string   `json:"example,omitempty"`
	Values   []string `json:"values,omitempty"`   // all that may be written, where that is a closed set
	Required bool     `json:"required,omitempty"` // it can't be left out
	// Restart says that a reload does not bring a change into effect.
	Restart bool   `json:"restart,omitempty"`
	Doc     string `json:"doc"` // what it does
}

// Explain tells of a key or a table, by its path or as messages name it
// (service.web.backend[2].weight); of "" all tables. An error says what may have been
// meant.
func Explain(name string) (Manual, error) {
	s := compiled()
	if name == "" {
		var m Manual
		for _, k := range s.keys {
			if k.isTable() || k.Path == "include" {
				m.Keys = append(m.Keys, manualKey(k))
			}
		}
		return m, nil
	}
	k := s.byPath[s.pathOf(name)]
	if k == nil {
		return Manual{}, s.unknownKey(name)
	}
	of := manualKey(*k)
	m := Manual{Of: &of, Keys: []ManualKey{}}
	for _, child := range s.children[k.Path] {
		m.Keys = append(m.Keys, manualKey(*s.byPath[join(k.Path, child)]))
	}
	return m, nil
}

// KeyNames are all that Explain knows, in the order of the reference.
func KeyNames() []string {
	var out []string
	for _, k := range compiled().keys {
		out = append(out, k.Path)
	}
	return out
}

func manualKey(k Key) ManualKey {
	return ManualKey{
		Key: k.Path, Type: k.Type, Unit: k.Unit, Limits: k.Limits(), Default: k.Default, Example: k.Example,
		Values: k.Values, Required: k.Required, Restart: k.Restart, Doc: k.Doc,
	}
}

func (k Key) isTable() bool { return k.Type == Table || k.Type == Tables }

var inBrackets = regexp.MustCompile(`\[\d+\]`)

// pathOf makes the path of a key of the name by which users know it: without
// brackets, and without what a table of a list is called.
func (s *schema) pathOf(name string) string {
	name = strings.Trim(inBrackets.ReplaceAllString(strings.TrimSpace(name), ""), "[]")
	path := ""
	parts := strings.Split(name, ".")
	for i, part := range parts {
		k := s.byPath[path]
		if k != nil && k.Type == Tables && i < len(parts)-1 && !slices.Contains(s.children[path], part) {
			continue
		}
		path = join(path, part)
	}
	return path
}

// unknownKey says what somebody may have meant.
func (s *schema) unknownKey(name string) error {
	var same, begins []string
	for _, k := range s.keys {
		if _, own := split(k.Path); own == snake(name) {
			same = append(same, k.Path)
		}
		if strings.HasPrefix(k.Path, snake(name)) {
			begins = append(begins, k.Path)
		}
	}
	switch {
	case len(same) == 1:
		return fmt.Errorf("there is no key %q; did you mean %s?", name, same[0])
	case len(same) > 1:
		return fmt.Errorf("%q is in several tables: %s", name, strings.Join(same, ", "))
	case len(begins) > 0:
		return fmt.Errorf("there is no key %q; these begin like it: %s", name, strings.Join(begins, ", "))
	}
	table, last := split(s.pathOf(name))
	if s.byPath[table] == nil {
		table, last = "", name
	}
	if near, ok := nearest(last, s.children[table]); ok {
		return fmt.Errorf("there is no key %q; did you mean %s?", name, join(table, near))
	}
	if word, tables := s.elsewhere(table, func(n string) bool { _, ok := nearest(last, []string{n}); return ok }); len(tables) > 0 {
		return fmt.Errorf("there is no key %q; %s is in %s", name, word, strings.Join(tables, " and "))
	}
	return fmt.Errorf("there is no key %q; weir config explain has all tables", name)
}

// Table writes the manual for people.
func (m Manual) Table(w io.Writer, _ time.Time) {
	if m.Of == nil {
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, k := range m.Keys {
			fmt.Fprintf(tw, "%s\t%s\n", k.header(), firstSentence(k.Doc))
		}
		tw.Flush()
		fmt.Fprintln(w, "\nThe keys of a table: weir config explain TABLE; of one: weir config explain TABLE.KEY.")
		return
	}
	m.Of.write(w, "")
	for _, k := range m.Keys {
		fmt.Fprintln(w)
		k.write(w, "  ")
	}
}

// header names a table as it stands in the file, and a key by its path.
func (k ManualKey) header() string {
	if key := (Key{Path: k.Key, Type: k.Type}); key.isTable() {
		return key.header()
	}
	return k.Key
}

func (k ManualKey) write(w io.Writer, indent string) {
	fmt.Fprintf(w, "%s%s  <%s>\n", indent, k.header(), k.Type)
	facts := k.facts()
	if len(facts) > 0 {
		fmt.Fprintf(w, "%s    %s\n", indent, strings.Join(facts, "; "))
	}
	for _, line := range wrapped(k.Doc, 92-len(indent)) {
		fmt.Fprintf(w, "%s    %s\n", indent, line)
	}
}

// facts are what is to be known of a key beside its meaning, in a line.
func (k ManualKey) facts() []string {
	var out []string
	add := func(what, text string) {
		if text != "" {
			out = append(out, what+text)
		}
	}
	if k.Required {
		out = append(out, "required")
	}
	add("default: ", k.Default)
	add("from ", k.Limits)
	add("unit: ", k.Unit)
	add("values: ", strings.Join(k.Values, ", "))
	if k.Default == "" || k.Default == "{}" {
		add("example: ", k.Example)
	}
	if k.Restart {
		out = append(out, "a change needs a restart")
	}
	return out
}

func firstSentence(doc string) string {
	if i := strings.Index(doc, ". "); i > 0 {
		return doc[:i+1]
	}
	return doc
}

// wrapped breaks text into lines of at most so many bytes, where words allow.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
