package linux

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"weir/lb"
)

// A chain of iptables that drops by its policy is found, in both backends and families.
func TestDroppingChain(t *testing.T) {
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
			// Rules are no policy, whatever they do.
			sh(t, "%s -A %s -j ACCEPT", program, chain)
			family := lb.IPv4
			if strings.HasPrefix(program, "ip6") {
				family = lb.IPv6
			}
			got, err := DroppingChain(context.Background(), both)
			if want := chain + " of iptables (" + family.String() + ")"; err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", program, got, err, want)
			}
			sh(t, "%s -P %s ACCEPT", program, chain)
			sh(t, "%s -A %s -j DROP", program, chain)
			if got, err := DroppingChain(context.Background(), both); err != nil || got != "" {
				t.Errorf("%s with policy ACCEPT: %q, %v", program, got, err)
			}
			sh(t, "%s -F %s", program, chain)
		}
	}
	if tried == 0 {
		t.Skip("SKIPPED: this kernel has no filter table of iptables")
	}
}

// Rules go to nf_tables, but to iptables beside a chain in which only its rules can accept packets.
func TestSelectNFTables(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	if use, reason := SelectNFTables(context.Background(), c); !use {
		t.Fatalf("on an empty host: %v", reason)
	}
	sh(t, "iptables-nft -P FORWARD DROP")
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	use, reason := SelectNFTables(context.Background(), c)
	if use || !strings.Contains(reason.Error(), "chain FORWARD of iptables (IPv4) drops") {
		t.Errorf("beside Docker: %v, %v", use, reason)
	}
}
