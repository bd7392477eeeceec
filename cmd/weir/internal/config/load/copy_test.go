package load

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A copy makes the same configuration when its files are gone, and holds no more than
// it needs for that.
func TestACopyOutlivesItsFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	put("weir.toml", "include = \"conf.d/*.toml\"\n[bgp]\nasn = 64500\n[[bgp.peer]]\nname = \"tor1\"\naddress = \"10.0.0.1\"\nasn = 64501\npassword_file = \"password\"\n"+
		"[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"kubeconfig\"\nnode_name = \"$HOSTNAME\"\n"+
		"[fleet]\nname = \"edge\"\nmember = \"box1\"\njoin = [\"10.0.0.6\"]\nkeys = [\"key\"]\n")
	put("conf.d/a.toml", serviceText("a", "192.0.2.1")+"[service.check]\ntype = \"tls\"\nverify = true\nca_file = \"ca.pem\"\n")
	put("conf.d/ca.pem", certificate(t))
	put("password", "secret\n")
	put("key", clusterKey)
	put("kubeconfig", kubeconfig)
	name := filepath.Join(dir, "weir.toml")
	want, c, err := Open(t.Context(), name)
	must(t, err)
	data, err := json.Marshal(c)
	must(t, err)
	must(t, os.RemoveAll(dir))
	var back Copy
	must(t, json.Unmarshal(data, &back))
	got, err := back.Config()
	must(t, err)
	want.Warnings, got.Warnings = nil, nil // the kubeconfig is not there any more
	if diff := compare(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if back.Digest() != c.Digest() || back.TextDigest() != c.TextDigest() {
		t.Error("the copy of a copy has another digest")
	}
	for file, isText := range map[string]bool{"weir.toml": true, "conf.d/a.toml": true, "password": false, "conf.d/ca.pem": false, "key": false} {
		changed := *c
		changed.Files = maps.Clone(c.Files)
		changed.Files[filepath.Join(dir, file)] = []byte("another")
		if changed.Digest() == c.Digest() || changed.TextDigest() == c.TextDigest() == isText {
			t.Errorf("another %s: the digests are %s and %s", file, changed.Digest(), changed.TextDigest())
		}
	}
	for file := range c.Files {
		if strings.HasPrefix(file, "/proc/") || strings.HasSuffix(file, "kubeconfig") {
			t.Errorf("%s is copied", file)
		}
	}
	if got.Checks[0].Check.CA == "" {
		t.Error("the certificates are lost")
	}
	if len(c.Files) != 5 {
		t.Errorf("%d files are copied, want 5", len(c.Files))
	}
}

func TestACopyOfWhatCantBeLoaded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.toml")
	if _, c, err := Open(t.Context(), name); err == nil || len(c.Files) != 0 {
		t.Errorf("no file: %v, %v", c, err)
	}
	must(t, os.WriteFile(name, []byte("nothing"), 0o600))
	if _, c, err := Open(t.Context(), name); err == nil || len(c.Files) != 1 {
		t.Errorf("an invalid file: %v, %v", c, err)
	}
}
