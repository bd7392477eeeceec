package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bill has the checked parts of the bill of materials, CycloneDX.
type bill struct {
	BOMFormat, SpecVersion string
	Metadata               struct {
		Component struct{ Name, Version string }
	}
	Components []struct {
		Name, Version, PURL string
		Licenses            []struct{ License struct{ ID string } }
	}
}

func packagesListModules(t *testing.T, p *packages) {
	var b bill
	must(t, json.Unmarshal([]byte(p.read(t, "usr/share/doc/weir/sbom.cdx.json")), &b))
	if b.BOMFormat != "CycloneDX" || b.SpecVersion == "" || b.Metadata.Component.Name != "weir" {
		t.Errorf("it is no CycloneDX of weir: %+v", b.Metadata)
	}
	var got, want []string
	for _, c := range b.Components {
		if len(c.Licenses) == 0 {
			t.Errorf("%s: nobody knows its license; licenseOf in packaging/pack has to", c.Name)
		}
		if c.PURL != "pkg:golang/"+c.Name+"@"+strings.ReplaceAll(c.Version, "+", "%2B") {
			t.Errorf("%s: purl %s", c.Name, c.PURL)
		}
		got = append(got, c.Name+" "+c.Version)
	}
	for line := range strings.Lines(tool(t, "go", "version", "-m", filepath.Join(p.root, "usr/bin/weir"))) {
		words := strings.Fields(line)
		if len(words) == 0 { // after a replacement without a sum
			continue
		}
		switch words[0] {
		case "dep":
			want = append(want, words[1]+" "+words[2])
		case "=>":
			if strings.HasPrefix(words[1], "./") { // a folder of weir in its place
				want = want[:len(want)-1]
			}
		case filepath.Join(p.root, "usr/bin/weir") + ":":
			want = append(want, "std "+strings.TrimPrefix(words[1], "go"))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" || len(want) < 20 {
		t.Errorf("modules of the program (-) and of its bill (+):\n%s", d)
	}
	texts := tool(t, "zcat", filepath.Join(p.root, "usr/share/doc/weir/licenses.gz"))
	for _, c := range b.Components {
		_, text, found := strings.Cut(texts, "\n"+c.Name+" "+c.Version+"\n")
		if !found && !strings.HasPrefix(texts, c.Name) {
			t.Errorf("licenses.gz has no text for %s", c.Name)
		} else if found && len(text) < 500 {
			t.Errorf("licenses.gz ends too soon after %s", c.Name)
		}
	}
	t.Logf("%d modules", len(got))
}

func packagesHaveManual(t *testing.T, p *packages) {
	dir := t.TempDir()
	pages, err := filepath.Glob(filepath.Join(p.root, "usr/share/man/man?/*.gz"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".gz")
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, []byte(tool(t, "zcat", page)), 0o644))
		if out, err := exec.Command("groff", "-man", "-ww", "-Tutf8", "-z", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
		if out, err := exec.Command("mandoc", "-T", "lint", "-W", "warning", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("mandoc: %v\n%s", err, out)
		}
		text := tool(t, "mandoc", "-T", "ascii", "-O", "width=1000", file)
		text = regexp.MustCompile(`.\x08`).ReplaceAllString(text, "") // bold, as typewriters have it
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"} {
			if !strings.Contains(text, "\n"+section+"\n") {
				t.Errorf("%s has no %s", name, section)
			}
		}
		if strings.HasSuffix(name, ".8") && !strings.Contains(text, "\nEXIT STATUS\n") {
			t.Errorf("%s tells no exit status", name)
		}
	}
}

// packagesComplete types on behalf of a user of bash, and has the other shells' files
// checked as text: bash is the one that every box has.
func packagesComplete(t *testing.T, p *packages) {
	file := filepath.Join(p.root, "usr/share/bash-completion/completions/weir")
	tool(t, "bash", "-n", file)
	for typed, want := range map[string]string{
		"weir sta":               "status",
		"weir bgp nei":           "neighbors",
		"weir status --output=j": "json",
	} {
		// What bash does when the key is pressed: programmable completion of bash(1).
		const press = `source /usr/share/bash-completion/bash_completion; source "$1"; export PATH="$2:$PATH"
			COMP_LINE=$3; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_KEY=9; read -ra COMP_WORDS <<<"${3//=/ = }"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			compopt() { :; }
			__start_weir; printf '%s\n' "${COMPREPLY[@]}"`
		out := tool(t, "bash", "-c", press, "bash", file, filepath.Join(p.root, "usr/bin"), typed)
		if got := strings.Fields(out); len(got) == 0 || !slices.Contains(got, want) {
			t.Errorf("%q is completed to %q, want %s", typed, got, want)
		}
	}
	for file, begin := range map[string]string{
		"usr/share/zsh/vendor-completions/_weir":        "#compdef weir\n",
		"usr/share/fish/vendor_completions.d/weir.fish": "# fish completion for weir",
	} {
		if text := p.read(t, file); !strings.HasPrefix(text, begin) {
			t.Errorf("%s begins %.40q", file, text)
		}
	}
}
