package load

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/draft"
	"weir/lb"
)

// Effective is the values in effect: every key of every table that exists or has defaults,
// with the origin of its value.
type Effective struct {
	// File is the main file. Files are all files, the main one first.
	File   string    `json:"file"`
	Files  []string  `json:"files"`
	Tables []InForce `json:"tables"`
}

// InForce is one table of an Effective.
type InForce struct {
	// Path is the table's in the schema, Name its name in messages: service.web. Both are
	// empty for the keys above all tables.
	Path string `json:"path"`
	Name string `json:"name"`
	List bool   `json:"list,omitempty"` // of tables
	// File and Line are its position; empty if it is not written.
	File string    `json:"file,omitempty"`
	Line int       `json:"line,omitempty"`
	Keys []Setting `json:"keys"`
}

// Setting is a key with its value.
type Setting struct {
	Key string `json:"key"`
	// Value is a string, a number, a boolean, a list or a table of them, as in TOML. It is
	// nil if the key is not written and has no default.
	Value any `json:"value"`
	// File and Line are its position. A key that is not written has the default, or the
	// value of the key From.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	From string `json:"from,omitempty"`
}

// Written reports whether the key is in a file.
func (s Setting) Written() bool { return s.File != "" && s.From == "" }

// LoadEffective is File for the values in effect.
func LoadEffective(path string) (*Effective, error) {
	data, err := source.ReadMain(path)
	if err != nil {
		return nil, err
	}
	return Show(path, data, source.Outside{Files: source.Disk{}})
}

// Show returns the values in effect with the text of a file, like Parse.
func Show(name string, data []byte, files source.Files) (*Effective, error) {
	cfg, root, err := parseTree(name, data, files)
	if err != nil {
		return nil, err
	}
	w := walker{schema: Schema(), root: root}
	w.table("", "", false, root)
	return &Effective{File: name, Files: cfg.Files, Tables: w.out}, nil
}

// always are the tables that have an effect even if they are not written.
var always = []string{"kernel", "defaults", "daemon"}

// walker collects the values in effect, table by table in the order of the schema.
type walker struct {
	schema *schema.Schema
	root   *source.Value
	out    []InForce
}

func (w *walker) table(path, shown string, list bool, v *source.Value) {
	t := InForce{Path: path, Name: shown, List: list, File: v.At.File, Line: v.At.Line, Keys: []Setting{}}
	if v.Table == nil {
		t.File, t.Line = "", 0
	}
	var tables []schema.Key
	for _, k := range w.schema.Children(path) {
		name := k.Name()
		_, written := v.Table[name]
		switch {
		case k.Path == source.Include: // its files are already merged
		case k.Type == schema.Tables && written && len(v.Table[name].List) == 0:
			t.Keys = append(t.Keys, setting(k, v.Table[name])) // an empty list is a value
		case k.IsTable():
			tables = append(tables, k)
		default:
			t.Keys = append(t.Keys, w.key(k, v))
		}
	}
	if path != "" || len(t.Keys) > 0 {
		w.out = append(w.out, t)
	}
	for _, k := range tables {
		name := k.Name()
		sub, written := v.Table[name]
		if !written && slices.Contains(always, k.Path) {
			sub, written = &source.Value{}, true
		}
		switch {
		case !written:
		case k.Type == schema.Table:
			w.table(k.Path, source.Join(shown, name), false, sub)
		default:
			for i, e := range sub.List {
				w.table(k.Path, schema.ShownItem(source.Join(shown, name), i, e), true, e)
			}
		}
	}
}

// key returns a key of a table, written or not.
func (w *walker) key(k schema.Key, table *source.Value) Setting {
	name := k.Name()
	if v, ok := table.Table[name]; ok {
		return setting(k, v)
	}
	s := Setting{Key: name}
	if def := w.schema.Default(k.Path); def != nil {
		s.Value = plain(def, k)
	}
	if k.From != "" {
		w.inherited(&s, k, table)
	}
	return s
}

func setting(k schema.Key, v *source.Value) Setting {
	name := k.Name()
	return Setting{Key: name, Value: plain(v, k), File: v.At.File, Line: v.At.Line}
}

// inherited sets the value of [defaults]. Functions scheduler, schedulerFlags and drain of
// package serving have the same rules.
func (w *walker) inherited(s *Setting, k schema.Key, table *source.Value) {
	defaults := w.root.Table["defaults"]
	if defaults == nil {
		defaults = &source.Value{}
	}
	of := func(t *source.Value, name string) *source.Value {
		if v, ok := t.Table[name]; ok {
			return v
		}
		return w.schema.Default(source.Join("defaults", name))
	}
	own := cmp.Or(table.Table["scheduler"], of(defaults, "scheduler")).Scalar.(string)
	_, name := source.Split(k.From)
	up, written := defaults.Table[name]
	switch {
	case s.Key == "drain_timeout" && own == "dh":
		s.Value, s.From = "0s", "scheduler"
		return
	case s.Key == "scheduler_flags" && (!written || own != of(defaults, "scheduler").Scalar):
		s.Value = flagNames(lb.UsualFlags(own))
		return
	}
	s.From = k.From
	if written {
		s.Value, s.File, s.Line = plain(up, k), up.At.File, up.At.Line
	}
}

func flagNames(flags lb.SchedulerFlag) []any {
	out := []any{}
	if flags&lb.Fallback != 0 {
		out = append(out, "fallback")
	}
	if flags&lb.WithPort != 0 {
		out = append(out, "port")
	}
	return out
}

// plain returns a value as in TOML. Names of files become independent of their file.
func plain(v *source.Value, k schema.Key) any {
	switch x := v.Scalar.(type) {
	case nil:
	case time.Duration:
		return draft.Duration(x)
	case string:
		if x != "" && k.File && !strings.HasPrefix(x, source.CredentialMark) && !filepath.IsAbs(x) {
			return source.Beside(v.At.File, x)
		}
		return x
	default:
		if text, ok := schema.PercentText(x); ok {
			return text
		}
		return x
	}
	if v.Table != nil {
		out := map[string]any{}
		for name, e := range v.Table {
			out[name] = plain(e, k)
		}
		return out
	}
	out := make([]any, len(v.List))
	for i, e := range v.List {
		out[i] = plain(e, k)
	}
	return out
}
