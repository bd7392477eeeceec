package load

import (
	"encoding/json"
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
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("weir.toml", "include = \"conf.d/*.toml\"\n[bgp]\nasn = 64500\n[[bgp.peer]]\nname = \"tor1\"\naddress = \"10.0.0.1\"\nasn = 64501\npassword_file = \"password\"\n"+
		"[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"kubeconfig\"\nnode_name = \"$HOSTNAME\"\n"+
		"[fleet]\nname = \"edge\"\nmember = \"box1\"\njoin = [\"10.0.0.6\"]\nkeys = [\"key\"]\n")
	put("conf.d/a.toml", serviceText("a", "192.0.2.1"))
	put("password", "secret\n")
	put("key", clusterKey)
	put("kubeconfig", kubeconfig)
	name := filepath.Join(dir, "weir.toml")
	want, c, err := Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	var back Copy
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	got, err := back.Config()
	if err != nil {
		t.Fatal(err)
	}
	want.Warnings, got.Warnings = nil, nil // the kubeconfig is not there any more
	if diff := compare(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if back.Digest() != c.Digest() {
		t.Error("the copy of a copy has another digest")
	}
	for file := range c.Files {
		if strings.HasPrefix(file, "/proc/") || strings.HasSuffix(file, "kubeconfig") {
			t.Errorf("%s is copied", file)
		}
	}
	if len(c.Files) != 4 {
		t.Errorf("%d files are copied, want 4", len(c.Files))
	}
}

func TestACopyOfWhatCantBeLoaded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.toml")
	if _, c, err := Open(t.Context(), name); err == nil || len(c.Files) != 0 {
		t.Errorf("no file: %v, %v", c, err)
	}
	if err := os.WriteFile(name, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, c, err := Open(t.Context(), name); err == nil || len(c.Files) != 1 {
		t.Errorf("an invalid file: %v, %v", c, err)
	}
}
