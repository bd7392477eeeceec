package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/status"
)

// canary is a key that no command may print.
const canary = "UYxw4bJxprjGwXkjar4RG+4H6BEdAr3jNe/I8WDcWpw="

func TestMembers(t *testing.T) {
	t.Parallel()
	fleet := func(states ...status.MemberState) status.Members {
		m := status.Members{Fleet: "edge", Self: "box1", Mode: "active-active", Placement: "spread"}
		for i, s := range states {
			m.Members = append(m.Members, status.Member{Name: "box" + string(rune('1'+i)), Self: i == 0, State: s})
		}
		return m
	}
	for _, tt := range []struct {
		name string
		doc  status.Members
		code int
		says string
	}{
		{"all well", fleet(status.MemberServing, status.MemberStandby, status.MemberDrained), 0, "box1 *  -        serving"},
		{"one is dead", fleet(status.MemberServing, status.MemberDead), 1, "box2    -        dead"},
		{"no fleet", status.Members{}, 0, "the configuration has no [fleet]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			socket, asked := daemonOf(t, map[string]any{"GET /members": tt.doc})
			stdout, stderr, code := weir(t, "members", "--socket", socket)
			if code != tt.code || !strings.Contains(stdout, tt.says) || stderr != "" {
				t.Errorf("exit status %d, want %d; it says %s%s", code, tt.code, stdout, stderr)
			}
			if got := strings.Join(*asked, ", "); got != "GET /members" {
				t.Errorf("it asks %s", got)
			}
		})
	}
	none := filepath.Join(t.TempDir(), "none.sock")
	if _, stderr, code := weir(t, "members", "--socket", none); code != exitNotRunning {
		t.Errorf("without a daemon: exit status %d, %s", code, stderr)
	}
}

// TestNoCommandPrintsAKey has all commands that read the configuration print all they
// can, with good keys and with bad ones.
func TestNoCommandPrintsAKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.toml")
	const tail = "[fleet]\nname = \"edge\"\nmember = \"box1\"\njoin = [\"10.0.0.6\"]\nkeys = [\"fleet.key\"]\n[l2]\ninterfaces = [\"eth0\", \"eth1\"]\n"
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	put("weir.toml", bgpConfig+tail, 0o600)
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		code       int
		says       string
	}{
		{"good", canary + "\n", 0o600, 0, file + ": valid, 1 service, 2 BGP peers, member box1 of fleet edge, ARP and NDP on eth0, eth1\n"},
		{"open to all", canary, 0o644, exitInvalid, "chmod 600 " + filepath.Join(dir, "fleet.key")},
		{"half a key", canary[:20], 0o600, exitInvalid, "contains no key"},
		{"two keys", canary + "\n" + canary, 0o600, exitInvalid, "contains no key"},
	} {
		put("fleet.key", tt.text, tt.mode)
		for _, args := range [][]string{
			{"check"}, {"plan", "--against", "nothing"}, {"bgp", "router-config", "--vendor", "frr"},
		} {
			stdout, stderr, code := weir(t, append(args, "-c", file)...)
			if strings.Contains(stdout+stderr, canary[:12]) {
				t.Errorf("%s: weir %s tells the key:\n%s%s", tt.name, strings.Join(args, " "), stdout, stderr)
			}
			if args[0] == "check" && (code != tt.code || !strings.Contains(stdout+stderr, tt.says)) {
				t.Errorf("%s: exit status %d, want %d; it says %s%s", tt.name, code, tt.code, stdout, stderr)
			}
			if args[0] != "check" && (code == 0) != (tt.code == 0) {
				t.Errorf("%s: weir %s: exit status %d: %s", tt.name, strings.Join(args, " "), code, stderr)
			}
		}
	}
}
