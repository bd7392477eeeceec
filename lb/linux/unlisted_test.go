package linux

import (
	"context"
	"errors"
	"strings"
	"testing"

	"weir/lb"
)

// TestSaveWithoutRoot has an iptables-save that can't list the tables, and a kernel without
// one of weir's tables.
func TestSaveWithoutRoot(t *testing.T) {
	t.Parallel()
	var calls []string
	r := newRules(lb.IPv4, nil, nil)
	r.run = func(_ context.Context, _, name string, args ...string) (string, error) {
		calls = append(calls, strings.Join(append([]string{name}, args...), " "))
		switch {
		case len(args) == 0:
			return "", errors.New("exit status 1: Failed to list table names in /proc/net/ip_tables_names: Permission denied")
		case args[1] == "mangle":
			return "", errors.New("exit status 3: can't initialize iptables table `mangle': Table does not exist (do you need to insmod?)")
		}
		return "*" + args[1] + "\n:INPUT ACCEPT [0:0]\nCOMMIT\n", nil
	}
	p := programs{Legacy, "iptables-legacy-restore", "iptables-legacy-save"}
	for range 2 {
		text, err := r.print(t.Context(), p)
		if have := parseSave(text); err != nil || len(have) != 2 || !have["nat"].builtin["INPUT"] || !have["filter"].builtin["INPUT"] {
			t.Errorf("tables %v, error %v", have, err)
		}
	}
	const each = "iptables-legacy-save -t mangle, iptables-legacy-save -t nat, iptables-legacy-save -t filter"
	if got, want := strings.Join(calls, ", "), "iptables-legacy-save, "+each+", "+each; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	r.run = func(context.Context, string, string, ...string) (string, error) {
		return "", errors.New("Permission denied")
	}
	if _, err := r.print(t.Context(), p); err == nil {
		t.Error("tables that can't be read count as empty")
	}
}
