package load

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"weir/cmd/weir/internal/config/source"
)

// TestOutside shows what is an error for the daemon, and hidden from who checks by hand.
func TestOutside(t *testing.T) {
	t.Parallel()
	const (
		password = onePeer + "password_file = \"credential:pw\"\n"
		key      = "[fleet]\nname = \"edge\"\njoin = [\"10.0.0.2\"]\nkeys = [\"credential:key\"]\n"
		node     = "[[kubernetes]]\nname = \"own\"\nnode_name = \"$NODE_NAME\"\n"
	)
	runs := func(more memory) memory {
		files := memory{source.HostName: "Box1\n", "/run/credentials/weir.service": ""}
		for name, text := range more {
			files[name] = text
		}
		return files
	}
	idle := memory{source.HostName: "Box1\n"}
	for _, tt := range []struct {
		name, text string
		files      memory
		want       string // the message
		severity   source.Severity
	}{
		{"a password that a drop-in may pass", password, idle, "/etc/weir/credentials/pw does not exist; create it, unless a drop-in of weir's unit passes weir_pw; weir does not start without it", source.Warning},
		{"a key likewise", key, idle, "/etc/weir/credentials/key does not exist; create it, unless a drop-in of weir's unit passes weir_key; weir does not start without it", source.Warning},
		{"a variable likewise", node, idle, "the environment has no NODE_NAME, and weir does not start without it", source.Warning},
		{"a password that weir has", password, runs(memory{"/run/credentials/weir.service" + "/weir_pw": "unreadable"}), "", 0},
		{"a key that weir has", key, runs(memory{"/run/credentials/weir.service" + "/weir_key": "unreadable"}), "", 0},
		{"a password that weir, which runs, was not given", password, runs(nil), "open /etc/weir/credentials/pw", source.Error},
		{"a key likewise", key, runs(nil), "stat /etc/weir/credentials/key", source.Error},
		{"within the unit", password, memory{source.Environment: passedOn}, "/etc/weir/credentials/pw did not exist when weir started", source.Error},
		{"a variable within the unit", node, memory{source.Environment: passedOn, source.HostName: "box1\n"}, "the environment has no NODE_NAME", source.Error},
		{"a file that is no credential", onePeer + "password_file = \"pw\"\n", idle, "open pw", source.Error},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("weir.toml", []byte(tt.text), source.Outside{Files: tt.files})
			var said []source.Problem
			var invalid *source.Errors
			switch {
			case errors.As(err, &invalid):
				said = invalid.Problems
			case err != nil:
				t.Fatal(err)
			default:
				said = c.Warnings
			}
			about := slices.DeleteFunc(said, func(p source.Problem) bool { // what else is odd about so short a file
				return p.Severity == source.Note || !slices.ContainsFunc([]string{"password_file", "keys", "node_name"}, func(key string) bool { return strings.HasSuffix(p.Key, key) })
			})
			if tt.want == "" {
				if len(about) > 0 {
					t.Errorf("said %v", about)
				}
			} else if len(about) != 1 || about[0].Severity != tt.severity || !strings.Contains(about[0].String(), tt.want) {
				t.Errorf("said %v, want %q, %v", about, tt.want, tt.severity)
			}
			// The daemon has no such mercy.
			if _, err := Parse("weir.toml", []byte(tt.text), tt.files); err == nil {
				t.Error("the daemon takes it")
			}
		})
	}
}

// TestLoadIsFromOutside shows who is merciful: Load, and not Open.
func TestLoadIsFromOutside(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	file := filepath.Join(t.TempDir(), "weir.toml")
	must(t, os.WriteFile(file, []byte("[[kubernetes]]\nname = \"own\"\nnode_name = \"$WEIR_NO_SUCH_VARIABLE\"\n"), 0o600))
	if c, err := File(file); err != nil || len(c.Clusters) != 1 || c.Clusters[0].NodeName == "" {
		t.Errorf("Load: %v", err)
	}
	if _, err := LoadEffective(file); err != nil {
		t.Errorf("LoadEffective: %v", err)
	}
	if _, _, err := Open(t.Context(), file); err == nil || !strings.Contains(err.Error(), "WEIR_NO_SUCH_VARIABLE") {
		t.Errorf("Open says %v", err)
	}
}

// TestWithoutSecrets loads a configuration beside which its secrets are missing: the copy that a
// removed package keeps.
func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "weir.toml")
	const text = "[kernel]\nname_prefix = \"EDGE\"\n" +
		"[fleet]\nname = \"edge\"\njoin = [\"10.0.0.2\"]\nkeys = [\"fleet.key\", \"credential:new.key\"]\n" +
		"[[kubernetes]]\nname = \"prod\"\nkubeconfig = \"prod.kubeconfig\"\nnode_name = \"$WEIR_NO_SUCH_VARIABLE\"\n" +
		onePeer + "password_file = \"router1\"\n"
	must(t, os.WriteFile(file, []byte(text), 0o600))
	if _, err := File(file); err == nil {
		t.Error("File accepts missing secrets")
	}
	c, err := WithoutSecrets(file)
	if err != nil || c.Kernel.NamePrefix != "EDGE" {
		t.Fatalf("WithoutSecrets: %v", err)
	}
	for _, w := range c.Warnings {
		if strings.Contains(w.String(), "router1") || strings.Contains(w.String(), ".key") || strings.Contains(w.String(), "prod.kubeconfig") {
			t.Errorf("it warns about a secret: %s", w)
		}
	}
}
