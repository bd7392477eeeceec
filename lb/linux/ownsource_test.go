package linux

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/lb"
)

// TestOwnSourceGoesBeforeItsRule shows that accept_local is 1 only while the rule drops packets of other
// hosts, and that weir does not reset the parameter of another program.
func TestOwnSourceGoesBeforeItsRule(t *testing.T) {
	t.Parallel()
	const jump = "*mangle\n:KUBE-PROXY-FIREWALL - [0:0]\n-A KUBE-PROXY-FIREWALL -m addrtype --src-type LOCAL -j KUBE-OWN-SOURCE\nCOMMIT\n"
	none := strings.Replace(jump, " -j KUBE-OWN-SOURCE", "", 1)
	needed := []string{lb.OwnSourceSysctl().Name}
	for _, tt := range []struct {
		name            string
		rules           string // in the kernel
		unmanaged, fail bool
		verb            lb.Verb
		sysctls         []string
		before          string
		during, after   string // the parameter
	}{
		{"the first check", none, false, false, lb.Change, needed, "0", "0", "1"},
		{"the first check, without the rule", none, false, true, lb.Change, needed, "0", "0", "0"},
		{"a check more", jump, false, false, lb.Change, needed, "1", "1", "1"},
		{"the last check", jump, false, false, lb.Change, nil, "1", "0", "0"},
		{"cleanup", jump, false, false, lb.Delete, needed, "1", "0", "0"},
		{"cleanup, set by another program", none, false, false, lb.Delete, nil, "1", "1", "1"},
		{"cleanup, with manage_sysctls = false", jump, true, false, lb.Delete, nil, "1", "1", "1"},
	} {
		root := t.TempDir()
		file := filepath.Join(root, "net/ipv4/conf/all/accept_local")
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(tt.before), 0o600)))
		value := func() string { b, _ := os.ReadFile(file); return string(b) }
		c := DefaultConfig()
		c.Prefix, c.CheckVIPs, c.Sysctls, c.ManageSysctls = "KUBE", slices.Equal(tt.sysctls, needed), tt.sysctls, !tt.unmanaged
		r := newRules(lb.IPv4, func(context.Context, string, string, ...string) (string, error) { return tt.rules, nil }, nil)
		r.candidates, r.decided, r.config = []programs{{backend: NFT, save: "iptables-save"}}, true, c
		k := &core{config: c, log: slog.New(slog.DiscardHandler), sysctls: sysctls{root}}
		failure := map[bool]error{true: errors.New("refused")}[tt.fail]
		during := ""
		if err := withOwnSource(t.Context(), k, tt.verb, r, func() error { during = value(); return failure }); !errors.Is(err, failure) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if during != tt.during || value() != tt.after {
			t.Errorf("%s: %s during the change and %s after it, want %s and %s", tt.name, during, value(), tt.during, tt.after)
		}
	}
}

// TestNFTOwnSource finds the jump among the rules of nf_tables.
func TestNFTOwnSource(t *testing.T) {
	c := DefaultConfig()
	r := newRules(lb.IPv4, nil, nil)
	r.nft = nftBox(t, lb.IPv4, c)
	r.own = func(_ context.Context, change func() error) error { return change() }
	for _, checks := range []bool{true, false, true} {
		c.CheckVIPs = checks
		r.configure(c)
		must(t, r.place(t.Context()))
		if drops, err := dropsOwnSource(t.Context(), r); err != nil || drops != checks {
			t.Errorf("checks of VIPs %v: drops %v, %v", checks, drops, err)
		}
	}
}
