package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// module is a Go module of the program.
type module struct {
	Path, Version, Sum string
	texts              []string // of its license and notices
	license            string   // the SPDX identifier, "" if unknown
}

// readModules returns the modules of a program with their licenses, from the module
// cache of its build.
func readModules(ctx context.Context, info *buildinfo.BuildInfo) ([]module, error) {
	var all []module
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		if isOwn(dep.Path) {
			continue
		}
		m := module{Path: dep.Path, Version: dep.Version, Sum: dep.Sum}
		dir, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", m.Path)
		if err != nil {
			return nil, err
		}
		if m.texts, err = licenseFiles(dir); err != nil {
			return nil, err
		}
		m.license = licenseOf(m.texts)
		all = append(all, m)
	}
	goRoot, err := output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	std := module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), license: "BSD-3-Clause"}
	std.texts, err = licenseFiles(goRoot)
	return append(all, std), err
}

// isOwn reports whether the path of a module that replaces another one is a folder of weir, with weir's license.
func isOwn(path string) bool { return strings.HasPrefix(path, "./") }

// licenseFiles reads the license and notices in a folder.
func licenseFiles(dir string) ([]string, error) {
	var texts []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	return texts, nil
}

// licenseOf identifies a license by a sentence. The first match wins, because BSD-2-Clause
// is a subset of BSD-3-Clause.
func licenseOf(texts []string) string {
	all := strings.Join(strings.Fields(strings.Join(texts, " ")), " ")
	for _, known := range []struct{ id, sentence string }{
		{"Apache-2.0", "Apache License Version 2.0, January 2004"},
		{"MPL-2.0", "Mozilla Public License, version 2.0"},
		{"MPL-2.0", "Mozilla Public License Version 2.0"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
		{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
		{"BSD-3-Clause", "to endorse or promote products derived"},
		{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
	} {
		if strings.Contains(all, known.sentence) {
			return known.id
		}
	}
	return ""
}

// licenseTexts returns the license texts that must accompany the program.
func licenseTexts(modules []module) []byte {
	var out bytes.Buffer
	for _, m := range modules {
		fmt.Fprintf(&out, "%s %s\n%s\n\n", m.Path, m.Version, strings.Repeat("-", len(m.Path)+1+len(m.Version)))
		for _, text := range m.texts {
			fmt.Fprintf(&out, "%s\n\n", text)
		}
	}
	return out.Bytes()
}

// The parts of CycloneDX 1.5 that are used: https://cyclonedx.org/docs/1.5/json/
type (
	bill struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type     string    `json:"type"`
		Ref      string    `json:"bom-ref"`
		Name     string    `json:"name"`
		Version  string    `json:"version"`
		PURL     string    `json:"purl,omitempty"`
		Licenses []license `json:"licenses,omitempty"`
		Props    []prop    `json:"properties,omitempty"`
	}
	license struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	prop struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// billOfMaterials lists what is in the program, by CycloneDX.
func billOfMaterials(version string, from origin, arch string, modules []module) []byte {
	weir := component{Type: "application", Ref: "weir", Name: "weir", Version: version, Licenses: licensed("Apache-2.0"),
		Props: []prop{{"commit", from.commit}, {"architecture", arch}}}
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{from.date.Format(time.RFC3339), weir}}
	for _, m := range modules {
		purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl, Licenses: licensed(m.license)}
		if m.Sum != "" {
			c.Props = []prop{{"go.sum", m.Sum}}
		}
		b.Components = append(b.Components, c)
	}
	out, _ := json.MarshalIndent(b, "", "  ") // only strings and numbers
	return append(out, '\n')
}

func licensed(id string) []license {
	if id == "" {
		return nil
	}
	var l license
	l.License.ID = id
	return []license{l}
}
