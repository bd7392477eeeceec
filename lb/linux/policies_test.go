package linux

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"weir/lb"
)

// A used table filter is found, in both backends and families.
func TestNFTSelectionSeesUsedFilters(t *testing.T) {
	inNamespace(t)
	both := []lb.Family{lb.IPv4, lb.IPv6}
	tried := 0
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		for _, chain := range []string{"INPUT", "FORWARD"} {
			if out, err := exec.Command(program, "-P", chain, "DROP").CombinedOutput(); err != nil {
				t.Logf("SKIPPED %s: this kernel can't: %s", program, out)
				continue
			}
			tried++
			family := lb.IPv4
			if strings.HasPrefix(program, "ip6") {
				family = lb.IPv6
			}
			found := func(want string) {
				t.Helper()
				if want != "" {
					want = "iptables (" + family.String() + ") " + want
				}
				if got, err := UsedFilter(context.Background(), both); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("%s: %q, %v; want %q", program, got, err, want)
				}
			}
			found("has policy DROP in " + chain)
			sh(t, "%s -P %s ACCEPT", program, chain)
			found("")
			sh(t, "%s -A %s -j DROP", program, chain)
			found("has rules in ")
			sh(t, "%s -F %s", program, chain)
		}
	}
	if tried == 0 {
		t.Skip("SKIPPED: this kernel has no filter table of iptables")
	}
}

// Rules go to nf_tables, but to iptables beside a chain in which only its rules can accept packets.
func TestNFTIsSelected(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	if use, reason := SelectNFTables(context.Background(), c); !use {
		t.Fatalf("on an empty host: %v", reason)
	}
	sh(t, "iptables-nft -P FORWARD DROP")
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	use, reason := SelectNFTables(context.Background(), c)
	if use || !strings.Contains(reason.Error(), "iptables (IPv4) has policy DROP in FORWARD") {
		t.Errorf("beside Docker: %v, %v", use, reason)
	}
}
