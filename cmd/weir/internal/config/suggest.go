package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// placeFor tells somebody who wrote name in the table at path, where it is not
// known, what they may have meant.
func (s *schema) placeFor(path, name string) string {
	if near, ok := nearest(name, s.children[path]); ok {
		return fmt.Sprintf("did you mean %s?", near)
	}
	word, tables := s.elsewhere(path, func(n string) bool { return n == snake(name) })
	if len(tables) == 0 {
		word, tables = s.elsewhere(path, func(n string) bool {
			_, ok := nearest(name, []string{n})
			return ok
		})
	}
	if len(tables) == 0 {
		return "remove it"
	}
	return fmt.Sprintf("%s belongs in %s", word, strings.Join(tables, " or "))
}

// elsewhere gives the first key outside the table at path whose name matches,
// and the tables that have it.
func (s *schema) elsewhere(path string, matches func(name string) bool) (word string, tables []string) {
	for _, k := range s.keys {
		table, name := split(k.Path)
		if table == path || table == "" || !matches(name) || word != "" && word != name {
			continue
		}
		word = name
		tables = append(tables, s.byPath[table].header())
	}
	return word, tables
}

// oneOf tells somebody who wrote s what may be written.
func oneOf(s string, values []string) string {
	if near, ok := nearest(s, values); ok {
		return fmt.Sprintf("did you mean %s?", strconv.Quote(near))
	}
	return "use one of " + quoteAll(values)
}

// nearest finds the word that somebody meant who wrote s, unless it might be
// anything.
func nearest(s string, words []string) (string, bool) {
	s = snake(s)
	best, at := "", 1+max(1, len(s)/3)
	for _, w := range words {
		d := distance(s, snake(w))
		if len(s) > 2 && len(w) > 2 && (strings.HasPrefix(s, snake(w)) || strings.HasPrefix(snake(w), s)) {
			d = min(d, 1)
		}
		if d < at {
			best, at = w, d
		}
	}
	return best, best != ""
}

// snake writes syncPeriod, as in kube-proxy's configuration, and Sync-Period as
// sync_period.
func snake(s string) string {
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && unicode.IsLower(runes[i-1]) {
			b.WriteByte('_')
		}
		if r == '-' || r == ' ' {
			r = '_'
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// distance counts the letters that must be changed, added, removed or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	if longest := max(len(a), len(b)); longest > 64 {
		return longest // nobody mistypes such a key
	}
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range x {
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			d := min(rows[i][j]+cost, rows[i][j+1]+1, rows[i+1][j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(x)][len(y)]
}

// unknownName complains about the name of something that is not there; what is
// said if none is near is otherwise.
func unknownName(name, what string, known []string, otherwise string) *fault {
	fix := otherwise
	if near, ok := nearest(name, known); ok {
		fix = fmt.Sprintf("did you mean %s?", strconv.Quote(near))
	} else if len(known) > 0 {
		fix += "; there are " + quoteAll(known)
	}
	return faultf(fix, "there is no %s %q", what, name)
}

// known checks a list of names of what must be there.
func (s section) known(name, what string, there []string) {
	for _, e := range s.elements(name) {
		if text := e.scalar.(string); !slices.Contains(there, text) {
			f := unknownName(text, what, there, "remove it")
			s.failAt(e, name, f.text, f.fix)
		}
	}
}
