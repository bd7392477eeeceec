package linux

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"weir/lb"
)

// A used table filter is found, in both backends and families. weir's own rules of an earlier run are no use of it.
func TestNFTSelectionSeesUsedFilters(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	tried := 0
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		family := lb.IPv4
		if strings.HasPrefix(program, "ip6") {
			family = lb.IPv6
		}
		found := func(want string) {
			t.Helper()
			if want != "" {
				want = "iptables (" + family.String() + ") " + want
			}
			if got, err := UsedFilter(context.Background(), c); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s: %q, %v; want %q", program, got, err, want)
			}
		}
		if out, err := exec.Command(program, "-P", "INPUT", "DROP").CombinedOutput(); err != nil {
			t.Logf("SKIPPED %s: this kernel can't: %s", program, out)
			continue
		}
		tried++
		sh(t, "%s -P INPUT ACCEPT", program)
		for _, restored := range []string{"", jumpsOnly(c, family)} {
			sh(t, "%s-restore <<'END'\n%sEND", program, restored)
			found("")
			for _, chain := range []string{"INPUT", "FORWARD"} {
				sh(t, "%s -P %s DROP", program, chain)
				found("has policy DROP in " + chain)
				sh(t, "%s -P %s ACCEPT", program, chain)
				found("")
				sh(t, "%s -A %s -j DROP", program, chain)
				found("has rules in ")
				sh(t, "%s -D %s -j DROP", program, chain)
			}
		}
		// kube-proxy has chains of the same names, and its jumps have other comments.
		kubeProxy := `INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`
		sh(t, "%s -A %s", program, kubeProxy)
		found("has rules in ")
		sh(t, "%s -D %s; %s -A INPUT -m comment --comment 'weir: mine' -j DROP", program, kubeProxy, program)
		found("has rules in ")
		sh(t, "%s -F INPUT; %s -N KUBE-NODE-PORT; %s -A INPUT -j KUBE-NODE-PORT", program, program, program)
		found("has rules in ")
		sh(t, "%s -F; %s -X", program, program)
		other := DefaultConfig()
		other.Prefix = "LB"
		sh(t, "%s-restore <<'END'\n%sEND", program, jumpsOnly(other, family))
		found("has rules in ") // of another name_prefix
		sh(t, "%s -F; %s -X", program, program)
	}
	if tried == 0 {
		t.Skip("SKIPPED: this kernel has no filter table of iptables")
	}
}

// jumpsOnly returns the input of iptables-restore for weir's chains of table filter, each with a rule that every
// kernel knows, and the jumps to them.
func jumpsOnly(c Config, f lb.Family) string {
	var b strings.Builder
	for _, own := range iptablesRules(c, f, byIPVS, insidePorts{}) {
		if own.name == "filter" {
			for i := range own.chains {
				own.chains[i].rules = []string{"-j RETURN"}
			}
			own.writeRestore(&b, savedTable{})
		}
	}
	return b.String()
}

// Rules go to nf_tables, also after a run with iptables, but to iptables beside a chain in which only its rules can
// accept packets.
func TestNFTIsSelected(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	if use, reason := SelectNFTables(context.Background(), c); !use {
		t.Fatalf("on an empty host: %v", reason)
	}
	sh(t, "iptables-nft-restore <<'END'\n%sEND", jumpsOnly(c, lb.IPv4))
	if use, reason := SelectNFTables(context.Background(), c); !use {
		t.Errorf("after a run with iptables: %v", reason)
	}
	sh(t, "iptables-nft -P FORWARD DROP")
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	use, reason := SelectNFTables(context.Background(), c)
	if use || !strings.Contains(reason.Error(), "iptables (IPv4) has policy DROP in FORWARD") {
		t.Errorf("beside Docker: %v, %v", use, reason)
	}
}
