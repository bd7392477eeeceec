package config

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// The TOML library tells no lines for values. So the text is scanned a second
// time, for nothing but where its keys and values stand. The scanner leans on
// the library for what is valid: of an invalid text it makes what it can.

// spot is where a key, or an element of a list, stands; it has the shape of the
// document.
type spot struct {
	line  int
	keys  map[string]*spot
	items []*spot
	// broken marks a value that is written but can't be read (syntax.go).
	broken bool
}

func (s *spot) key(name string, line int) *spot {
	if s.keys == nil {
		s.keys = map[string]*spot{}
	}
	k, ok := s.keys[name]
	if !ok {
		k = &spot{line: line}
		s.keys[name] = k
	}
	return k
}

func (s *spot) item(line int) *spot {
	i := &spot{line: line}
	s.items = append(s.items, i)
	return i
}

// last is the table that a header's name leads into: of a list of tables, the
// one that was opened last.
func (s *spot) last() *spot {
	if len(s.items) > 0 {
		return s.items[len(s.items)-1]
	}
	return s
}

// statement is a table's header, or a key with its value.
type statement struct {
	start, value, end int // offsets; value is where the value begins
	line              int
	path              []string // of the key, from the root
	header            bool
	spot              *spot
}

// maxDepth bounds how deep values may be nested: nothing of ours goes deeper
// than three.
const maxDepth = 64

type scanner struct {
	src        string
	pos, line  int
	statements []statement
}

// scan finds the places of everything in src. Of statements that are known to be
// broken, ends tells by the offset of their start where they end.
func scan(src string, ends map[int]int) (*spot, []statement) {
	s := &scanner{src: src, line: 1}
	root := &spot{line: 1}
	table, path := root, []string(nil)
	for s.skipBlank(); !s.done(); s.skipBlank() {
		st := statement{start: s.pos, line: s.line}
		if s.peek() == '[' {
			st.header = true
			table, path = s.header(root)
			st.spot, st.path = table, path
		} else {
			names := s.path()
			st.path = append(path[:len(path):len(path)], names...)
			st.spot = table
			for _, name := range names {
				st.spot = st.spot.key(name, st.line)
			}
			s.equals()
			st.value = s.pos
			s.statementValue(st, ends)
		}
		s.skipLine()
		st.end = s.pos
		s.statements = append(s.statements, st)
	}
	return root, s.statements
}

func (s *scanner) statementValue(st statement, ends map[int]int) {
	end, broken := ends[st.start]
	if !broken {
		s.val(st.spot, 0)
		return
	}
	st.spot.broken = true
	s.advance(end - s.pos)
}

func (s *scanner) done() bool { return s.pos >= len(s.src) }

// peek gives the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.done() {
		return 0
	}
	return s.src[s.pos]
}

func (s *scanner) rest() string { return s.src[s.pos:] }

// advance goes n bytes on and counts the lines.
func (s *scanner) advance(n int) {
	n = min(n, len(s.src)-s.pos)
	s.line += strings.Count(s.src[s.pos:s.pos+n], "\n")
	s.pos += n
}

func (s *scanner) skipSpace() {
	for c := s.peek(); c == ' ' || c == '\t'; c = s.peek() {
		s.pos++
	}
}

// skipLine goes to the end of the line, but not over it.
func (s *scanner) skipLine() {
	if i := strings.IndexByte(s.rest(), '\n'); i >= 0 {
		s.pos += i
		return
	}
	s.pos = len(s.src)
}

// skipBlank skips space, line ends and comments.
func (s *scanner) skipBlank() {
	for !s.done() {
		switch s.peek() {
		case ' ', '\t', '\r', '\n':
			s.advance(1)
		case '#':
			s.skipLine()
		default:
			return
		}
	}
}

// header reads [a.b] or [[a.b]] and gives the table that it opens.
func (s *scanner) header(root *spot) (*spot, []string) {
	line := s.line
	s.pos++
	list := s.peek() == '['
	if list {
		s.pos++
	}
	path := s.path()
	at := root
	for i, name := range path {
		at = at.key(name, line)
		if i < len(path)-1 {
			at = at.last()
		}
	}
	if list {
		at = at.item(line)
	}
	return at, path
}

// path reads a dotted key and the space after it.
func (s *scanner) path() []string {
	var names []string
	for {
		s.skipSpace()
		names = append(names, s.name())
		s.skipSpace()
		if s.peek() != '.' {
			return names
		}
		s.pos++
	}
}

// name reads one part of a key.
func (s *scanner) name() string {
	start := s.pos
	if c := s.peek(); c == '"' || c == '\'' {
		s.shortString(c)
		return unquote(s.src[start:s.pos])
	}
	for isBare(s.peek()) {
		s.pos++
	}
	return s.src[start:s.pos]
}

// isBare tells whether a key may have c without quotes.
func isBare(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// unquote leaves the rules of escapes to the library.
func unquote(quoted string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &v); err != nil {
		return quoted
	}
	return v.K
}

// shortString skips a string that ends on its line.
func (s *scanner) shortString(quote byte) {
	for s.pos++; !s.done(); s.pos++ {
		switch c := s.peek(); {
		case c == quote:
			s.pos++
			return
		case c == '\n':
			return
		case c == '\\' && quote == '"' && s.pos+1 < len(s.src) && s.src[s.pos+1] != '\n':
			s.pos++
		}
	}
}

// longString skips a string in triple quotes, which may have up to two more
// quotes before those that end it.
func (s *scanner) longString(quote byte) {
	end := strings.Repeat(string(quote), 3)
	for s.advance(3); !s.done(); s.advance(1) {
		switch {
		case s.peek() == '\\' && quote == '"':
			s.advance(1)
		case strings.HasPrefix(s.rest(), end):
			s.pos += len(end)
			for i := 0; i < 2 && s.peek() == quote; i++ {
				s.pos++
			}
			return
		}
	}
}

func (s *scanner) equals() {
	if s.peek() == '=' {
		s.pos++
	}
	s.skipSpace()
}

// val reads a value: at is the key or element that has it.
func (s *scanner) val(at *spot, depth int) {
	c := s.peek()
	switch {
	case strings.HasPrefix(s.rest(), `"""`), strings.HasPrefix(s.rest(), `'''`):
		s.longString(c)
	case c == '"', c == '\'':
		s.shortString(c)
	case c == '[' && depth < maxDepth:
		s.list(at, depth)
	case c == '{' && depth < maxDepth:
		s.inline(at, depth)
	default:
		for !s.done() && !strings.ContainsRune(",]}#\n", rune(s.peek())) {
			s.pos++
		}
	}
}

func (s *scanner) list(at *spot, depth int) {
	s.pos++
	for s.skipBlank(); !s.done(); s.skipBlank() {
		switch s.peek() {
		case ']':
			s.pos++
			return
		case ',', '}':
			s.pos++
		default:
			s.val(at.item(s.line), depth+1)
		}
	}
}

func (s *scanner) inline(at *spot, depth int) {
	s.pos++
	for s.skipBlank(); !s.done(); s.skipBlank() {
		switch s.peek() {
		case '}':
			s.pos++
			return
		case ',', ']':
			s.pos++
		default:
			start, line, k := s.pos, s.line, at
			for _, name := range s.path() {
				k = k.key(name, line)
			}
			s.equals()
			s.val(k, depth+1)
			if s.pos == start {
				s.pos++
			}
		}
	}
}
