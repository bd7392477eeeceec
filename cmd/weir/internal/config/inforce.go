package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// Effective is a configuration as it is in force: every key of every table that counts,
// with its value and where that comes from.
type Effective struct {
	// File is the main file; Files are all, it first.
	File   string    `json:"file"`
	Files  []string  `json:"files"`
	Tables []InForce `json:"tables"`
}

// InForce is one table of an Effective.
type InForce struct {
	// Path is the table's in the schema, Name is what users know it as: service.web.
	// Both are empty for the keys above all tables.
	Path string `json:"path"`
	Name string `json:"name"`
	List bool   `json:"list,omitempty"` // of tables
	// File and Line are where it begins; empty if it is written nowhere.
	File string    `json:"file,omitempty"`
	Line int       `json:"line,omitempty"`
	Keys []Setting `json:"keys"`
}

// Setting is a key with its value.
type Setting struct {
	Key string `json:"key"`
	// Value is a string, a number, a boolean, a list or a table of them, as they would be
	// written; nil if the key is not written and has no default.
	Value any `json:"value"`
	// File and Line are where it is written. What is written nowhere has the default, or
	// what From, another key, says.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	From string `json:"from,omitempty"`
}

// Written tells whether the file says it.
func (s Setting) Written() bool { return s.File != "" && s.From == "" }

// LoadEffective is Load for what a file says.
func LoadEffective(path string) (*Effective, error) {
	data, err := readMain(path)
	if err != nil {
		return nil, err
	}
	return Show(path, data, outside{Disk{}})
}

// Show gives what is in force with the text of a file, which is named as in Parse.
func Show(name string, data []byte, files Files) (*Effective, error) {
	cfg, root, err := parseFiles(name, data, files)
	if err != nil {
		return nil, err
	}
	w := walker{schema: compiled(), root: root}
	w.table("", "", false, root)
	return &Effective{File: name, Files: cfg.Files, Tables: w.out}, nil
}

// Effective is Show of a copy.
func (c *Copy) Effective() (*Effective, error) { return Show(c.Name, c.Files[c.Name], c) }

// always are the tables that count even if they are written nowhere; all others
// bring something about by being there.
var always = []string{"kernel", "defaults", "daemon"}

// fileKeys hold names of files, which are relative to the file that they stand in.
var fileKeys = []string{"service.check.ca_file", "kubernetes.kubeconfig", "bgp.peer.password_file", "cluster.keys"}

// walker gathers what is in force, table by table in the order of the schema.
type walker struct {
	schema *schema
	root   *value
	out    []InForce
}

func (w *walker) table(path, shown string, list bool, v *value) {
	t := InForce{Path: path, Name: shown, List: list, File: v.at.file, Line: v.at.line, Keys: []Setting{}}
	if v.table == nil {
		t.File, t.Line = "", 0
	}
	var tables []Key
	for _, name := range w.schema.children[path] {
		k := *w.schema.byPath[join(path, name)]
		_, written := v.table[name]
		switch {
		case k.Path == "include": // its files are in here already
		case k.Type == Tables && written && len(v.table[name].list) == 0:
			t.Keys = append(t.Keys, setting(k, v.table[name])) // an empty list says something
		case k.Type == Table || k.Type == Tables:
			tables = append(tables, k)
		default:
			t.Keys = append(t.Keys, w.key(k, v))
		}
	}
	if path != "" || len(t.Keys) > 0 {
		w.out = append(w.out, t)
	}
	for _, k := range tables {
		_, name := split(k.Path)
		sub, written := v.table[name]
		if !written && slices.Contains(always, k.Path) {
			sub, written = &value{}, true
		}
		switch {
		case !written:
		case k.Type == Table:
			w.table(k.Path, join(shown, name), false, sub)
		default:
			for i, e := range sub.list {
				w.table(k.Path, shownItem(join(shown, name), i, e), true, e)
			}
		}
	}
}

// key gives a key of a table, written or not.
func (w *walker) key(k Key, table *value) Setting {
	_, name := split(k.Path)
	if v, ok := table.table[name]; ok {
		return setting(k, v)
	}
	s := Setting{Key: name}
	if def := w.schema.defaults[k.Path]; def != nil {
		s.Value = def.plain(k)
	}
	if k.from != "" {
		w.inherited(&s, k, table)
	}
	return s
}

func setting(k Key, v *value) Setting {
	_, name := split(k.Path)
	return Setting{Key: name, Value: v.plain(k), File: v.at.file, Line: v.at.line}
}

// inherited gives what [defaults] says, where the table does not; section.scheduler,
// schedulerFlags and drain have the rules.
func (w *walker) inherited(s *Setting, k Key, table *value) {
	defaults := w.root.table["defaults"]
	if defaults == nil {
		defaults = &value{}
	}
	of := func(t *value, name string) *value {
		if v, ok := t.table[name]; ok {
			return v
		}
		return w.schema.defaults[join("defaults", name)]
	}
	own := cmp.Or(table.table["scheduler"], of(defaults, "scheduler")).scalar.(string)
	_, name := split(k.from)
	up, written := defaults.table[name]
	switch {
	case s.Key == "drain" && own == "dh":
		s.Value, s.From = "0s", "scheduler"
		return
	case s.Key == "scheduler_flags" && (!written || own != of(defaults, "scheduler").scalar):
		s.Value = flagNames(lb.UsualFlags(own))
		return
	}
	s.From = k.from
	if written {
		s.Value, s.File, s.Line = up.plain(k), up.at.file, up.at.line
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

// plain gives a value as it would be written, with names of files that any file can
// have.
func (v *value) plain(k Key) any {
	switch x := v.scalar.(type) {
	case nil:
	case time.Duration:
		return short(x)
	case percent:
		return percentText(x)
	case string:
		if x != "" && slices.Contains(fileKeys, k.Path) && !strings.HasPrefix(x, credentialMark) && !filepath.IsAbs(x) {
			return beside(v.at.file, x)
		}
		return x
	default:
		return x
	}
	if v.table != nil {
		out := map[string]any{}
		for name, e := range v.table {
			out[name] = e.plain(k)
		}
		return out
	}
	out := make([]any, len(v.list))
	for i, e := range v.list {
		out[i] = e.plain(k)
	}
	return out
}
