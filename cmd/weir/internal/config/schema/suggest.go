package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"weir/cmd/weir/internal/config/source"
)

// placeFor returns the fix for the unknown key name in the table at path.
func (s *Schema) placeFor(path, name string) string {
	if near, ok := nearest(name, s.children[path]); ok {
		return fmt.Sprintf("did you mean %s?", near)
	}
	word, tables := s.elsewhere(path, func(n string) bool { return n == snake(name) })
	if more := withWord(snake(name), s.children[path]); len(tables) == 0 && len(more) > 0 {
		return fmt.Sprintf("did you mean %s?", strings.Join(more, " or "))
	}
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

// withWord returns the names of which s is the first or the last word.
func withWord(s string, names []string) (out []string) {
	for _, n := range names {
		if strings.HasPrefix(n, s+"_") || strings.HasSuffix(n, "_"+s) {
			out = append(out, n)
		}
	}
	return out
}

// elsewhere returns the first matching name of a key outside the table at path, and the
// tables that have it.
func (s *Schema) elsewhere(path string, matches func(name string) bool) (word string, tables []string) {
	for _, k := range s.keys {
		table, name := source.Split(k.Path)
		if table == path || table == "" || !matches(name) || word != "" && word != name {
			continue
		}
		word = name
		tables = append(tables, s.byPath[table].Header())
	}
	return word, tables
}

// oneOf returns the fix for a value that is not in a closed set.
func oneOf(s string, values []string) string {
	if near, ok := nearest(s, values); ok {
		return fmt.Sprintf("did you mean %s?", strconv.Quote(near))
	}
	return "use one of " + quoteAll(values)
}

// nearest returns the word that s is probably a misspelling of.
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
		return longest // too long for a misspelling
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
