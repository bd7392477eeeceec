package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

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
			if got, err := usedFilter(t, c); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" {
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

func usedFilter(t *testing.T, c Config) (what string, err error) {
	what, _, err = usedForms(t.Context(), c, execRunner(&new(Traffic).Messages))
	return what, err
}

// realFirewalls are outputs of iptables-save of table filter on Debian 12: ufw 0.36.2 and Docker 20.10.24 as
// installed, and firewalld 1.3.3 with FirewallBackend=iptables. iptables-legacy-save prints the same.
var realFirewalls = []struct{ name, used string }{
	{"ufw4", "iptables (IPv4) has policy DROP in "},
	{"ufw6", "iptables (IPv6) has policy DROP in "},
	{"docker4", "iptables (IPv4) has policy DROP in "},
	{"firewalld4", "iptables (IPv4) has rules in "},
	{"firewalld6", "iptables (IPv6) has rules in "},
}

// The filter of each firewall is in use, with both forms of iptables, and weir doctor reads the rules back. firewalld
// with nftables, and any firewall that has ended, leave chains without rules.
func TestRealFirewallsAreSeen(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	tried := 0
	for _, f := range realFirewalls {
		for _, form := range []string{"nft", "legacy"} {
			family, program := lb.IPv4, "iptables-"+form
			if strings.HasSuffix(f.name, "6") {
				family, program = lb.IPv6, "ip6tables-"+form
			}
			file := "testdata/firewalls/" + f.name + ".rules"
			text, err := os.ReadFile(file)
			must(t, err)
			if out, err := exec.Command(program+"-restore", file).CombinedOutput(); err != nil {
				t.Logf("SKIPPED %s with %s: this kernel can't: %s", f.name, program, out)
				continue
			}
			tried++
			got, err := usedFilter(t, c)
			if err != nil || !strings.HasPrefix(got, f.used) {
				t.Errorf("%s with %s: %q, %v; want %q", f.name, program, got, err, f.used)
			}
			all, err := ReadTables(t.Context())
			must(t, err)
			i := slices.IndexFunc(all, func(x Tables) bool { return x.Family == family && string(x.Backend) == form })
			if i < 0 {
				t.Fatalf("%s with %s is not among %+v", f.name, program, all)
			}
			filter := slices.DeleteFunc(all[i].Chains, func(c Chain) bool { return c.Table != "filter" })
			if d := cmp.Diff(ParseTables(string(text)), filter); d != "" {
				t.Errorf("%s with %s (-file +read):\n%s", f.name, program, d)
			}
			sh(t, "for c in INPUT FORWARD; do %s -P $c ACCEPT; done; %s -F; %s -X", program, program, program)
			if got, err := usedFilter(t, c); got != "" || err != nil {
				t.Errorf("after the end of %s with %s: %q, %v", f.name, program, got, err)
			}
		}
	}
	if tried == 0 {
		t.Skip("SKIPPED: this kernel has no matches of these firewalls")
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

// Rules of iptables have the form of the firewall before which they must come, whichever the system prefers. Without
// the programs of that form, they can't, and go to nf_tables.
func TestRulesHaveTheFormOfTheFirewall(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	c.Mode = ModeNetfilter // IPv6 has no firewall
	form := func() Backend {
		t.Helper()
		k, err := New(t.Context(), c)
		must(t, err)
		defer k.Close()
		if got, other := k.Backend(lb.IPv4), k.Backend(lb.IPv6); got != other {
			t.Errorf("rules of IPv4 in %s, of IPv6 in %s", got, other)
		}
		return k.Backend(lb.IPv4)
	}
	usual := form()
	for _, want := range []Backend{NFT, Legacy} {
		program := "iptables-" + string(want)
		if out, err := exec.Command(program, "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
			t.Logf("SKIPPED %s: this kernel can't: %s", program, out)
			continue
		}
		if got := form(); got != want {
			t.Errorf("with a firewall in %s: rules in %s", program, got)
		}
		if use, reason := SelectNFTables(t.Context(), c); use {
			t.Errorf("beside %s: nftables, %v", program, reason)
		}
		t.Run("without its programs", func(t *testing.T) {
			t.Setenv("PATH", programsOf(t, map[Backend]string{NFT: "legacy", Legacy: "nft"}[want]))
			if use, reason := SelectNFTables(context.Background(), c); !use {
				t.Errorf("without the programs of %s: %v", want, reason)
			}
		})
		sh(t, "%s -P FORWARD ACCEPT", program)
		if got := form(); got != usual {
			t.Errorf("after %s: rules in %s, not %s", program, got, usual)
		}
	}
}

// programsOf returns a folder with the programs of one form of iptables only.
func programsOf(t *testing.T, form string) string {
	t.Helper()
	dir := t.TempDir()
	for _, end := range []string{"iptables-*restore", "iptables-*save", "ip6tables-*restore", "ip6tables-*save"} {
		named := strings.Replace(end, "*", form+"-", 1)
		path, err := exec.LookPath(named)
		must(t, err)
		for _, name := range []string{strings.Replace(end, "*", "", 1), named} {
			// A link would have another name, by which the program knows its task.
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexec "+path+" \"$@\"\n"), 0o755))
		}
	}
	return dir
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

// Other programs write nf_tables at boot, and each of their writes interrupts a read.
func TestNFTIsSelectedBesideWrites(t *testing.T) {
	inNamespace(t)
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	sh(t, "(echo 'table ip other {'; for i in $(seq 20000); do echo \"chain c$i { }\"; done; echo '}') | nft -f -")
	tables := sharedTables(newConn(unix.NETLINK_NETFILTER, &Traffic{}))
	defer tables.conn.close()
	r := newNFTRules(lb.IPv4, "", tables)
	r.table = "other"
	// interrupted runs a test from an interrupted read on, which has found what, while the writes go on.
	interrupted := func(what string, test func()) {
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		var writes sync.WaitGroup
		defer writes.Wait()
		defer end()
		writes.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := r.transact(t.Context(), func(e *encoder) { r.putChain(e, nftChain{name: fmt.Sprint("more", i)}) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
		reader := newNFTTables(newConn(unix.NETLINK_NETFILTER, &Traffic{}), "filter")
		defer reader.conn.close()
		for err := error(nil); !errors.Is(err, errInterrupted); {
			var found string
			if found, err = newNFTRules(lb.IPv4, "", reader).used(ctx, nil); ctx.Err() != nil {
				t.Fatalf("writes interrupt no read: %v", err)
			} else if found != what {
				t.Errorf("found %q, %v, want %q", found, err, what)
			}
		}
		test()
	}
	interrupted("", func() {
		if use, reason := SelectNFTables(t.Context(), DefaultConfig()); !use {
			t.Errorf("iptables has the rules: %v", reason)
		}
	})
	sh(t, "iptables-nft -P FORWARD DROP")
	interrupted("has policy DROP in FORWARD", func() {}) // iptables-nft itself would wait for the end of the writes
}

// nativeFilter is a table ip filter as in /etc/nftables.conf. iptables-nft-save does not print it, and
// iptables-nft-restore writes into it.
const nativeFilter = `table ip filter {
	chain INPUT {
		type filter hook input priority filter; policy drop
		ct state vmap { established : accept, related : accept, invalid : drop }
		tcp dport { 22, 80 } accept
	}
}`

// Rules of iptables can't come first in a table of nft, so it counts as none of iptables, and never gets any.
func TestTablesOfNFTGetNoRules(t *testing.T) {
	inNamespace(t)
	c := DefaultConfig()
	c.WithoutIPVS, c.Families = true, []lb.Family{lb.IPv4}
	const table = "nft list table ip filter"
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	load := func() string {
		t.Helper()
		return sh(t, "nft flush ruleset; nft -f - <<'END'\n%s\nEND\n%s", nativeFilter, table)
	}
	before := load()
	if got, err := usedFilter(t, c); got != "" || err != nil {
		t.Errorf("in use: %q, %v", got, err)
	}
	if use, reason := SelectNFTables(t.Context(), c); !use {
		t.Errorf("iptables has the rules: %v", reason)
	}
	c.Backend = NFT
	k, err := New(t.Context(), c)
	must(t, err)
	defer k.Close()
	for range 2 {
		err := k.Apply(t.Context(), []lb.Op{{Verb: lb.Add, Object: lb.Rules{Family: lb.IPv4}}})[0]
		if err == nil || !strings.Contains(err.Error(), "the rules of nft in table ip filter") {
			t.Errorf("it was written: %v", err)
		}
	}
	if d := cmp.Diff(before, sh(t, table)); d != "" {
		t.Errorf("the table changed (-before +after):\n%s", d)
	}
	c.Backend = AutoBackend
	sh(t, "nft flush ruleset; iptables-nft -P FORWARD DROP; nft -f - <<'END'\n%s\nEND",
		strings.NewReplacer("ip filter", "ip mangle", "priority filter", "priority mangle").Replace(nativeFilter))
	if use, reason := SelectNFTables(t.Context(), c); !use {
		t.Errorf("beside another table of nft: iptables has the rules: %v", reason)
	}
	load()
	if out, err := exec.Command("iptables-legacy", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
		t.Logf("SKIPPED iptables-legacy: this kernel can't: %s", out)
		return
	}
	defer sh(t, "iptables-legacy -P FORWARD ACCEPT")
	if _, forms, err := usedForms(t.Context(), c, execRunner(&new(Traffic).Messages)); forms[lb.IPv4] != Legacy || err != nil {
		t.Errorf("beside iptables-legacy: %v, %v", forms, err)
	}
}

// The daemon is not root, and can't read the list of tables.
func TestLegacyTablesAreSeenWithoutRoot(t *testing.T) {
	inNamespace(t)
	if out, err := exec.Command("iptables-legacy", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: this kernel can't: %s", out)
	}
	defer sh(t, "iptables-legacy -P FORWARD ACCEPT")
	got := make(chan string)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		_, _, _ = unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		_ = unix.Setfsgid(65534)
		_ = unix.Setfsuid(65534)
		if _, err := os.ReadFile(procNet + "ip_tables_names"); err == nil {
			got <- "the list is readable"
			return
		}
		got <- legacyUsed(lb.IPv4, nil)
	}()
	if got := <-got; got != "has policy DROP in FORWARD" {
		t.Errorf("it has %q", got)
	}
}

// A request for the table would load its module.
func TestLegacyTablesOfThisKernel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, names, modules string
		want                 bool
	}{
		{"no ip_tables", "", "", false},
		{"no table", "nat\n", "ip_tables iptable_filter", false},
		{"a table", "nat\nfilter\n", "", true},
		{"unreadable, built in", "-", "", true},
		{"unreadable, no module of the table", "-", "ip_tables", false},
		{"unreadable, with the module", "-", "ip_tables iptable_filter", true},
	} {
		dir := t.TempDir() + "/"
		for _, m := range strings.Fields(tt.modules) {
			must(t, os.Mkdir(dir+m, 0o700))
		}
		read := func(string) ([]byte, error) { return []byte(tt.names), nil }
		switch tt.names {
		case "":
			read = func(string) ([]byte, error) { return nil, fs.ErrNotExist }
		case "-":
			read = func(string) ([]byte, error) { return nil, fs.ErrPermission }
		}
		if got := hasLegacy(read, dir, "ip_tables", "iptable_filter"); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
