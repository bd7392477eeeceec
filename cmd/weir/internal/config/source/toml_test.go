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

// TestDeepNesting has a file that would exceed the parser's stack, which ends the process.
func TestDeepNesting(t *testing.T) {
	for _, open := range []string{"[", "{a="} {
		_, problems := parseTOML("a.toml", []byte("b = 1\na = "+strings.Repeat(open, 3<<20)))
		if len(problems) != 1 || problems[0].String() != "a.toml:2: more than 100000 brackets and braces are open; close them" {
			t.Errorf("%s: %d problems: %v", open, len(problems), problems)
		}
	}
	if _, problems := parseTOML("a.toml", []byte("a = "+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+"\nb = [1,\n")); len(problems) != 1 {
		t.Errorf("%d problems", len(problems))
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

// The library reads a text a second time only if it is doubtful. All texts of three statements about
// tables are valid to both or to none.
func TestTablesAreReadAsByTheLibrary(t *testing.T) {
	statements := strings.Split("[a]|[[a]]|[a.b]|[[a.b]]|[a.b.c]|[[a.b.c]]|[b]|b.c = 1|b.d = 1|b.c.d = 1|a.b.d = 1|c = 1|b = 1|"+
		"a = 1|a = {}|a = {b = 1}|a = {b.c = 1, b.d = 1}|a = {b = {}, b.d = 1}|b = {c = {}}|a = []|a = [{}]|a = [{b = 1}, {c.d = 1}]|b = [1, {}]|b = [{c = [{}]}]", "|")
	texts := func(yield func(string)) {
		for _, a := range statements {
			for _, b := range statements {
				for _, c := range statements {
					yield(a + "\n" + b + "\n" + c + "\n")
				}
			}
		}
	}
	valid, invalid := 0, 0
	texts(func(text string) {
		root, problems := parseTOML("a.toml", []byte(text))
		var want map[string]any
		err := toml.Unmarshal([]byte(text), &want)
		switch {
		case (err == nil) != (len(problems) == 0):
			t.Errorf("%q: problems %v, the library %v", text, problems, err)
		case err != nil:
			invalid++
		default:
			valid++
			if got := data(root); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%q: got %v, want %v", text, got, want)
			}
		}
	})
	if valid < 1000 || invalid < 1000 {
		t.Errorf("%d valid texts and %d others", valid, invalid)
	}
}

// TestMistakes shows that a syntax error has a position, a key and a fix, and that no
// other problem follows from it.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a header without its end", "[[service\nname = \"web\"\n", "1:1: service: the header of the table is not closed; write [[service]]"},
		{"a header with half its end", "a = 1\n[[service]\n", "2:1: service: the header of the table is not closed; write [[service]]"},
		{"a key without a value", "[t]\na =\nb = 1\n", "2:1: t.a: has no value; write one after ="},
		{"a colon", "[t]\na: \"b\"\n", "2:4: t.a: there is no = after the key; write a = VALUE"},
		{"JSON", "{\"a\": 1}\n", "1:1: invalid character at start of key: {; write KEY = VALUE, [TABLE] or [[TABLE]]"},
		{"values without quotes", "a = 30s\nb = hello world # c\nc = [1.2.3.4]\n",
			"1:5: a: 30s is text without quotes; write \"30s\"|2:5: b: hello world is text without quotes; write \"hello world\"|" +
				"3:6: c: 1.2.3.4 is text without quotes; write \"1.2.3.4\""},
		{"a word without quotes in a list", "a = [1, http]\n", "1:9: a: http is text without quotes; write \"http\""},
		{"a capital letter", "a = True\nb = 010\n", "1:5: a: True is not a boolean; write true|2:5: b: 010 has a leading zero; write 10"},
		{"a string without its end", "a = \"b\nc = [\"d]\n", "1:5: a: the string is not closed; add the quote that ends it|2:9: c: the string is not closed; add the quote that ends it"},
		{"a text without its end", "a = \"\"\"b\nc\n", "1:5: a: the string is not closed; add the \"\"\" that ends it"},
		{"a list without its end", "[t]\na = [\n 1,\nb = 2\n", "2:5: t.a: is not closed; add the ] that ends it"},
		{"a list before a header", "a = [1\n[t]\n", "1:5: a: is not closed; add the ] that ends it"},
		{"a list at the end", "a = [1", "1:5: a: is not closed; add the ] that ends it"},
		{"a list without a comma", "a = [\n 1\n 2]\nb = 1\n", "3:2: a: array elements must be separated by commas; add a comma between them"},
		{"a table of two lines", "a = {b = 1,\nc = 2}\n", "1:12: a: an inline table has one line; join the lines, or write a table of its own"},
		{"two values", "a = 1; b = 2\n", "1:6: a: more text follows the value; begin a new line, or a comment with #"},
		{"a backslash", "a = \"\\q\"\n", "1:7: a: invalid escaped character U+0071 'q'; write \\\\ for a backslash, or use single quotes"},
		{"a backslash before other text", `a = "C:\u12"`, "1:10: a: unicode point needs 4 character, not 2; write \\u and four digits, or \\\\ for a backslash"},
		{"no number", "[t]\na = 1_\nb = +\nc = 2026-13-45\n", "2:5: t.a: 1_ is neither a number nor text in quotes; write a number, or \"1_\"|" +
			"3:5: t.b: + is neither a number nor text in quotes; write a number, or \"+\"|" +
			"4:5: t.c: 2026-13-45 is neither a number nor text in quotes; write a number, or \"2026-13-45\""},
		{"a large number", "a = 99999999999999999999\n", "1:5: a: 99999999999999999999 does not fit in 64 bits; write a smaller number"},
		{"a boolean of YAML", "a = yes\n", "1:5: a: yes is text without quotes; write true or \"yes\""},
		{"typographic quotes", "a = “b”\n", "1:5: a: “b” has typographic quotes; write \"b\""},
		{"a key of two words", "[t]\nlog level = 1\n", "2:1: t: a key has no spaces; write log_level = VALUE"},
		{"a key without its end", "'a = 1\n", "1:7: the string is not closed; add the quote that ends it"},
		{"a comment of another language", "// b\n", "1:1: invalid character at start of key: /; begin a comment with #"},
		{"a comma at the end of a table", "a = {b = 1,}\n", "1:12: a: a comma ends the inline table; remove the comma"},
		{"a table without a comma", "a = {b = 1 c = 2}\n", "1:12: a: entries of an inline table must be separated by commas; add a comma between them"},
		{"a table of two lines without a comma", "a = {b = 1\nc = 2}\n", "1:11: a: an inline table has one line; join the lines, or write a table of its own"},
		{"one bracket more", "a = [1]] # b\n", "1:8: a: more text follows the value; remove the ]"},
		{"a comma after a value", "a = 1,\n", "1:6: a: more text follows the value; remove the ,"},
		{"a header with more than its end", "[t]]\na = 1\n", "1:4: t: more text follows the header of the table; remove the ]"},
		{"a key after a header", "[t] a = 1\n", "1:5: t: more text follows the header of the table; begin a new line, or a comment with #"},
		{"a key twice", "[t]\na = 1\na = 2\n", "3: t.a: is written twice, first on line 2; keep one of them"},
		{"a table twice", "[t]\n[t]\n", "2: t: is written twice, first on line 1; put all its keys under the [t] of line 1"},
		{"a table, and one of several", "[t]\n[[t]]\n", "2: t: is written twice, first on line 1; write [[t]] on line 1, too"},
		{"one of several tables, and a table", "[[t]]\n[t]\n", "2: t: is written twice, first on line 1; write [[t]]"},
		{"a key, and a table", "a = 1\n[a.b]\n", "2: a: is written twice, first on line 1; keep one of them"},
		{"text of another encoding", "a = \"\xff\"\n", "1:6: a: the text is not UTF-8; save the file as UTF-8"},
		{"text of Windows", "\xff\xfea\x00", "1: the text is UTF-16; save the file as UTF-8"},
	} {
		root, problems := parseTOML("x", []byte(tt.text))
		var got []string
		for _, p := range problems {
			got = append(got, strings.TrimPrefix(p.String(), "x:"))
		}
		if all := strings.Join(got, "|"); all != tt.want || root != nil {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, all, tt.want)
		}
	}
}
