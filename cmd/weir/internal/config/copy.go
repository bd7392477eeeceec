package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Copy is the text of a configuration: its main file, what that includes, and the other
// files whose content a Config holds. It is a Files of just these, so that the same
// Config can be made of it when the files have become others. It holds passwords and
// keys. Kubeconfigs are not in it: a Config has but their names.
type Copy struct {
	// Name is that of the main file.
	Name string `json:"name"`
	// Files are the contents by name, Found the names by pattern.
	Files map[string][]byte   `json:"files"`
	Found map[string][]string `json:"found,omitempty"`
	// Rights are who may read a file, for those where that counts.
	Rights map[string]Access `json:"rights,omitempty"`
}

// Open reads a file as the daemon does, which must have all that the file names, and
// gives a Copy of what it has read; that is there even if the configuration is invalid.
func Open(path string) (*Config, *Copy, error) {
	r := recorder{Disk{}, &Copy{Name: path, Files: map[string][]byte{}, Found: map[string][]string{}, Rights: map[string]Access{}}}
	data, err := readMain(path)
	if err != nil {
		return nil, r.copy, err
	}
	r.copy.Files[path] = data
	cfg, err := Parse(path, data, r)
	return cfg, r.copy, err
}

// Config makes the configuration of a copy.
func (c *Copy) Config() (*Config, error) { return Parse(c.Name, c.Files[c.Name], c) }

// Digest is the same for copies of the same files, and no others.
func (c *Copy) Digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		fmt.Fprintf(h, "%q %d\n%s\n", name, len(c.Files[name]), c.Files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Glob implements Files.
func (c *Copy) Glob(pattern string) ([]string, error) { return slices.Clone(c.Found[pattern]), nil }

// ReadFile implements Files. What the copy does not have is what the machine says, and
// what has another name by now, as a credential may: that is asked anew.
func (c *Copy) ReadFile(name string) ([]byte, error) {
	if data, ok := c.Files[name]; ok {
		return data, nil
	}
	return Disk{}.ReadFile(name)
}

// Access implements Files, likewise.
func (c *Copy) Access(name string) (Access, error) {
	if a, ok := c.Rights[name]; ok {
		return a, nil
	}
	return Disk{}.Access(name)
}

// named implements namedOnly: whoever uses these files reads them himself, so it counts
// what they are by then.
func (c *Copy) named() Files { return Disk{} }

// recorder reads files, and keeps what they said.
type recorder struct {
	Files
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
	if err == nil && !ofMachine(name) {
		r.copy.Files[name] = data
	}
	return data, err
}

func (r recorder) Access(name string) (Access, error) {
	a, err := r.Files.Access(name)
	if err == nil {
		r.copy.Rights[name] = a
	}
	return a, err
}

func (r recorder) named() Files { return r.Files }

// ofMachine tells whether a file is what the kernel says: a host name, an environment.
func ofMachine(name string) bool { return strings.HasPrefix(name, "/proc/") }

// namedOnly gives the Files for those of which a Config has but the name, so that no
// copy of them is made.
func namedOnly(files Files) Files {
	if f, ok := files.(interface{ named() Files }); ok {
		return f.named()
	}
	return files
}
