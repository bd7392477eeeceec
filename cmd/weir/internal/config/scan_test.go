package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines writes the places that the scanner found: "a.b 3", elements as "a[0] 4".
func (s *spot) lines(path string) []string {
	var out []string
	for name, k := range s.keys {
		p := join(path, name)
		out = append(out, fmt.Sprintf("%s %d", p, k.line))
		out = append(out, k.lines(p)...)
	}
	for i, item := range s.items {
		p := fmt.Sprintf("%s[%d]", path, i)
		out = append(out, fmt.Sprintf("%s %d", p, item.line))
		out = append(out, item.lines(p)...)
	}
	return out
}

func TestScanFindsLines(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
	}{
		{"keys and tables", "a = 1\n\n[t] # c\nb = 2 # [x]\n[t.u]\nc = 3\n", "a 1, t 3, t.b 4, t.u 5, t.u.c 6"},
		{"dotted and quoted", "a.\"b c\" . 'd' = 1\na.\"\\u0065\" = 2", "a 1, a.b c 1, a.b c.d 1, a.e 2"},
		{"lists of tables", "[[s]]\nn = 1\n[s.c]\nx = 1\n[[s]]\nn = 2\n[[s.b]]\n[[s.b]]\ny = 1",
			"s 1, s[0] 1, s[0].n 2, s[0].c 3, s[0].c.x 4, s[1] 5, s[1].n 6, s[1].b 7, s[1].b[0] 7, s[1].b[1] 8, s[1].b[1].y 9"},
		{"lists over lines", "a = [\n 1, # x ]\n [2,\n 3],\n]\nb = 1", "a 1, a[0] 2, a[1] 3, a[1][0] 3, a[1][1] 4, b 6"},
		{"inline tables", "a = { b = 1, c.d = [ { e = 2 } ],\n f = '}' }", "a 1, a.b 1, a.c 1, a.c.d 1, a.c.d[0] 1, a.c.d[0].e 1, a.f 2"},
		{"strings", "a = \"\"\"\n[x]\ny = 1\\\"\"\"\"\"\nb = '''\n'a''''\nc = \"[\\\"\"\nd = 1", "a 1, b 4, c 6, d 7"},
		{"line ends of others", "a = 1\r\n[t]\r\nb = 2\r\n", "a 1, t 2, t.b 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, _ := scan(tt.text, nil)
			got, want := root.lines(""), strings.Split(tt.want, ", ")
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
