package source

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Files gives access to the files that a configuration names.
type Files interface {
	// Glob returns the names that match a pattern of filepath.Match.
	Glob(pattern string) ([]string, error)
	ReadFile(name string) ([]byte, error)
	// Access returns the access rights of a file.
	Access(name string) (Access, error)
}

// Access is the access rights of a file: its mode and the number of its group. Foreign
// means that the owner is neither root nor the user of this process.
type Access struct {
	Mode    fs.FileMode
	Group   uint32
	Foreign bool
}

// Disk is the file system.
type Disk struct{}

// wild are the characters that make a pattern of a name.
const wild = `*?[\`

// Glob implements Files. A folder or file that can't be read is an error: filepath.Glob ignores it, so that
// its services would be missing.
func (d Disk) Glob(pattern string) ([]string, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	folder, name := filepath.Split(filepath.Clean(pattern))
	folders := []string{filepath.Clean(folder)}
	if strings.ContainsAny(folder, wild) {
		if folders, err = d.Glob(folders[0]); err != nil {
			return nil, err
		}
	}
	for _, f := range folders {
		switch {
		case f == credentialFolder: // for root only, and without configurations
			continue
		case strings.ContainsAny(name, wild):
			_, err = os.ReadDir(f)
		default:
			_, err = os.Lstat(filepath.Join(f, name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return nil, err
		}
	}
	return names, nil
}

// ReadFile implements Files.
func (Disk) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// Access implements Files.
func (Disk) Access(name string) (Access, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Access{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return Access{info.Mode(), stat.Gid, stat.Uid != 0 && int(stat.Uid) != os.Geteuid()}, nil
}

// Elsewhere is the Files of a host that is not available. It has no files, but a host
// name and every credential; their content is valid as a password and as a fleet key.
type Elsewhere struct{}

// Glob implements Files.
func (Elsewhere) Glob(string) ([]string, error) { return nil, nil }

// ReadFile implements Files.
func (Elsewhere) ReadFile(name string) ([]byte, error) {
	switch {
	case name == HostName:
		return []byte("node\n"), nil
	case filepath.Dir(name) == credentialFolder:
		sum := sha256.Sum256([]byte(name)) // a different one for each name
		return []byte(base64.StdEncoding.EncodeToString(sum[:]) + "\n"), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Access implements Files.
func (Elsewhere) Access(name string) (Access, error) {
	if filepath.Dir(name) == credentialFolder {
		return Access{Mode: 0o600}, nil
	}
	return Access{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// Environment and HostName are files of the kernel.
const (
	Environment = "/proc/self/environ"
	HostName    = "/proc/sys/kernel/hostname"
)

// Lookup returns a variable of the environment, "" if there is none. HOSTNAME always
// exists: without the variable it is the host name in lower case, like a Node's name.
func Lookup(files Files, variable string) string {
	env, _ := files.ReadFile(Environment) // an unreadable environment has no variables
	for entry := range strings.SplitSeq(string(env), "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok && name == variable {
			return value
		}
	}
	if variable != "HOSTNAME" {
		return ""
	}
	name, _ := files.ReadFile(HostName)
	return strings.ToLower(strings.TrimSpace(string(name)))
}

// Beside resolves a name in a file: relative to the file's directory.
func Beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// Include is the key with the names of further files.
const Include = "include"

// Read reads the text of the main file and merges the included files into it. It returns
// the names of all files, the main one first, and nil if one of them is no TOML.
func Read(name string, data []byte, files Files, problems *Problems) (root *Value, names []string) {
	r := reader{Problems: problems, files: files, names: []string{name}, seen: map[string]bool{absolute(name): true}}
	root = r.tree(name, data)
	if root == nil {
		return nil, r.names
	}
	for _, pattern := range r.patterns(root) {
		for _, included := range r.expand(pattern) {
			r.include(root, included, pattern.At)
		}
	}
	if r.invalid {
		return nil, r.names
	}
	return root, r.names
}

type reader struct {
	*Problems
	files   Files
	names   []string
	seen    map[string]bool // the absolute names
	invalid bool            // a file is no TOML, so that faults of the others may follow from it
}

// absolute returns a name that is the same for all ways to write it.
func absolute(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return filepath.Clean(name)
}

// tree reads one file.
func (r *reader) tree(name string, data []byte) *Value {
	root, problems := parseTOML(name, []byte(strings.TrimPrefix(string(data), "\ufeff")))
	r.All = append(r.All, problems...)
	r.invalid = r.invalid || root == nil
	return root
}

// patterns removes include from the main file's table and returns its values.
func (r *reader) patterns(root *Value) []*Value {
	v, ok := root.Table[Include]
	if !ok {
		return nil
	}
	delete(root.Table, Include)
	list := v.List
	if v.List == nil {
		list = []*Value{v}
	}
	return slices.DeleteFunc(list, func(e *Value) bool {
		_, isText := e.Scalar.(string)
		if !isText {
			r.Add(Error, e.At, Include, e.String()+" is not a string", "write the name of a file in quotes, or a list of names")
		}
		return !isText
	})
}

// expand returns the files that match a pattern, sorted, without those that are already
// included.
func (r *reader) expand(pattern *Value) []string {
	names, err := r.files.Glob(Beside(pattern.At.File, pattern.Scalar.(string)))
	switch {
	case errors.Is(err, filepath.ErrBadPattern):
		r.Add(Error, pattern.At, Include, pattern.String()+" is not a pattern", "*, ? and [a-z] match parts of names")
	case err != nil:
		r.Add(Error, pattern.At, Include, err.Error(), "make it readable for the daemon, or remove this")
	case len(names) == 0 && !strings.ContainsAny(pattern.Scalar.(string), "*?["):
		r.Add(Error, pattern.At, Include, pattern.String()+" does not exist", "create the file, or remove this")
	}
	slices.Sort(names)
	var out []string
	for _, n := range names {
		if abs := absolute(n); !r.seen[abs] {
			r.seen[abs] = true
			r.names = append(r.names, n)
			out = append(out, n)
		}
	}
	return out
}

// include merges a file; at is the pattern that matches it.
func (r *reader) include(root *Value, name string, at Place) {
	data, err := r.files.ReadFile(name)
	if err != nil {
		r.Add(Error, at, Include, err.Error(), "make it readable for the daemon, or narrow the pattern")
		return
	}
	v := r.tree(name, data)
	if v == nil {
		return
	}
	if nested, ok := v.Table[Include]; ok {
		r.Add(Error, nested.At, Include, "an included file can't include others", "move it to "+r.names[0])
		delete(v.Table, Include)
	}
	root.merge(v, "", func(key string, first, second *Value) {
		r.Add(Error, second.At, key, "is also set at "+first.At.String(), "keep one of them")
	})
}

// MainFile is the main file of a system.
const MainFile = "/etc/weir/weir.toml"

// ReadMain reads a main file.
func ReadMain(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		return data, nil
	case path == MainFile:
		return nil, fmt.Errorf("read the configuration: %w; --config names another file", err)
	}
	return nil, fmt.Errorf("read the configuration: %w", err)
}
