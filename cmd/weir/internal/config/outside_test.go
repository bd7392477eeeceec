package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOutside shows what is an error for the daemon, and hidden from who checks by hand.
func TestOutside(t *testing.T) {
	t.Parallel()
	const (
		password = onePeer + "password_file = \"credential:pw\"\n"
		key      = "[cluster]\nname = \"edge\"\njoin = [\"10.0.0.2\"]\nkeys = [\"credential:key\"]\n"
		node     = "[[kubernetes]]\nname = \"own\"\nnode_name = \"$NODE_NAME\"\n"
	)
	runs := func(more memory) memory {
		files := memory{hostname: "Box1\n", handedFolder: ""}
		for name, text := range more {
			files[name] = text
		}
		return files
	}
	idle := memory{hostname: "Box1\n"}
	for _, tt := range []struct {
		name, text string
		files      memory
		want       string // said
		severity   Severity
	}{
		{"a password that a drop-in may pass", password, idle, "there is no /etc/weir/credentials/pw; put it there, unless a drop-in of weir's unit passes weir_pw: without it", Warning},
		{"a key likewise", key, idle, "there is no /etc/weir/credentials/key; put it there, unless a drop-in of weir's unit passes weir_key: without it", Warning},
		{"a variable likewise", node, idle, "the environment has no NODE_NAME, without which weir does not start", Warning},
		{"a password that weir has", password, runs(memory{handedFolder + "/weir_pw": "unreadable"}), "", 0},
		{"a key that weir has", key, runs(memory{handedFolder + "/weir_key": "unreadable"}), "", 0},
		{"a password that weir, which runs, was not given", password, runs(nil), "open /etc/weir/credentials/pw", Error},
		{"a key likewise", key, runs(nil), "stat /etc/weir/credentials/key", Error},
		{"within the unit", password, memory{environment: passedOn}, "there was no /etc/weir/credentials/pw when weir started", Error},
		{"a variable within the unit", node, memory{environment: passedOn, hostname: "box1\n"}, "the environment has no NODE_NAME", Error},
		{"a file that is no credential", onePeer + "password_file = \"pw\"\n", idle, "open pw", Error},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("weir.toml", []byte(tt.text), outside{tt.files})
			var said []Problem
			var invalid *Errors
			switch {
			case errors.As(err, &invalid):
				said = invalid.Problems
			case err != nil:
				t.Fatal(err)
			default:
				said = c.Warnings
			}
			about := slices.DeleteFunc(said, func(p Problem) bool { // what else is odd about so short a file
				return p.Severity == Note || !slices.ContainsFunc([]string{"password_file", "keys", "node_name"}, func(key string) bool { return strings.HasSuffix(p.Key, key) })
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
	t.Setenv(credentialsDirectory, "")
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, []byte("[[kubernetes]]\nname = \"own\"\nnode_name = \"$WEIR_NO_SUCH_VARIABLE\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(file); err != nil || len(c.Clusters) != 1 || c.Clusters[0].NodeName == "" {
		t.Errorf("Load: %v", err)
	}
	if _, err := LoadEffective(file); err != nil {
		t.Errorf("LoadEffective: %v", err)
	}
	if _, _, err := Open(file); err == nil || !strings.Contains(err.Error(), "WEIR_NO_SUCH_VARIABLE") {
		t.Errorf("Open says %v", err)
	}
}
