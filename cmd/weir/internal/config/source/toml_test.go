package source

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"weir/cmd/weirlab/fuzzing"
)

// lines returns the positions of all keys and elements: "a.b 3", "a[0] 4".
func lines(v *Value, path string) []string {
	var out []string
	for _, name := range v.Names() {
		p := Join(path, name)
		out = append(out, fmt.Sprintf("%s %d", p, v.Table[name].At.Line))
		out = append(out, lines(v.Table[name], p)...)
	}
	for i, e := range v.List {
		p := fmt.Sprintf("%s[%d]", path, i)
		out = append(out, fmt.Sprintf("%s %d", p, e.At.Line))
		out = append(out, lines(e, p)...)
	}
	return out
}

func TestPositions(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
	}{
		{"keys and tables", "a = 1\n\n[t] # c\nb = 2 # [x]\n[t.u]\nc = 3\n", "a 1, t 3, t.b 4, t.u 5, t.u.c 6"},
		{"dotted and quoted", "a.\"b c\" . 'd' = 1\na.\"\\u0065\" = 2", "a 1, a.b c 1, a.b c.d 1, a.e 2"},
		{"lists of tables", "[[s]]\nn = 1\n[s.c]\nx = 1\n[[s]]\nn = 2\n[[s.b]]\n[[s.b]]\ny = 1",
			"s 1, s[0] 1, s[0].n 2, s[0].c 3, s[0].c.x 4, s[1] 5, s[1].n 6, s[1].b 7, s[1].b[0] 7, s[1].b[1] 8, s[1].b[1].y 9"},
		{"lists over lines", "a = [\n 1, # x ]\n [2,\n 3],\n]\nb = 1", "a 1, a[0] 2, a[1] 1, a[1][0] 3, a[1][1] 4, b 6"},
		{"inline tables", "a = { b = 1, c.d = [ { e = 2 } ], f = '}' }", "a 1, a.b 1, a.c 1, a.c.d 1, a.c.d[0] 1, a.c.d[0].e 1, a.f 1"},
		{"strings", "a = \"\"\"\n[x]\ny = 1\\\"\"\"\"\"\nb = '''\n'a''''\nc = \"[\\\"\"\nd = 1", "a 1, b 4, c 6, d 7"},
		{"line ends of Windows", "a = 1\r\n[t]\r\nb = 2\r\n", "a 1, t 2, t.b 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, problems := parseTOML("a.toml", []byte(tt.text))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			got, want := lines(root, ""), strings.Split(tt.want, ", ")
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// data returns a value in the form of the library.
func data(v *Value) any {
	switch {
	case v.Table != nil:
		out := map[string]any{}
		for name, e := range v.Table {
			out[name] = data(e)
		}
		return out
	case v.List != nil:
		out := []any{}
		for _, e := range v.List {
			out = append(out, data(e))
		}
		return out
	}
	return v.Scalar
}

// undated replaces all dates, which are of several types, by one.
func undated(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for name, e := range x {
			x[name] = undated(e)
		}
	case []any:
		for i, e := range x {
			x[i] = undated(e)
		}
	case string, int64, float64, bool:
	default:
		return time.Time{}
	}
	return x
}

// FuzzTree checks that the tree has the library's values, each with a line of the text,
// and that a text with a mistake has a problem.
func FuzzTree(f *testing.F) {
	fuzzing.Wide(f)
	for _, text := range []string{
		"a.b.c = 1\na.b.d = { e = [1, {f = 2}], \"g h\" = 3 }",
		"[[a]]\n[a.b]\n[[a.b.c]]\nd = \"\"\"x\n\\\"\"\"\" \n[no]\n\"\"\"\"\"\n'e' = '''\n''''\n[[a]]\n[a.b]",
		"a = [ # comment ]\n [1,2], # [\n [ ]\n]\n\"b\\u0041\" = 1979-05-27 07:32:00",
		"[kernel]\nping = tru", "a = [[[[[[", "{", "= =", "[a\n[b", "a = \"", "a = \"\"\"", "a = '''x''", "[[", "\\", "a=1]",
		"[a]\n[a]\n[a]\nb=c\nb=d", "[a.b]\n[a]\nb.c = 1", "a = []\n[[a]]", "[[a]]\n[a]", "a.b = 1\n[a]", "a = 1\na.b = 2", "a = 01", "a = nan\nb = 1e400",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, problems := parseTOML("a.toml", []byte(text))
		var want map[string]any
		err := toml.Unmarshal([]byte(text), &want)
		for _, p := range problems {
			if last := 1 + strings.Count(text, "\n"); p.Line < 0 || p.Line > last || p.Text == "" {
				t.Errorf("problem %#v in %d lines", p, last)
			}
		}
		if err != nil {
			if len(problems) == 0 {
				t.Errorf("no problem; the library reports %v", err)
			}
			return
		}
		if len(problems) > 0 {
			t.Fatalf("problems %v in a valid text", problems)
		}
		if want == nil {
			want = map[string]any{}
		}
		if got := data(root); fmt.Sprint(got) != fmt.Sprint(undated(want)) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		for _, l := range lines(root, "") {
			if strings.HasSuffix(l, " 0") {
				t.Errorf("no position: %s", l)
			}
		}
	})
}
