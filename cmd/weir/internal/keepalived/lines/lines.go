// Package lines reads the lines of a configuration of keepalived that count for a box, from a file with
// its inclusions. It never interprets directives.
package lines

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Deepest limits the depth of inclusions, nested definitions and blocks: more is a mistake or an
// attack.
const Deepest = 16

// mostText limits a file with all that it includes and defines.
const mostText = 4 << 20

// Line is one that counts, with its place.
type Line struct {
	File   string
	Number int
	Text   string
	// Included means that the file is not the main one.
	Included bool
}

func (l Line) String() string { return fmt.Sprintf("%s:%d", l.File, l.Number) }

// Brief returns the position in short form.
func (l Line) Brief() string {
	if l.Included {
		return fmt.Sprintf("%s line %d", filepath.Base(l.File), l.Number)
	}
	return fmt.Sprintf("line %d", l.Number)
}

// reader splits files into lines: it removes comments, follows inclusions, selects
// conditional lines and expands definitions, in keepalived's order.
type reader struct {
	opts  Options
	defs  map[string]string
	lines []Line
	size  int
	// lost are the inclusions of files that do not exist.
	lost []Line
	errs []error
}

// Read returns the lines of a file, and the inclusions of files that do not exist.
func Read(name, text string, opts Options) (lines, lost []Line, err error) {
	if opts.ID == "" && selects(text, opts.Host) {
		opts.ID = opts.Host
	}
	r := &reader{opts: opts, defs: map[string]string{"_HASH": "#", "_BANG": "!", "_INSTANCE": opts.ID}}
	r.file(name, text, 0)
	return r.lines, r.lost, errors.Join(r.errs...)
}

// selects reports whether a file has lines for a box.
func selects(text, id string) bool {
	return id != "" && slices.ContainsFunc(strings.Fields(text), func(word string) bool { return word == "@"+id || word == "@^"+id })
}

func (r *reader) fail(at Line, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
}

func (r *reader) file(name, text string, depth int) {
	outer := r.defs["_PWD"]
	r.defs["_PWD"] = filepath.Dir(name)
	defer func() { r.defs["_PWD"] = outer }()
	var lines []Line
	number := 0
	for text := range strings.Lines(text) {
		number++
		lines = append(lines, Line{name, number, strings.TrimSpace(withoutComment(text)), depth > 0})
	}
	r.all(lines, depth)
}

// definition is a line that gives a parameter a value.
var definition = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

func (r *reader) all(lines []Line, depth int) {
	for i := 0; i < len(lines) && len(r.errs) == 0; i++ {
		l := lines[i]
		if r.size += len(l.Text) + 1; r.size > mostText || depth > Deepest {
			r.fail(l, "the file is too long with its inclusions and nested definitions")
			return
		}
		var ok bool
		if l, ok = r.chosen(l); !ok {
			continue
		}
		m := definition.FindStringSubmatch(l.Text)
		if m == nil {
			r.one(l, depth)
			continue
		}
		value := []string{m[2]}
		for strings.HasSuffix(value[len(value)-1], `\`) && i+1 < len(lines) {
			i++
			value[len(value)-1] = strings.TrimSuffix(value[len(value)-1], `\`)
			value = append(value, lines[i].Text)
		}
		r.defs[m[1]] = strings.TrimSpace(strings.Join(value, "\n"))
	}
}

// chosen removes the condition of a line, and reports whether it is true.
func (r *reader) chosen(l Line) (Line, bool) {
	for strings.HasPrefix(l.Text, "@") {
		word, rest, _ := strings.Cut(l.Text[1:], " ")
		if word, more, ok := strings.Cut(word, "\t"); ok {
			l.Text = "@" + word + " " + more + " " + rest
			continue
		}
		if r.opts.ID == "" {
			r.fail(l, "the line is for one box only (@%s): select the box with --config-id, as with keepalived -i", word)
			return l, false
		}
		not := strings.HasPrefix(word, "^")
		if (strings.TrimPrefix(word, "^") == r.opts.ID) == not {
			return l, false
		}
		l.Text = strings.TrimSpace(rest)
	}
	return l, l.Text != ""
}

// inclusion is a line that includes files; the letters select the errors to report.
var inclusion = regexp.MustCompile(`^include[rmwba]?\s+(.+)$`)

// one takes a line that is neither conditional nor a definition.
func (r *reader) one(l Line, depth int) {
	if m := inclusion.FindStringSubmatch(l.Text); m != nil {
		r.include(l, strings.Trim(m[1], `"'`), depth)
		return
	}
	if strings.HasPrefix(l.Text, "~SEQ") || strings.HasPrefix(l.Text, "~LST") {
		r.fail(l, "%s repeats the line, which weir does not support: expand it", l.Text[:4])
		return
	}
	text := r.replaced(l.Text)
	if text == l.Text {
		r.lines = append(r.lines, l)
		return
	}
	var lines []Line
	for text := range strings.SplitSeq(text, "\n") {
		lines = append(lines, Line{l.File, l.Number, strings.TrimSpace(text), l.Included})
	}
	r.all(lines, depth+1)
}

// parameter is a place for a definition: ${NAME}, or $NAME and then a space.
var parameter = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*(\s|$)`)

// replaced puts definitions in their places, once; what is not defined stays.
func (r *reader) replaced(text string) string {
	return parameter.ReplaceAllStringFunc(text, func(s string) string {
		name := strings.Trim(strings.TrimSpace(s[1:]), "{}")
		value, ok := r.defs[name]
		if !ok {
			return s
		}
		if strings.HasSuffix(s, "}") {
			return value
		}
		return value + " "
	})
}

func (r *reader) include(l Line, pattern string, depth int) {
	full := pattern
	if !filepath.IsAbs(full) {
		full = filepath.Join(filepath.Dir(l.File), full)
	}
	var names []string
	if r.opts.Files != nil {
		var err error
		if names, err = r.opts.Files.Glob(full); err != nil && !errors.Is(err, filepath.ErrBadPattern) { // that one matches nothing
			r.fail(l, "include: %w", err)
			return
		}
	}
	if len(names) == 0 {
		r.lost = append(r.lost, Line{l.File, l.Number, pattern, l.Included})
		return
	}
	for _, name := range names {
		text, err := r.opts.Files.ReadFile(name)
		if err != nil {
			r.fail(l, "include: %w", err)
			continue
		}
		r.file(name, string(text), depth+1)
	}
}

// withoutComment cuts a line at "#" or "!", unless it is quoted.
func withoutComment(text string) string {
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '#' || c == '!':
			return text[:i]
		}
	}
	return text
}

// Files gives access to included files; source.Disk is the file system.
type Files interface {
	// Glob returns the names that match a pattern of filepath.Match.
	Glob(pattern string) ([]string, error)
	ReadFile(name string) ([]byte, error)
}

// Options select the lines of a box.
type Options struct {
	// ID is keepalived's config-id (its -i), which selects the lines that begin with "@".
	// The default is Host, if the file has lines for it. Other files with such lines need it.
	ID string
	// Host is the name of this host without its domain, which is keepalived's default.
	Host string
	// Files has the included files; nil means none.
	Files Files
}
