package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestRulesChangeHands gives weir's sets and rules to nf_tables and back to iptables, with clients all the
// while. Of the owner before nothing stays, and the next run with nf_tables runs no program.
func TestRulesChangeHands(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	c := s.changeHands(t, "ipvs")
	c.unhurt(t, "rules change hands four times")

	// With one owner, a change of the mode refuses no connection.
	c = startClients(t, s.client1, handsTargets)
	s.stop(t, syscall.SIGTERM)
	s.run(t, handsConfig("nftables", "ipvs"))
	eventually(t, time.Minute, func() error { return s.onlyOwner(t, "nftables") })
	for _, mode := range []string{"netfilter", "ipvs"} {
		s.stop(t, syscall.SIGTERM)
		s.run(t, handsConfig("nftables", mode))
		c.fresh.more(t, 100)
		if n := s.metric(t, "weir_execs_total"); n != 0 {
			t.Errorf("with nftables in mode %s it ran %v programs", mode, n)
		}
	}
	c.unhurt(t, "the mode changes twice in nftables")

	// A change of the mode and the owner at once may refuse connections for a moment (kernel.md).
	h := startHammer(t, s.client1, 4*time.Second, at(vip4, 80), at(vip6, 80))
	for _, to := range []struct{ owner, mode string }{{"iptables", "netfilter"}, {"nftables", "ipvs"}} {
		s.stop(t, syscall.SIGTERM)
		s.run(t, handsConfig(to.owner, to.mode))
		eventually(t, time.Minute, func() error { return s.onlyOwner(t, to.owner) })
		h.more(t, 100)
	}
	figure(t, "the mode and the owner of the rules change at once, twice", h.Stop().Report())
	s.cleanedOfBoth(t, "nftables", "ipvs")
}

// TestRulesChangeHandsWithoutIPVS does so with the virtual servers.
func TestRulesChangeHandsWithoutIPVS(t *testing.T) {
	t.Parallel()
	s := newSite(t, lab.UML)
	c := s.changeHands(t, "netfilter")
	c.unhurt(t, "rules with virtual servers change hands four times")
	for _, owner := range []string{"nftables", "iptables"} {
		if s.daemon != nil {
			s.stop(t, syscall.SIGTERM)
		}
		s.run(t, handsConfig(owner, "netfilter"))
		s.cleanedOfBoth(t, owner, "netfilter")
	}
}

// cleanedOfBoth has the kernel cleaned of an owner that the file no longer names.
func (s *site) cleanedOfBoth(t testing.TB, owner, mode string) {
	t.Helper()
	other := map[string]string{"nftables": "iptables", "iptables": "nftables"}[owner]
	s.configure(t, handsConfig(other, mode))
	s.cleanSlate(t)
	must(t, s.onlyOwner(t, owner))
	must(t, s.onlyOwner(t, other))
}

var handsTargets = targets{[]string{at(vip4, 80), at(vip6, 80), "192.0.2.50:80"}, []string{echo4, echo6}, at(vip4, 7000)}

func handsConfig(owner, mode string) string {
	return fmt.Sprintf("[kernel]\nsync_period = \"2s\"\nrules = %q\nmode = %q\n", owner, mode) + shared +
		serves("ranged", []string{"192.0.2.50"}, "80:8080", allWebs, "source_ranges = [\"10.1.0.0/16\", \"10.1.0.0/24\"]\n")
}

// changeHands changes the owner of the rules four times, and returns the clients. The change to nftables is
// that of auto, as after a version that knew iptables only.
func (s *site) changeHands(t *testing.T, mode string) *clients {
	t.Helper()
	s.serveAll(t, 8080)
	echoAll(t, s.Lab)
	s.run(t, handsConfig("iptables", mode))
	c := startClients(t, s.client1, handsTargets)
	for i, owner := range []string{"nftables", "iptables", "nftables", "iptables"} {
		s.stop(t, syscall.SIGTERM)
		s.configure(t, handsConfig(map[string]string{"nftables": "auto", "iptables": "iptables"}[owner], mode))
		if i >= 2 {
			s.killedAmidHands(t, c, owner)
		}
		s.start(t)
		var doc statusDoc
		if s.weirJSON(t, &doc, "status"); !strings.HasPrefix(doc.Kernel.Rules, owner) || doc.Kernel.Mode != mode {
			t.Errorf("status names %q in mode %s, want %q in mode %s", doc.Kernel.Rules, doc.Kernel.Mode, owner, mode)
		}
		line := fmt.Sprintf("kernel: mode %s, rules in %s\n", mode, doc.Kernel.Rules)
		for _, command := range [][]string{{"explain", at(vip4, 80)}, {"doctor", "running"}} {
			if out := s.box.Must(t, append([]string{s.weir}, command...)...); !strings.Contains(out, line) {
				t.Errorf("weir %s does not say %q:\n%s", command[0], line, out)
			}
		}
		eventually(t, time.Minute, func() error { return s.onlyOwner(t, owner) })
		c.fresh.more(t, 50)
		s.audits(t)
		if drift := s.driftCounts(t); len(drift) > 0 {
			t.Errorf("%s: objects were repaired: %v", owner, drift)
		}
	}
	return c
}

// killedAmidHands kills weir with SIGKILL amid the change to an owner: at its first object, and in place of each
// write of iptables and after it. These write the rules of iptables, or remove them.
func (s *site) killedAmidHands(t *testing.T, c *clients, owner string) {
	t.Helper()
	s.killedRun(t, "until "+map[string]string{"nftables": "nft list table ip weir", "iptables": "ipset list -n | grep -q KUBE-"}[owner]+" >/dev/null 2>&1 || ! kill -0 $pid; do :; done")
	c.fresh.more(t, 2)
	const dir = "/run/killers"
	for _, program := range []string{"iptables-restore", "ip6tables-restore"} {
		for _, writes := range []string{"false", program + ` "$@"`} {
			s.box.Must(t, "rm", "-rf", dir)
			script := fmt.Sprintf("#!/bin/sh\nPATH=${PATH#%s:}\ncase \"$*\" in *--noflush*) %s; kill -9 $PPID;; *) exec %s \"$@\";; esac\n", dir, writes, program)
			must(t, s.box.WriteFile(within(t, 10*time.Second), dir+"/"+program, script, 0o755))
			p, err := s.box.Launch(lab.Command{Args: []string{s.weir, "run"}, Env: []string{"PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin"}})
			must(t, err)
			if code, err := p.Wait(within(t, 2*time.Minute)); err != nil || code != 128+int(syscall.SIGKILL) {
				t.Fatalf("to %s: weir is not killed by %s: code %d, %v\n%s", owner, program, code, err, p.Output())
			}
			if s.onlyOwner(t, "nftables") == nil || s.onlyOwner(t, "iptables") == nil {
				t.Errorf("to %s: a kill by %s (%s) came before or after the change", owner, program, writes)
			}
			c.fresh.more(t, 2)
		}
	}
}

// onlyOwner returns an error if the kernel has sets or rules of weir that another owner has.
func (s *site) onlyOwner(t testing.TB, owner string) error {
	t.Helper()
	if owner != "nftables" {
		if tables := s.box.Must(t, "nft", "list", "tables"); strings.Contains(tables, " weir") {
			return fmt.Errorf("with %s there are tables of nf_tables:\n%s", owner, tables)
		}
		return nil
	}
	for _, list := range [][]string{{"ipset", "list", "-n"}, {"iptables-save"}, {"ip6tables-save"}} {
		if out := s.box.Must(t, list...); strings.Contains(out, "KUBE-") {
			return fmt.Errorf("with %s, %s prints\n%s", owner, list[0], out)
		}
	}
	return nil
}
