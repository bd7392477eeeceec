package linux

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// eachBackend runs a test with every iptables backend that works on this kernel.
func eachBackend(t *testing.T, test func(t *testing.T, k *Kernel, iptables string)) {
	inNamespace(t)
	worked := 0
	for _, b := range []Backend{Legacy, NFT} {
		t.Run(string(b), func(t *testing.T) {
			k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend = b })
			sets := setObjects()
			add(t, k, sets...)
			t.Cleanup(func() { remove(t, k, sets...) })
			iptables := "iptables-" + string(b)
			if err := k.rules[lb.IPv4].restore(context.Background(), "*nat\n:TRY - [0:0]\n-X TRY\nCOMMIT\n"); err != nil {
				t.Skipf("SKIPPED: this kernel has no %s backend: %v", b, err)
			}
			worked++
			test(t, k, iptables)
		})
	}
	if worked == 0 {
		t.Error("no backend works")
	}
}

func ruleObjects() []lb.Object {
	return []lb.Object{lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6}}
}

func isRules(o lb.Object) bool { _, ok := o.(lb.Rules); return ok }

var counters = regexp.MustCompile(`\[\d+:\d+\]|(?m)^#.*\n`)

// tables returns the output of iptables-save, without values that change by themselves.
func tables(t *testing.T, iptables string) string {
	t.Helper()
	return counters.ReplaceAllString(sh(t, "%s-save", iptables), "")
}

func TestRulesInTheKernelAreWrittenOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, k *Kernel, iptables string) {
		sh(t, "%s -A INPUT -p tcp --dport 22 -j ACCEPT && %s -N MINE && %s -A MINE -j RETURN && %s -t nat -A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE",
			iptables, iptables, iptables, iptables)
		sh(t, "%s -t mangle -A FORWARD -j ACCEPT", iptables)
		t.Cleanup(func() {
			sh(t, "%s -F && %s -X && %s -t nat -F && %s -t mangle -F", iptables, iptables, iptables, iptables)
		})
		before := tables(t, iptables)
		add(t, k, ruleObjects()...)
		if got := snapshot(t, k, isRules); len(got) != 2 {
			t.Fatalf("held: %v\n%s", got, tables(t, iptables))
		}
		if k.rules[lb.IPv4].accepted != nil || k.rules[lb.IPv6].accepted != nil {
			t.Error("iptables-save has another form of the rules than rules.go")
		}
		once := tables(t, iptables)
		add(t, k, ruleObjects()...)
		if d := cmp.Diff(once, tables(t, iptables)); d != "" {
			t.Errorf("the second time (-once +twice):\n%s", d)
		}
		if got := strings.Split(once[strings.Index(once, "-A INPUT"):], "\n")[0]; !strings.Contains(got, "KUBE-IPVS-FILTER") {
			t.Errorf("first in INPUT is %s", got)
		}
		remove(t, k, ruleObjects()...)
		remove(t, k, ruleObjects()...)
		if d := cmp.Diff(before, tables(t, iptables)); d != "" {
			t.Errorf("after removal (-before +after):\n%s", d)
		}
		if got := snapshot(t, k, isRules); len(got) != 0 {
			t.Errorf("held after removal: %v", got)
		}
	})
}

func TestRulesDifferAfterAForeignChange(t *testing.T) {
	eachBackend(t, func(t *testing.T, k *Kernel, iptables string) {
		add(t, k, ruleObjects()...)
		t.Cleanup(func() { remove(t, k, ruleObjects()...) })
		for _, change := range []string{
			"-F KUBE-VIP", "-I INPUT -j ACCEPT", "-t nat -D OUTPUT 1", "-t nat -F", "-t mangle -F KUBE-INSIDE", "-A FORWARD -j KUBE-FORWARD",
		} {
			sh(t, "%s %s", iptables, change)
			if got := snapshot(t, k, isRules); len(got) != 1 {
				t.Errorf("after %s: %v", change, got)
			}
			sh(t, "%s -D INPUT -j ACCEPT 2>/dev/null || true", iptables)
			add(t, k, lb.Rules{Family: lb.IPv4})
			if got := snapshot(t, k, isRules); len(got) != 2 {
				t.Errorf("repaired after %s: %v", change, got)
			}
		}
		c := k.config
		c.Ping = false
		must(t, k.Configure(c))
		for id, o := range snapshot(t, k, isRules) {
			if o == id {
				t.Errorf("after a new configuration: %v is not outdated", o)
			}
		}
		sh(t, "%s -F KUBE-VIP", iptables)
		if got := snapshot(t, k, isRules); len(got) != 1 {
			t.Errorf("after a new configuration and a foreign change: %v", got)
		}
		add(t, k, ruleObjects()...)
		if got := snapshot(t, k, isRules); len(got) != 2 {
			t.Errorf("with the new configuration: %v", got)
		}
	})
}

func TestRulesNameALockOfAnotherProgram(t *testing.T) {
	inNamespace(t)
	lock := filepath.Join(t.TempDir(), "lock")
	t.Setenv("XTABLES_LOCKFILE", lock)
	f, err := os.Create(lock)
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend = Legacy })
	k.rules[lb.IPv4].lockWait = time.Second
	err = k.rules[lb.IPv4].install(context.Background())
	if err == nil || !strings.Contains(err.Error(), "another program holds the iptables lock") {
		t.Errorf("error %v", err)
	}
}

func TestRulesNameTheSetThatIsMissing(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend = Legacy })
	err := k.rules[lb.IPv4].install(context.Background())
	if err == nil || !strings.Contains(err.Error(), "Set KUBE-LOAD-BALANCER-FW doesn't exist") {
		t.Errorf("error %v", err)
	}
}
