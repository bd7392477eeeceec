package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// Sources without a history have no version; a history that git can't read is no reason to
// make packages of none.
func TestOriginWithoutHistory(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("SOURCE_DATE_EPOCH", "1769860800")
	got, err := readOrigin(t.Context())
	if want := (origin{version: "0~unknown", commit: "unknown", date: noon}); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	must(t, os.WriteFile(".git", []byte("gitdir: nowhere\n"), 0o600))
	if got, err := readOrigin(t.Context()); err == nil {
		t.Errorf("of a history that can't be read: %v", got)
	}
}

func TestVersionOf(t *testing.T) {
	for _, tt := range []struct {
		tag   string
		dirty bool
		want  string
	}{
		{"", false, "0~git20260131120000.0123abc"},
		{"", true, "0~git20260131120000.0123abc+dirty"},
		{"v1.2.3", false, "1.2.3"},
		{"v1.2.3-rc.1", false, "1.2.3~rc.1"},
		{"v1.2.3", true, "1.2.3+dirty"},
	} {
		if got := versionOf(tt.tag, "0123abc", noon, tt.dirty); got != tt.want {
			t.Errorf("tag %q, dirty %v: %s, want %s", tt.tag, tt.dirty, got, tt.want)
		}
	}
}

func TestDebianChangelog(t *testing.T) {
	got := string(debianChangelog(`# Changes

## Unreleased

What is new.

- One thing, which is told in so many words that they
  do not fit into a line of eighty bytes.
- Another.

Decisions:

- A third.

## 1.0.0 (2025-12-24)

- The first.
`, "1.1.0", noon))
	want := `weir (1.1.0) unstable; urgency=medium

  * One thing, which is told in so many words that they do not fit into a line
    of eighty bytes.
  * Another.
  * A third.

 -- weir maintainers <maintainers@weir.invalid>  Sat, 31 Jan 2026 12:00:00 +0000

weir (1.0.0) unstable; urgency=medium

  * The first.

 -- weir maintainers <maintainers@weir.invalid>  Wed, 24 Dec 2025 00:00:00 +0000

`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestLicenseOf(t *testing.T) {
	for want, text := range map[string]string{
		"Apache-2.0":   "Apache License\n   Version 2.0, January 2004",
		"MIT":          "Permission is hereby granted, free of charge, to any\nperson obtaining a copy",
		"BSD-3-Clause": "Redistributions in binary form must reproduce the above copyright notice. The name may not be used to endorse or promote products derived from it",
		"BSD-2-Clause": "Redistributions in binary form must reproduce the above copyright notice",
		"":             "All rights reserved.",
	} {
		if got := licenseOf([]string{text}); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLicenseTextsHaveNotices(t *testing.T) {
	got := string(licenseTexts([]module{{Path: "example.com/m", Version: "v1.0.0", texts: []string{"Do as you like.", "By us."}}}))
	want := "example.com/m v1.0.0\n" + strings.Repeat("-", 20) + "\n\nDo as you like.\n\nBy us.\n\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDebsHaveAnotherCompressionIfAsked(t *testing.T) {
	shipped, err := os.ReadFile("../nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ method, want string }{{"", "xz"}, {"none", "none"}} {
		file := filepath.Join(t.TempDir(), "nfpm.yaml")
		if err := os.WriteFile(file, shipped, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := (&packer{compression: tt.method}).compressAs(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if want := "\ndeb:\n  compression: " + tt.want + "\n"; err != nil || !strings.Contains(string(text), want) {
			t.Errorf("-deb-compression %q: %v, nfpm.yaml has no %q", tt.method, err, want)
		}
		if !strings.Contains(string(text), "\n  compression: zstd\n") {
			t.Errorf("-deb-compression %q: rpms have another one", tt.method)
		}
	}
}
