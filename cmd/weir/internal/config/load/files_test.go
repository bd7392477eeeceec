package load

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config/source"
)

// memory is a disk of files by their names.
type memory map[string]string

func (m memory) Glob(pattern string) ([]string, error) {
	var out []string
	for name := range m {
		ok, err := filepath.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, name)
		}
	}
	return out, nil
}

func (m memory) ReadFile(name string) ([]byte, error) {
	text, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if text == "unreadable" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return []byte(text), nil
}

// Access is that of a secret, but for files with their own.
func (m memory) Access(name string) (source.Access, error) {
	text, ok := m[name]
	if !ok {
		return source.Access{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	if strings.HasPrefix(text, "public") {
		return source.Access{Mode: 0o644}, nil
	}
	return source.Access{Mode: 0o600}, nil
}

func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func serviceText(name, vip string) string {
	return "[[service]]\nname = \"" + name + "\"\nvips = [\"" + vip + "\"]\nports = [80]\nbackends = [\"10.0.0.1\"]\n"
}

func TestInclude(t *testing.T) {
	files := memory{
		"/etc/weir/weir.toml":         "unreadable", // the main file is never read twice
		"/etc/weir/conf.d/b.toml":     serviceText("b", "192.0.2.2") + "[daemon]\nlog_level = \"debug\"\n",
		"/etc/weir/conf.d/a.toml":     serviceText("a", "192.0.2.1") + "[kernel]\nping = false\n",
		"/etc/weir/conf.d/a.toml.bak": "garbage",
		"/srv/c.toml":                 serviceText("c", "192.0.2.3"),
	}
	main := `include = ["conf.d/*.toml", "/srv/c.toml", "empty.d/*.toml", "weir.*", "conf.d/a.*l"]` + "\n" +
		"[kernel]\ndevice = \"weir0\"\n" + serviceText("main", "192.0.2.9")
	c, err := Parse("/etc/weir/weir.toml", []byte(main), files)
	must(t, err)
	var names []string
	for _, s := range c.Services {
		names = append(names, s.ID.Name)
	}
	if want := []string{"main", "a", "b", "c"}; !slices.Equal(names, want) {
		t.Errorf("services %q, want %q", names, want)
	}
	want := []string{"/etc/weir/weir.toml", "/etc/weir/conf.d/a.toml", "/etc/weir/conf.d/b.toml", "/srv/c.toml"}
	if !slices.Equal(c.Files, want) {
		t.Errorf("files %q, want %q", c.Files, want)
	}
	if c.Kernel.Device != "weir0" || c.Kernel.Ping {
		t.Errorf("kernel %+v: want the keys of both files", c.Kernel)
	}
}

// TestIncludeOfItself skips the main file, and a file that is already included, under another name.
func TestIncludeOfItself(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, os.WriteFile("weir.toml", []byte("include = [\"*.toml\", \""+dir+"/*.toml\", \""+dir+"/../"+filepath.Base(dir)+"/a.toml\"]\n"), 0o600))
	must(t, os.WriteFile("a.toml", []byte(serviceText("a", "192.0.2.1")), 0o600))
	c, err := File("weir.toml")
	must(t, err)
	if want := []string{"weir.toml", "a.toml"}; !slices.Equal(c.Files, want) {
		t.Errorf("files %q, want %q", c.Files, want)
	}
}

func TestIncludedFileThatCantBeRead(t *testing.T) {
	_, err := Parse("weir.toml", []byte(`include = "a.toml"`), memory{"a.toml": "unreadable"})
	if err == nil || err.Error() != "weir.toml:1: include: open a.toml: permission denied; make it readable for the daemon, or narrow the pattern" {
		t.Errorf("got %v", err)
	}
}

// hidden is a disk with a folder that can't be read.
type hidden struct{ memory }

func (hidden) Glob(string) ([]string, error) {
	return nil, &fs.PathError{Op: "open", Path: "conf.d", Err: fs.ErrPermission}
}

// TestFolderThatCantBeRead has an error: without one, all of its services would end.
func TestFolderThatCantBeRead(t *testing.T) {
	_, err := Parse("weir.toml", []byte(`include = "conf.d/*.toml"`), hidden{})
	if err == nil || err.Error() != "weir.toml:1: include: open conf.d: permission denied; make it readable for the daemon, or remove this" {
		t.Errorf("got %v", err)
	}
}

func TestCAFileIsBesideItsFile(t *testing.T) {
	files := memory{
		"/etc/weir/conf.d/a.toml":      serviceText("a", "192.0.2.1") + "[service.check]\ntype = \"tls\"\nverify = true\nca_file = \"ca/root.pem\"\n",
		"/etc/weir/conf.d/ca/root.pem": certificate(t),
	}
	c, err := Parse("/etc/weir/weir.toml", []byte(`include = "conf.d/*.toml"`), files)
	must(t, err)
	if got, want := c.Checks[0].Check.CA, strings.TrimSpace(files["/etc/weir/conf.d/ca/root.pem"]); got != want {
		t.Errorf("ca_file %q, want %q", got, want)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := File(filepath.Join(dir, "none.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	name := filepath.Join(dir, "weir.toml")
	must(t, os.WriteFile(name, []byte("\ufeffinclude = \"*.toml\"\r\n"+serviceText("a", "192.0.2.1")), 0o600))
	c, err := File(name)
	must(t, err)
	if len(c.Services) != 1 || !slices.Equal(c.Files, []string{name}) {
		t.Errorf("got %d services of %q", len(c.Services), c.Files)
	}
}
