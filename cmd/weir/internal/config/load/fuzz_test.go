package load

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"

	fleet "weir/cluster"
	"weir/cmd/weirlab/fuzzing"
	"weir/configs"
)

// noFiles is a disk without files.
type noFiles struct{}

func (noFiles) Glob(string) ([]string, error) { return nil, nil }
func (noFiles) ReadFile(n string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: n, Err: fs.ErrNotExist}
}

func (noFiles) Access(n string) (source.Access, error) {
	return source.Access{}, &fs.PathError{Op: "stat", Path: n, Err: fs.ErrNotExist}
}

// seed adds the shipped configurations, the invalid ones of the tests and some
// oddities of TOML.
func seed(f *testing.F) {
	for _, text := range shipped(f) {
		f.Add(text)
	}
	for _, text := range invalid(f) {
		f.Add(text)
	}
	for _, text := range []string{
		"a.b.c = 1\na.b.d = { e = [1, {f = 2}], \"g h\" = 3 }",
		"[[a]]\n[a.b]\n[[a.b.c]]\nd = \"\"\"x\n\\\"\"\"\" \n[no]\n\"\"\"\"\"\n'e' = '''\n''''\n[[a]]\n[a.b]",
		"a = [ # comment ]\n [1,2], # [\n [ ]\n]\n\"b\\u0041\" = 1979-05-27 07:32:00",
		"x = {a = 1, \n b = [\n1],}\r\ny = 'a\\'\r\n",
		"\ufeff[kernel]\nping = tru",
		"[fleet]\nname = \"a\"\nmember = \"b\"\nbind = \"10.0.0.5\"\njoin = [\"c:1\", \"::1\"]\ninsecure_without_key = true\n[l2]\ninterfaces = [\"d\"]",
		"kubernetes\n[[pool]]", "kubernetes = []\n[[pool]]\nname = \"a\"\naddresses = [\"192.0.2.0/24\"]\n[[reservation]]\nnamespace = \"a\"\nservice = \"b\"\naddresses = [\"192.0.2.1\"]",
		"a = [[[[[[", "{", "= =", "[a\n[b", "a = \"", "a = \"\"\"", "a = '''x''", "[[", "\\", "a=1]", "[a]\n[a]\n[a]\nb=c\nb=d",
	} {
		f.Add(text)
	}
}

func shipped(t testing.TB) map[string]string {
	t.Helper()
	names, err := fs.Glob(configs.Files, "*.toml")
	if err != nil || len(names) == 0 {
		t.Fatalf("shipped configurations: %v, %v", names, err)
	}
	out := map[string]string{}
	for _, name := range names {
		data, err := configs.Files.ReadFile(name)
		must(t, err)
		out[name] = string(data)
	}
	return out
}

// FuzzParse shows that no text makes Parse panic, and that every problem is
// somewhere in the text.
func FuzzParse(f *testing.F) {
	fuzzing.Wide(f)
	seed(f)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("weir.toml", []byte(text), noFiles{})
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", c, err)
		}
		if err == nil {
			checkParts(t, c)
		}
		var problems []source.Problem
		if err != nil {
			var all *source.Errors
			if !errors.As(err, &all) {
				t.Fatalf("error %T", err)
			}
			problems = all.Problems
		} else {
			problems = c.Warnings
		}
		if worst, _ := source.Worst(problems); (worst == source.Error) != (err != nil) {
			t.Fatalf("severity %s, error %v", worst, err)
		}
		for _, p := range problems {
			if lines := 1 + strings.Count(text, "\n"); p.Line < 0 || p.Line > lines || p.File != "weir.toml" || p.Text == "" {
				t.Errorf("problem %#v in a text of %d lines", p, lines)
			}
		}
	})
}

// checkParts shows that those who are given parts of a configuration find them
// right as well.
func checkParts(t *testing.T, c *config.Config) {
	t.Helper()
	if err := c.Addresses.IPAM.Check(); err != nil {
		t.Errorf("addresses: %v", err)
	}
	if c.Fleet != nil {
		if _, err := fleet.New(c.Fleet.Gossip, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("cluster: %v", err)
		}
	}
	if c.BGP == nil {
		return
	}
	speaker := c.BGP.Speaker
	if !speaker.RouterID.IsValid() {
		speaker.RouterID = netip.MustParseAddr("10.0.0.1") // the daemon's affair
	}
	if err := speaker.Check(); err != nil {
		t.Errorf("BGP: %v", err)
	}
}
