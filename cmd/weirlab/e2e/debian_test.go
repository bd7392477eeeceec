package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestDebianKernel is about Debian's own kernel and modules, with both backends of iptables: what operators
// get. The kernel is emulated, so the test takes two minutes. TestNFTables has the same rules on the lab's
// kernel.
func TestDebianKernel(t *testing.T) {
	t.Parallel()
	soakOnly(t, "its processor is emulated")
	s := newEssentials(t, lab.Qemu)
	t.Run("auto", func(t *testing.T) {
		s.fresh(t, essentials("auto"))
		s.usesIPTables(t, "nft")
	})
	t.Run("nft", func(t *testing.T) { s.servesWith(t, "nft") })
	t.Run("legacy", func(t *testing.T) { s.servesWith(t, "legacy") })
}

// TestNFTables is about rules of iptables-nft, on a kernel that is not emulated.
func TestNFTables(t *testing.T) {
	t.Parallel()
	if os.Getenv(lab.KernelVariable) == "uml-old" {
		t.Skip("SKIPPED: Debian's binary of user-mode Linux 6.1 has no NAT in nf_tables; uml-6.1 has it")
	}
	newEssentials(t, lab.UML).servesWith(t, "nft")
}

// debianChecks are conformance checks of all kinds: three protocols, source ranges, NodePorts, masquerading, a
// health check port, a kept address of a client, other ports of a VIP, IPv6, and both traffic policies.
var debianChecks = []int{5, 13, 18, 27, 30, 38, 50, 56, 81, 85}

// TestDebianKernelInNFTables puts ten checks to Debian's own kernel with the rules in nf_tables. Two more are
// about audits and the cleanup.
func TestDebianKernelInNFTables(t *testing.T) {
	t.Parallel()
	soakOnly(t, "its processor is emulated")
	p := conformanceSite()
	p.Boxes[0].Kernel = lab.Qemu
	c := newConformanceOn(t, p)
	c.only = debianChecks
	e := &weirEngine{c: c, mode: nftablesMode}
	c.putAll(t, e)
	t.Run("audits find nothing to repair", func(t *testing.T) {
		e.start(t, options{})
		k := newKubeKit(t, c, e)
		k.given(everything(), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atLB, "L1 R1 masq")
		for _, fault := range k.faults {
			t.Error(fault)
		}
		c.auditsFindNothing(t)
	})
	t.Run("a cleanup leaves nothing", func(t *testing.T) {
		e.stop(t)
		if left := c.cleanKernel(t); left != "" {
			t.Errorf("left in the kernel:\n%s", left)
		}
	})
}

// newEssentials is a site with servers for every Service of essentials.
func newEssentials(t *testing.T, kernel lab.Kernel) *site {
	t.Helper()
	s := newSite(t, kernel)
	s.greetAll(t, "tcp", 8080)
	s.greetAll(t, "udp", 8080)
	s.unlimitRefusals(t)
	s.greetOnBox(t, "tcp4", "0.0.0.0:2222", "tcp6", "[::]:2222", "udp4", "0.0.0.0:2222", "udp6", "[::]:2222")
	return s
}

// servesWith serves with a backend of iptables, and repairs its rules after a flush.
func (s *site) servesWith(t *testing.T, backend string) {
	t.Helper()
	s.fresh(t, essentials(backend))
	s.usesIPTables(t, backend)
	s.testEssentials(t)
	s.auditsFindNothing(t)
	if backend == "nft" {
		took, look := s.repairs(t, "iptables-nft", "nft flush ruleset")
		figure(t, "weir's rules are back after nft flush ruleset, as nftables.service does", took)
		figure(t, "  one look at the rules of both families takes", look)
		s.testEssentials(t)
	}
}

// essentials is a configuration with a Service of each kind.
func essentials(backend string) string {
	return "[kernel]\nsync_period = \"2s\"\niptables = \"" + backend + "\"\n" +
		declared("masked", bothFamilies(vipOf), tcpAndUDP, dualWebs) +
		declared("kept", bothFamilies(otherOf), tcpAndUDP, dualWebs, `source_address = "keep"`) +
		declared("ranged", bothFamilies(vipOf), []string{"81:8080"}, dualWebs, `source_ranges = ["10.1.0.2/32", "fd01::2/128"]`) +
		declared("inside", []string{"198.51.100.30", "2001:db8:3::30"}, tcpAndUDP, dualWebs, `type = "ClusterIP"`)
}

// usesIPTables checks which backend of iptables is in use, and that the other one
// is not.
func (s *site) usesIPTables(t *testing.T, used string) {
	t.Helper()
	var doc struct {
		State  string
		Kernel struct{ Rules string }
	}
	s.weirJSON(t, &doc, "status")
	if doc.Kernel.Rules != "iptables-"+used || doc.State != "ok" {
		t.Errorf("status is %s with rules in %q, want ok with iptables-%s", doc.State, doc.Kernel.Rules, used)
	}
	for program, want := range map[string]bool{
		"iptables-nft-save": used == "nft", "ip6tables-nft-save": used == "nft",
		"iptables-legacy-save": used == "legacy", "ip6tables-legacy-save": used == "legacy",
	} {
		if has := strings.Contains(s.box.Must(t, program), "KUBE-SERVICES"); has != want {
			t.Errorf("%s shows weir's chains: %v, want %v", program, has, want)
		}
	}
}

func (s *site) testEssentials(t *testing.T) {
	for i, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			if met := visits(t, s.client1, network, at(f.vip, 80), 9); met["web1"] != 3 || met["web2"] != 3 || met["web3"] != 3 {
				t.Errorf("%s %s: met %v, want 3 of each", network, f.vip, met)
			}
			expect(t, s.client1, network, at(f.vip, 2222), refused)
			expect(t, s.client1, network, at([]string{"10.1.0.1", "fd01::1"}[i], 2222), "box")
		}
		sees(t, s.client1, at(f.vip, 80), f.box)
		sees(t, s.client1, at(f.other, 80), f.client1)
		sees(t, s.client1, at([]string{"198.51.100.30", "2001:db8:3::30"}[i], 80), f.client1)
		expect(t, s.client1, "tcp", at(f.vip, 81), "web")
		expect(t, s.client2, "tcp", at(f.vip, 81), silence)
		wantPing(t, s.client1, f.vip)
		s.boxIsSeenAs(t, f.box, at(f.vip, 80), at(f.other, 80))
	}
}

// auditsFindNothing waits for two audits, for which the kernel must be as weir
// left it: what it reads back is what it wrote.
func (s *site) auditsFindNothing(t *testing.T) {
	t.Helper()
	audits := map[time.Time]bool{}
	eventually(t, 2*time.Minute, func() error {
		var doc struct {
			State  string
			Kernel struct {
				LastAudit time.Time `json:"last_audit"`
				Drift     int       `json:"drift_total"`
			}
		}
		s.weirJSON(t, &doc, "status")
		if doc.State != "ok" || doc.Kernel.Drift != 0 {
			t.Fatalf("status is %s after %d repairs, want ok without any", doc.State, doc.Kernel.Drift)
		}
		if audits[doc.Kernel.LastAudit] = true; len(audits) < 3 {
			return fmt.Errorf("%d audits", len(audits))
		}
		return nil
	})
}
