package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// advisory is a line of advisories.txt.
type advisory struct{ module, fixed, id, reason string }

var (
	fixedForm = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)
	idForm    = regexp.MustCompile(`^(GO-\d{4}-\d{4,}|GHSA(-[0-9a-z]{4}){3}|CVE-\d{4}-\d{4,})$`)
)

// readAdvisories parses lines of a module, a version, an advisory and a reason.
func readAdvisories(text string) (list []advisory, err error) {
	for n, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 4 || !fixedForm.MatchString(words[1]) || !idForm.MatchString(words[2]) {
			return nil, fmt.Errorf("line %d is not MODULE VERSION ADVISORY REASON: %s", n+1, line)
		}
		list = append(list, advisory{words[0], words[1], words[2], strings.Join(words[3:], " ")})
	}
	return list, nil
}

// below reports whether a version is before a release. A pre-release or pseudo-version of that
// release is: v1.2.3-0.2026... and v1.2.3-rc.1 are before v1.2.3.
func below(version, release string) bool {
	version, _, _ = strings.Cut(version, "+")
	core, _, pre := strings.Cut(version, "-")
	have, want := strings.Split(strings.TrimPrefix(core, "v"), "."), strings.Split(strings.TrimPrefix(release, "v"), ".")
	for i := range want {
		a, errA := strconv.Atoi(have[i])
		b, errB := strconv.Atoi(want[i])
		if errA != nil || errB != nil {
			panic(version + " or " + release + " is not a version")
		}
		if a != b {
			return a < b
		}
	}
	return pre
}

// affected returns the advisories of modules, by path with their versions.
func affected(modules map[string]string, list []advisory) (found []advisory) {
	for _, a := range list {
		if v := modules[a.module]; v != "" && below(v, a.fixed) {
			found = append(found, a)
		}
	}
	return found
}

// required returns the modules and versions of a go.mod. With pruned module graphs it lists every
// module that provides a package of weir.
func required(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	modules := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "//")
		words := strings.Fields(strings.TrimPrefix(line, "require "))
		if strings.HasPrefix(line, "replace") && len(words) == 4 && isOwn(words[3]) {
			delete(modules, words[1]) // replacements are the last lines
			continue
		}
		if strings.HasPrefix(line, "replace") || strings.HasPrefix(line, "exclude") {
			t.Fatalf("%s: this test does not know %q", file, line)
		}
		if len(words) == 2 && strings.HasPrefix(words[1], "v") {
			modules[words[0]] = words[1]
		}
	}
	return modules
}

func TestNoModuleHasAKnownAdvisory(t *testing.T) {
	text, err := os.ReadFile("advisories.txt")
	must(t, err)
	list, err := readAdvisories(string(text))
	must(t, err)
	modules := required(t, "../../go.mod")
	if modules["github.com/osrg/gobgp/v4"] == "" || len(modules) < 50 {
		t.Fatalf("go.mod is not read: %v", modules)
	}
	for _, a := range affected(modules, list) {
		t.Errorf("%s %s has %s (%s), fixed in %s: go get %s@%s", a.module, modules[a.module], a.id, a.reason, a.fixed, a.module, a.fixed)
	}
	for _, a := range list {
		if modules[a.module] == "" {
			t.Errorf("weir no longer needs %s: remove its lines", a.module)
		}
	}
}

func TestAffected(t *testing.T) {
	list, err := readAdvisories("# x\n\na/b v1.10.0 GO-2026-1234 a panic\n")
	if err != nil || len(list) != 1 || list[0].reason != "a panic" {
		t.Fatalf("%+v, %v", list, err)
	}
	for version, want := range map[string]bool{
		"": false, "v1.9.9": true, "v1.10.0": false, "v1.10.1": false, "v2.0.0+incompatible": false, "v0.99.0": true,
		"v1.10.0-rc.1": true, "v1.10.0-0.20260101000000-0123456789ab": true, "v1.10.1-0.20260101000000-0123456789ab": false,
	} {
		if got := len(affected(map[string]string{"a/b": version}, list)) == 1; got != want {
			t.Errorf("%q is affected: %t", version, got)
		}
	}
	for _, bad := range []string{"a/b v1.0.0 GO-2026-1234", "a/b 1.0.0 GO-2026-1234 x", "a/b v1.0.0 CWE-1 x"} {
		if _, err := readAdvisories(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
