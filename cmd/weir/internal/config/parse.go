package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Files is where the files come from that a file speaks of.
type Files interface {
	// Glob gives the names that match a pattern of filepath.Match.
	Glob(pattern string) ([]string, error)
	ReadFile(name string) ([]byte, error)
	// Access tells who may read a file.
	Access(name string) (Access, error)
}

// Access is who may read a file: others than its owner as Mode says, and Group, by its
// number. Foreign tells that the owner is neither root nor who asks.
type Access struct {
	Mode    fs.FileMode
	Group   uint32
	Foreign bool
}

// Disk is the real Files.
type Disk struct{}

// Glob implements Files.
func (Disk) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

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

// Load reads the file at path and what it includes, for all but the daemon: of a
// credential or a variable that only weir's unit may have, it warns. An invalid
// configuration is an *Errors; a file that can't be read is what os.ReadFile says.
func Load(path string) (*Config, error) {
	data, err := readMain(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, outside{Disk{}})
}

func readMain(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// Parse makes a Config of the text of a file. Its name is for messages, and
// relative names in it are relative to its folder. An invalid configuration is
// an *Errors.
func Parse(name string, data []byte, files Files) (*Config, error) {
	c, _, err := parseFiles(name, data, files)
	return c, err
}

// parseFiles is Parse that gives the merged files, too.
func parseFiles(name string, data []byte, files Files) (*Config, *value, error) {
	p := parser{files: files, names: []string{name}, collector: &collector{}}
	root, ok := p.file(name, data)
	if ok {
		c := p.config(root)
		if p.finish(); !p.failed() {
			c.Warnings = p.problems
			return c, root, nil
		}
	}
	p.finish()
	return nil, nil, &Errors{p.problems}
}

type parser struct {
	*collector
	files Files
	names []string // of the files, the main one first
}

// file reads the main file and merges those that it includes into it.
func (p *parser) file(name string, data []byte) (*value, bool) {
	root, ok := p.tree(name, data)
	if !ok {
		return nil, false
	}
	for _, pattern := range p.patterns(root) {
		for _, included := range p.expand(pattern) {
			p.include(root, included)
		}
	}
	return root, true
}

// tree reads one file, whatever its syntax allows.
func (p *parser) tree(name string, data []byte) (*value, bool) {
	src := strings.TrimPrefix(string(data), "\ufeff")
	doc, places, problems := syntax(name, src)
	p.problems = append(p.problems, problems...)
	if doc == nil {
		return nil, false
	}
	return build(doc, name, places), true
}

// patterns takes include out of the main file's table, checked.
func (p *parser) patterns(root *value) []*value {
	v, ok := root.table["include"]
	if !ok {
		return nil
	}
	checker{compiled(), p.collector}.value(*compiled().byPath["include"], "include", v)
	delete(root.table, "include")
	return slices.DeleteFunc(v.list, func(e *value) bool { return e.bad })
}

// expand gives the files that a pattern stands for, sorted, without those that
// are included already.
func (p *parser) expand(pattern *value) []string {
	names, err := p.files.Glob(beside(pattern.at.file, pattern.scalar.(string)))
	if err != nil {
		p.add(Error, pattern.at, "include", pattern.String()+" is not a pattern", "*, ? and [a-z] stand for parts of names")
	}
	if len(names) == 0 && err == nil && !strings.ContainsAny(pattern.scalar.(string), "*?[") {
		p.add(Error, pattern.at, "include", pattern.String()+" does not exist", "make the file, or remove this")
	}
	slices.Sort(names)
	var out []string
	for _, n := range slices.Compact(names) {
		if n != filepath.Clean(p.names[0]) && !slices.Contains(p.names, n) {
			p.names = append(p.names, n)
			out = append(out, n)
		}
	}
	return out
}

func (p *parser) include(root *value, name string) {
	data, err := p.files.ReadFile(name)
	if err != nil {
		p.add(Error, place{file: name}, "", err.Error(), "make it readable, or narrow include")
		return
	}
	v, ok := p.tree(name, data)
	if !ok {
		return
	}
	if nested, ok := v.table["include"]; ok {
		p.add(Error, nested.at, "include", "an included file can't include others", "move it to "+p.names[0])
		delete(v.table, "include")
	}
	root.merge(v, "", func(key string, first, second *value) {
		p.add(Error, second.at, key, "is set at "+first.at.String()+" too", "keep one of them")
	})
}

// config makes a Config of the merged files. It goes on after every problem.
func (p *parser) config(root *value) *Config {
	s := compiled()
	checker{s, p.collector}.table("", "", root)
	top := section{p.collector, s, "", "", root}
	c := &Config{
		Files:    p.names,
		Kernel:   readKernel(top.sub("kernel")),
		Defaults: readDefaults(top.sub("defaults")),
		Daemon:   readDaemon(top.sub("daemon")),
	}
	var services []*service
	for _, t := range top.subs("service") {
		svc := readService(t, c, p.files)
		services = append(services, svc)
		c.Services = append(c.Services, svc.lb)
		if svc.check != nil {
			c.Checks = append(c.Checks, *svc.check)
		}
	}
	var clusters []*cluster
	for _, t := range top.subs("kubernetes") {
		cl := readCluster(t, c, p.files)
		clusters = append(clusters, cl)
		c.Clusters = append(c.Clusters, cl.Cluster)
	}
	p.readProvider(services, clusters, c, top)
	p.clashes(services, c, top)
	p.clusterClashes(clusters, c, top)
	if len(services)+len(clusters) == 0 && !p.failed() {
		p.add(Warning, place{file: p.names[0]}, "service", "there are no services", "add a [[service]] or a [[kubernetes]]")
	}
	return c
}

func (p *parser) failed() bool {
	worst, ok := Worst(p.problems)
	return ok && worst == Error
}

// finish puts the problems into the order of the files and their lines.
func (p *parser) finish() {
	slices.SortStableFunc(p.problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(p.names, a.File), slices.Index(p.names, b.File)),
			cmp.Compare(a.Line, b.Line))
	})
	p.problems = slices.Compact(p.problems)
}

// Elsewhere is the Files of a machine that is not at hand: there are none, but it has
// a host name, and every credential. What they hold will do as a password, and as a
// key of a fleet.
type Elsewhere struct{}

// Glob implements Files.
func (Elsewhere) Glob(string) ([]string, error) { return nil, nil }

// ReadFile implements Files.
func (Elsewhere) ReadFile(name string) ([]byte, error) {
	switch {
	case name == hostname:
		return []byte("node\n"), nil
	case filepath.Dir(name) == credentialFolder:
		sum := sha256.Sum256([]byte(name)) // no two are the same
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
