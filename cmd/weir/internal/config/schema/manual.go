package schema

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
)

// Manual is the documentation of a key, of a table with its keys, or of all tables.
type Manual struct {
	// Of is the key or table itself; nil for all tables.
	Of *ManualKey `json:"of,omitempty"`
	// Keys are those of the table and the tables in it, or all tables, in the order of
	// the reference.
	Keys []ManualKey `json:"keys"`
}

// ManualKey is one key or table.
type ManualKey struct {
	Key  string `json:"key"`
	Type Type   `json:"type"` // of its value
	// Unit is that of numbers, Limits the least and the greatest value, in words.
	Unit   string `json:"unit,omitempty"`
	Limits string `json:"limits,omitempty"`
	// Default and Example are as they are written in TOML. For a key that has no default
	// and is not required, Doc explains a missing key.
	Default  string   `json:"default,omitempty"`
	Example  string   `json:"example,omitempty"`
	Values   []string `json:"values,omitempty"`   // the only permitted ones, for a closed set
	Required bool     `json:"required,omitempty"` // it can't be left out
	// Restart means that a change needs a restart.
	Restart bool   `json:"restart,omitempty"`
	Doc     string `json:"doc"` // its effect
}

// Explain returns the documentation of a key or a table, by its path or its name in
// messages (service.web.backend[2].weight), and of all tables for "". The error for an
// unknown name suggests a known one.
func (s *Schema) Explain(name string) (Manual, error) {
	if name == "" {
		var m Manual
		for _, k := range s.keys {
			if k.IsTable() || k.Path == "include" {
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
		m.Keys = append(m.Keys, manualKey(*s.byPath[source.Join(k.Path, child)]))
	}
	return m, nil
}

// Names returns all names that Explain accepts, in the order of the reference.
func (s *Schema) Names() []string {
	var out []string
	for _, k := range s.keys {
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

var inBrackets = regexp.MustCompile(`\[\d+\]`)

// pathOf returns the path of a key by its name in messages: without brackets, and without
// the names of tables in lists.
func (s *Schema) pathOf(name string) string {
	name = strings.Trim(inBrackets.ReplaceAllString(strings.TrimSpace(name), ""), "[]")
	path := ""
	parts := strings.Split(name, ".")
	for i, part := range parts {
		k := s.byPath[path]
		if k != nil && k.Type == Tables && i < len(parts)-1 && !slices.Contains(s.children[path], part) {
			continue
		}
		path = source.Join(path, part)
	}
	return path
}

// unknownKey returns the error for an unknown name.
func (s *Schema) unknownKey(name string) error {
	var same, begins []string
	for _, k := range s.keys {
		if _, own := source.Split(k.Path); own == snake(name) {
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
		return fmt.Errorf("there is no key %q; keys that begin like it: %s", name, strings.Join(begins, ", "))
	}
	table, last := source.Split(s.pathOf(name))
	if s.byPath[table] == nil {
		table, last = "", name
	}
	if near, ok := nearest(last, s.children[table]); ok {
		return fmt.Errorf("there is no key %q; did you mean %s?", name, source.Join(table, near))
	}
	if word, tables := s.elsewhere(table, func(n string) bool { _, ok := nearest(last, []string{n}); return ok }); len(tables) > 0 {
		return fmt.Errorf("there is no key %q; %s is in %s", name, word, strings.Join(tables, " and "))
	}
	return fmt.Errorf("there is no key %q; weir config explain lists all tables", name)
}

// Table writes the documentation as text.
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

// header returns the header of a table, and the path of a key.
func (k ManualKey) header() string {
	if key := (Key{Path: k.Key, Type: k.Type}); key.IsTable() {
		return key.Header()
	}
	return k.Key
}

func (k ManualKey) write(w io.Writer, indent string) {
	fmt.Fprintf(w, "%s%s  <%s>\n", indent, k.header(), k.Type)
	facts := k.facts()
	if len(facts) > 0 {
		fmt.Fprintf(w, "%s    %s\n", indent, strings.Join(facts, "; "))
	}
	for _, line := range draft.Wrap(k.Doc, 92-len(indent)) {
		fmt.Fprintf(w, "%s    %s\n", indent, line)
	}
}

// facts returns the facts about a key besides its documentation.
func (k ManualKey) facts() []string {
	var out []string
	add := func(label, text string) {
		if text != "" {
			out = append(out, label+text)
		}
	}
	if k.Required {
		out = append(out, "required")
	}
	add("default: ", k.Default)
	add("range: ", k.Limits)
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
