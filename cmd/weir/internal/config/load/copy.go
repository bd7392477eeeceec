package load

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"
)

// Copy is the text of a configuration: its main file, its includes, and all other files
// with content in the Config. It is a Files of only these, so that the same Config can be
// made after the files have changed. It contains passwords and keys. It does not contain
// kubeconfigs, because a Config has only their names.
type Copy struct {
	// Name is the name of the main file.
	Name string `json:"name"`
	// Files are the contents by name, Found the names by pattern.
	Files map[string][]byte   `json:"files"`
	Found map[string][]string `json:"found,omitempty"`
	// Rights are the access rights of files where they matter.
	Rights map[string]source.Access `json:"rights,omitempty"`
}

// Open reads a file for the daemon, which needs all credentials and variables. It also
// returns a Copy of the files it has read, even if the configuration is invalid. It waits
// until no program writes to one (Quiesce), and reads them again if one did meanwhile: at
// most openTries times, and no longer than ctx.
func Open(ctx context.Context, path string) (cfg *config.Config, read *Copy, err error) {
	for try := 1; ; try++ {
		Quiesce(ctx, path)
		last := try == openTries || ctx.Err() != nil
		before := lastWrite(path)
		if untilQuiet(path) > 0 && !last {
			continue
		}
		if cfg, read, err = open(path); last || lastWrite(path).Equal(before) {
			return cfg, read, err
		}
	}
}

func open(path string) (*config.Config, *Copy, error) {
	r := recorder{source.Disk{}, &Copy{Name: path, Files: map[string][]byte{}, Found: map[string][]string{}, Rights: map[string]source.Access{}}}
	data, err := source.ReadMain(path)
	if err != nil {
		return nil, r.copy, err
	}
	r.copy.Files[path] = data
	cfg, err := Parse(path, data, r)
	return cfg, r.copy, err
}

// Config returns the configuration of a copy.
func (c *Copy) Config() (*config.Config, error) { return Parse(c.Name, c.Files[c.Name], c) }

// Effective returns the values in effect with a copy.
func (c *Copy) Effective() (*Effective, error) { return Show(c.Name, c.Files[c.Name], c) }

// Digest returns a text that is the same only for copies of the same files.
func (c *Copy) Digest() string { return c.digest(slices.Collect(maps.Keys(c.Files))) }

// TextDigest returns a text that is the same only for copies of the same main file and includes: others,
// such as certificates, are renewed by programs.
func (c *Copy) TextDigest() string {
	names := []string{c.Name}
	for _, found := range c.Found {
		names = append(names, found...)
	}
	return c.digest(names)
}

func (c *Copy) digest(names []string) string {
	slices.Sort(names)
	h := sha256.New()
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(h, "%q %d\n%s\n", name, len(c.Files[name]), c.Files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Glob implements source.Files.
func (c *Copy) Glob(pattern string) ([]string, error) { return slices.Clone(c.Found[pattern]), nil }

// ReadFile implements source.Files. It reads files that are not in the copy from the disk:
// those of the kernel, and credentials, because their names change with each start.
func (c *Copy) ReadFile(name string) ([]byte, error) {
	if data, ok := c.Files[name]; ok {
		return data, nil
	}
	return source.Disk{}.ReadFile(name)
}

// Access implements source.Files in the same way.
func (c *Copy) Access(name string) (source.Access, error) {
	if a, ok := c.Rights[name]; ok {
		return a, nil
	}
	return source.Disk{}.Access(name)
}

// Named returns the files that the configuration only names: their users read them from
// the disk.
func (c *Copy) Named() source.Files { return source.Disk{} }

// recorder reads files and keeps their contents.
type recorder struct {
	source.Files
	copy *Copy
}

func (r recorder) Glob(pattern string) ([]string, error) {
	names, err := r.Files.Glob(pattern)
	if err == nil {
		r.copy.Found[pattern] = slices.Clone(names)
	}
	return names, err
}

func (r recorder) ReadFile(name string) ([]byte, error) {
	data, err := r.Files.ReadFile(name)
	if err == nil && !strings.HasPrefix(name, "/proc/") {
		r.copy.Files[name] = data
	}
	return data, err
}

func (r recorder) Access(name string) (source.Access, error) {
	a, err := r.Files.Access(name)
	if err == nil {
		r.copy.Rights[name] = a
	}
	return a, err
}

// Named returns the files without a record.
func (r recorder) Named() source.Files { return r.Files }
