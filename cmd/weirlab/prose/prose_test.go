package prose

import (
	"flag"
	"strings"
	"testing"
)

var dirs = flag.String("dirs", ".", "folders to check, separated by commas")

// TestProse applies the rules to the whole project.
func TestProse(t *testing.T) {
	found, err := Check("../../..", strings.Split(*dirs, ",")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestRules(t *testing.T) {
	all, err := readList(words, exceptions)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, text string
		want             int
	}{
		{"a plain sentence", "a.md", "weir announces the route via BGP.", 0},
		{"a private word", "a.md", "The route is mended.", 1},
		{"code is not prose", "a.md", "Type `weir whose`.\n\n    whoever\n\n```\nwhose\n```\n", 0},
		{"a clause without a noun", "a.md", "It shows what fails.", 1},
		{"a long sentence", "a.md", "one two three four five six seven eight nine ten a b c d e f g h i j k l m n o p.", 1},
		{"a long chain of clauses", "a.md", "one two three four five six: seven eight nine ten a b; c d e f g h: i j k l m n o p.", 1},
		{"a long sentence of a page", "a.html", "<p>one two three four five <b>six</b> seven eight nine ten a b c d e f g h i j k l m n o p.</p>", 1},
		{"a page's blocks are apart", "a.html", "<p>one two three four five six seven eight nine ten a b</p><p>c d e f g h i j k l m n o p</p>", 0},
		{"a word with one legitimate use", "a.md", "The hold time ends.", 0},
		{"another use of that word", "a.md", "The hold time ends,\nand they hold it.", 1},
		{"a word of the documentation in a comment", "a.go", "package a\n\n// F fails again.\nvar f = 1\n", 0},
		{"a cluster of boxes", "packaging/doc/fleet.md", "The cluster has three boxes.", 1},
		{"a cluster of Kubernetes", "packaging/doc/kubernetes.md", "The cluster has three Nodes.", 0},
		{"a table's cells are apart", "a.md", "| one two three four five six seven eight nine ten a b | c d e f g h i j k l m n o p |", 0},
		{"a comment", "configs/a.toml", "# The default.\n#key = 1\n# Nobody uses it.\nkey = \"whose\"\n", 1},
		{"an alert", "a.yml", "description: 'nobody answers'", 1},
		{"a page", "a.html", "<p>{{if .Whose}}fine{{end}} <code>whose</code></p><p>whose</p>", 1},
		{"a comment and a string", "a.go", "package a\n\n// F mends.\nvar f = \"put it right\"\n", 2},
		{"a comment of a test, but no string", "a_test.go", "package a\n\n// F mends.\nvar f = \"put it right\"\n", 1},
		{"an identifier", "a.go", "package a\n\nvar whose = \"fine words\"\n", 0},
		{"a comment below the core", "lb/linux/a.go", "package a\n\n// F mends.\nvar f = 1\n", 1},
		{"a comment of a test below the core", "lb/health/a_test.go", "package a\n\n// F mends.\nvar f = 1\n", 1},
		{"a phrase over two lines", "a.md", "A route goes out by\nBGP.", 1},
		{"a script", "a.js", "// Nobody\nconst whose = \"a string whose words count\"; // mended\nconst u = \"https://whose\";\n", 3},
		{"a style sheet", "a.css", "/* A state\n * that nobody sees. */\n.whose { color: red; }\n", 1},
		{"a drawing", "a.svg", "<svg><text x='1' class='whose'>nobody</text></svg>", 1},
		{"a shell script", "a.sh", "# Nobody runs it.\nwhose=1\n", 1},
		{"a unit", "systemd/a.service", "# Nobody runs it.\nWhose=1\n", 1},
		{"a maintainer script", "packaging/scripts/deb/prerm", "# Nobody runs it.\nwhose=1\n", 1},
		{"a dashboard", "packaging/grafana/a.json", "{\n\"title\": \"nobody\",\n\"expr\": \"whose\"}", 1},
		{"a log key of a method with a context", "a.go", "package a\n\nfunc f() { log.Log(ctx, level, \"backend down\", \"why\", 1) }\n", 1},
		{"a log key of a helper", "a.go", "package a\n\nfunc f() { f.warning(\"backend down\", \"err\", 1) }\n", 1},
		{"an attribute", "a.go", "package a\n\nvar x = slog.String(\"why\", y)\n", 1},
		{"a log key", "a.go", "package a\n\nfunc f() { log.Warn(\"backend down\", \"err\", 1) }\n", 1},
		{"a standard log key", "a.go", "package a\n\nfunc f() { log.Warn(\"backend down\", \"error\", 1) }\n", 0},
	} {
		if found, err := checkText(tt.file, tt.text, all); err != nil || len(found) != tt.want {
			t.Errorf("%s: found %v, %v, want %d", tt.name, found, err, tt.want)
		}
	}
}
