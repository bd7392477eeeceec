package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// shipped are the folders with files that nfpm.yaml packages unchanged.
var shipped = []string{"configs", "systemd", "packaging"}

// stage collects the content of a package in a folder, including the generated files
// that nfpm.yaml calls made/...
func (p *packer) stage(ctx context.Context, dir, arch string) error {
	made := filepath.Join(dir, "made")
	weir := filepath.Join(made, "weir")
	if err := p.build(ctx, weir, arch); err != nil {
		return err
	}
	if arch == runtime.GOARCH {
		p.here = weir
	}
	if p.here == "" {
		p.here = filepath.Join(dir, "weir-here")
		if err := p.build(ctx, p.here, runtime.GOARCH); err != nil {
			return err
		}
	}
	if err := writeManual(ctx, p.here, made); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(weir)
	if err != nil {
		return err
	}
	modules, err := readModules(ctx, info)
	if err != nil {
		return err
	}
	changes, err := os.ReadFile("packaging/CHANGELOG.md")
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"sbom.cdx.json": billOfMaterials(p.version, p.from, arch, modules),
		"licenses.gz":   zipped(licenseTexts(modules)),
		"copyright":     copyright(p.from.date.Year()),
		"changelog.gz":  zipped(debianChangelog(string(changes), p.version, p.from.date)),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(made, name), content, 0o644); err != nil {
			return err
		}
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), license, 0o644); err != nil {
		return err
	}
	for _, folder := range shipped {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(folder)); err != nil {
			return err
		}
	}
	if err := p.compressAs(filepath.Join(dir, "packaging", "nfpm.yaml")); err != nil {
		return err
	}
	return normalize(dir, p.from.date)
}

// debCompression is the line of nfpm.yaml with the method for debs.
const debCompression = "deb:\n  compression: xz\n"

// compressAs has a copy of nfpm.yaml name the chosen method for debs. xz takes 20 seconds, which tests
// that install a package need not wait for.
func (p *packer) compressAs(file string) error {
	if p.compression == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, after, found := strings.Cut(string(text), debCompression)
	if !found {
		return fmt.Errorf("nfpm.yaml has no %q", debCompression)
	}
	return os.WriteFile(file, []byte(before+"deb:\n  compression: "+p.compression+"\n"+after), 0o644)
}

// build builds the program, statically linked and reproducible.
func (p *packer) build(ctx context.Context, file, arch string) error {
	flags := fmt.Sprintf("-s -w -buildid= -X main.buildVersion=%s -X main.buildCommit=%s -X main.buildDate=%s",
		p.version, p.from.commit, p.from.date.Format(time.RFC3339))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", file, "weir/cmd/weir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build weir for %s: %w\n%s", arch, err, bytes.TrimSpace(out))
	}
	return nil
}

// completions are the file names of completions, by shell.
var completions = map[string]string{"bash": "weir.bash", "zsh": "_weir", "fish": "weir.fish"}

// writeManual generates man8/*.8.gz, man5/*.5.gz and completions with weir itself.
func writeManual(ctx context.Context, weir, made string) error {
	raw := filepath.Join(made, "manual")
	if _, err := output(ctx, weir, "manual", raw); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(raw, "*"))
	for _, page := range pages {
		text, bad := os.ReadFile(page)
		section := filepath.Join(made, "man"+strings.TrimPrefix(filepath.Ext(page), "."))
		err = errors.Join(err, bad, os.MkdirAll(section, 0o755),
			os.WriteFile(filepath.Join(section, filepath.Base(page)+".gz"), zipped(text), 0o644))
	}
	for shell, name := range completions {
		cmd := exec.CommandContext(ctx, weir, "completion", shell)
		text, bad := cmd.Output()
		err = errors.Join(err, bad, os.WriteFile(filepath.Join(made, name), text, 0o644))
	}
	return err
}

// zipped compresses like gzip -9n: without a name and a time.
func zipped(content []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = w.Write(content)                                 // to memory
	_ = w.Close()
	return out.Bytes()
}

// normalize sets the modes and times of all files, which differ between clones.
func normalize(dir string, date time.Time) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 { // a folder, or a program
			mode = 0o755
		}
		return errors.Join(os.Chmod(path, mode), os.Chtimes(path, date, date))
	})
}
