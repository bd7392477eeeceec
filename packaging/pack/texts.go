package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// maintainer is the maintainer field of the packages.
const maintainer = "weir maintainers <maintainers@weir.invalid>"

var release = regexp.MustCompile(`^## (\S+)(?: \((\d{4}-\d\d-\d\d)\))?`)

// debianChangelog converts CHANGELOG.md to deb-changelog(5): one entry for each release
// ("## 1.2.3 (2026-01-31)"). Unreleased changes get the given version.
func debianChangelog(changes, version string, date time.Time) []byte {
	var out strings.Builder
	item, end := "", func() {}
	for line := range strings.Lines(changes) {
		line = strings.TrimRight(line, "\n")
		if m := release.FindStringSubmatch(line); m != nil {
			end()
			of, when := m[1], date
			if of == "Unreleased" {
				of = version
			}
			if day, err := time.Parse(time.DateOnly, m[2]); err == nil {
				when = day
			}
			fmt.Fprintf(&out, "weir (%s) unstable; urgency=medium\n\n", of)
			end = func() {
				flow(&out, item)
				item = ""
				fmt.Fprintf(&out, "\n -- %s  %s\n\n", maintainer, when.Format(time.RFC1123Z))
			}
			continue
		}
		if begun, ok := strings.CutPrefix(line, "- "); ok {
			flow(&out, item)
			item = begun
		} else if more, ok := strings.CutPrefix(line, "  "); ok && item != "" {
			item += " " + more
		}
	}
	end()
	return []byte(out.String())
}

// flow writes an item in lines of 80 bytes, the limit of lintian.
func flow(out *strings.Builder, item string) {
	line := "  *"
	for word := range strings.FieldsSeq(item) {
		if len(line)+1+len(word) > 80 {
			fmt.Fprintln(out, line)
			line = "   "
		}
		line += " " + word
	}
	if item != "" {
		fmt.Fprintln(out, line)
	}
}

// copyright returns Debian's machine-readable copyright file.
func copyright(year int) []byte {
	return fmt.Appendf(nil, `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir

Files: *
Copyright: %d the authors of weir
License: Apache-2.0

Files: /usr/bin/weir
Copyright: the authors of weir, and of the modules that sbom.cdx.json lists
License: Apache-2.0 and others
Comment: The program has other people's Go modules in it. sbom.cdx.json, beside this
 file, names each with its version and license, and licenses.gz has their texts.
 The source of every module is at the address that is its name.

License: Apache-2.0
 On Debian systems, the full text of the Apache License, Version 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
`, year)
}
