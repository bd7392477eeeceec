package load

import (
	"regexp"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"

	"weir/configs"
)

// machine is one with what the shipped configurations speak of.
var machine = memory{
	"/etc/weir/credentials/kubeconfig": kubeconfig,
	"/etc/weir/kubeconfig":             kubeconfig,
	"kubeconfig":                       kubeconfig, // relative to the file, as make demo has it
	source.Environment:                 "PATH=/bin\x00NODE_NAME=node1\x00",
	source.HostName:                    "Node1.example.com\n",
	"/etc/weir/fleet.key":              clusterKey,
	"/etc/weir/credentials/fleet.key":  clusterKey,
	"fleet.key":                        clusterKey,
}

// TestShipped parses every configuration that is shipped; none gives cause for
// a warning.
func TestShipped(t *testing.T) {
	for name, text := range shipped(t) {
		c, err := Parse(name, []byte(text), machine)
		if err != nil {
			t.Errorf("%s:\n%v", name, err)
			continue
		}
		for _, p := range c.Warnings {
			if p.Severity != source.Note {
				t.Error(p)
			}
		}
		if len(c.Services)+len(c.Clusters) == 0 {
			t.Errorf("%s serves nothing", name)
		}
	}
}

// entry is a key of the reference with the comment above it.
type entry struct {
	path, comment string
	// text is the value as it stands there; it is the default if commented out.
	text      string
	commented bool
}

var (
	tableLine   = regexp.MustCompile(`^\[+([a-z0-9.]+)\]+$`)
	keyLine     = regexp.MustCompile(`^(#?)([a-z0-9_]+) = (.*)$`)
	exampleLine = regexp.MustCompile(`^# Example: ([a-z0-9_]+) = (.*)$`)
)

// entries reads configs/weir.toml line by line, as its reader does.
func entries(text string) []entry {
	var out []entry
	table := ""
	var comment []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := tableLine.FindStringSubmatch(line); m != nil {
			table = m[1]
			out = append(out, entry{path: table, comment: strings.Join(comment, " ")})
		}
		if m := keyLine.FindStringSubmatch(line); m != nil {
			out = append(out, entry{source.Join(table, m[2]), strings.Join(comment, " "), m[3], m[1] == "#"})
		}
		if m := exampleLine.FindStringSubmatch(line); m != nil {
			out = append(out, entry{source.Join(table, m[1]), strings.Join(comment, " "), m[2], false})
		}
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			comment = append(comment, rest)
			continue
		}
		comment = nil
	}
	return out
}

func reference(t *testing.T) string {
	t.Helper()
	data, err := configs.Files.ReadFile("weir.toml")
	must(t, err)
	return string(data)
}

// TestReferenceHasEveryKey shows that the reference and the schema have the same facts
// of every key: default, meaning, limits, values.
func TestReferenceHasEveryKey(t *testing.T) {
	found := map[string][]entry{}
	for _, e := range entries(reference(t)) {
		found[e.path] = append(found[e.path], e)
	}
	for _, k := range Schema().Keys() {
		explained := false
		for _, e := range found[k.Path] {
			if strings.HasPrefix(e.comment, k.Doc) {
				explained = true
				checkFacts(t, k, strings.TrimPrefix(e.comment, k.Doc))
			}
			if e.commented && e.text != k.Default {
				t.Errorf("%s is %s in the reference, and %s in the code", k.Path, e.text, k.Default)
			}
			if !e.commented && e.text != "" && k.Default != "" && strings.HasPrefix(e.comment, k.Doc) {
				t.Errorf("%s has a default, which the reference does not show", k.Path)
			}
		}
		if !explained {
			t.Errorf("the reference does not explain %s: %s", k.Path, k.Doc)
		}
		delete(found, k.Path)
	}
	for path := range found {
		t.Errorf("the reference has %s, which is not in the schema", path)
	}
}

// checkFacts searches for what the reference must have of a key beside its doc.
func checkFacts(t *testing.T, k schema.Key, facts string) {
	t.Helper()
	want := append([]string{k.Limits()}, k.Values...)
	if k.Required {
		want = append(want, "Required.")
	}
	if k.Restart {
		want = append(want, "A change needs a restart.")
	}
	if k.Type == schema.Duration {
		want = append(want, "Duration")
	} else if k.Unit != "" {
		want = append(want, strings.ToUpper(k.Unit[:1])+k.Unit[1:])
	}
	for _, w := range want {
		if !strings.Contains(facts, w) {
			t.Errorf("the reference says of %s: %q, without %q", k.Path, facts, w)
		}
	}
}

// TestReferenceDefaults shows that writing all defaults out changes nothing.
func TestReferenceDefaults(t *testing.T) {
	text := reference(t)
	written := regexp.MustCompile(`(?m)^#([a-z0-9_]+ = )`).ReplaceAllString(text, "$1")
	if text == written {
		t.Fatal("the reference shows no defaults")
	}
	left, err := Parse("weir.toml", []byte(text), machine)
	must(t, err)
	out, err := Parse("weir.toml", []byte(written), machine)
	must(t, err)
	if diff := compare(left, out); diff != "" {
		t.Errorf("defaults left out (-) and written (+):\n%s", diff)
	}
}
