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
		// The kubelet's chain counts with other rules than the kubelet's only.
		sh(t, "%s-restore <<'END'\n%sEND", program, kubeletRules(family))
		found("")
		sh(t, "%s -A KUBE-FIREWALL -j DROP", program)
		found("has rules in KUBE-FIREWALL")
		sh(t, "%s -F; %s -X", program, program)
		// Packets of a Service don't meet OUTPUT and chains without a jump. weir's comment needs weir's chain.
		sh(t, "%s -N OTHER; %s -A OTHER -j DROP; %s -A OUTPUT -j OTHER", program, program, program)
		found("")
		sh(t, "%s -A FORWARD -m comment --comment 'weir: mine' -j OTHER", program)
		found("has rules in FORWARD")
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

// kubeletRules returns the input of iptables-restore for the rules that the kubelet makes, with the rule about marks
// of those before Kubernetes 1.28. That of 127.0.0.0/8 is for IPv4 only.
func kubeletRules(f lb.Family) string {
	rules := `*filter
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping marked packets" -m mark --mark 0x8000/0x8000 -j DROP
`
	if f == lb.IPv4 {
		rules += `-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
`
	}
	return rules + "COMMIT\n"
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
