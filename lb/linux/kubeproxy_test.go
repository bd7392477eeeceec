package linux

import (
	"context"
	"strings"
	"testing"

	"weir/lb"
)

func TestKubeProxysTracesAreFound(t *testing.T) {
	eachBackend(t, func(t *testing.T, k *Kernel, iptables string) {
		ip6tables := strings.Replace(iptables, "iptables", "ip6tables", 1)
		add(t, k, ruleObjects()...)
		t.Cleanup(func() { remove(t, k, ruleObjects()...) })
		for _, test := range []struct{ make, undo, want string }{
			{"true", "true", ""}, // all of weir's own is there
			{iptables + " -N KUBE-NODEPORTS", iptables + " -X KUBE-NODEPORTS", "IPv4 chain KUBE-NODEPORTS in table filter"},
			{iptables + " -N KUBE-IPVS-OUT-FILTER", iptables + " -X KUBE-IPVS-OUT-FILTER", "IPv4 chain KUBE-IPVS-OUT-FILTER in table filter"},
			{iptables + " -N KUBE-NODE-PORT", iptables + " -X KUBE-NODE-PORT", "IPv4 chain KUBE-NODE-PORT in table filter"},
			{ip6tables + " -N KUBE-PROXY-CANARY", ip6tables + " -X KUBE-PROXY-CANARY", "IPv6 chain KUBE-PROXY-CANARY in table filter"},
			{iptables + " -N KUBE-KUBELET-CANARY", iptables + " -X KUBE-KUBELET-CANARY", ""},
			{iptables + " -N MY-KUBE-NODE-PORT", iptables + " -X MY-KUBE-NODE-PORT", ""},
		} {
			sh(t, "%s", test.make)
			got, err := k.KubeProxy(context.Background())
			if err != nil || got != test.want {
				t.Errorf("after %s: %q, %v, want %q", test.make, got, err, test.want)
			}
			sh(t, "%s", test.undo)
		}
	})
}

func TestKubeProxysSetsAreFoundWithoutWeirs(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS)
	expect := func(want string) {
		t.Helper()
		if got, err := k.KubeProxy(context.Background()); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	expect("")
	for _, name := range []string{"KUBE-NODE-PORT-TCP", "KUBE-6-NODE-PORT-TCP"} {
		sh(t, "ipset create %s bitmap:port range 0-65535", name)
		expect("ipset " + name)
		sh(t, "ipset destroy %s", name)
	}
	// weir's own sets are none of kube-proxy's, even when some are missing.
	var sets []lb.Object
	for _, s := range lb.Sets() {
		sets = append(sets, lb.IPSet{Set: s, Family: lb.IPv4})
	}
	for i := range sets {
		add(t, k, sets[i])
		expect("")
	}
	for i := range sets {
		remove(t, k, sets[i])
		expect("")
	}
}

func TestKubeProxyIsIgnoredUnderAnotherPrefix(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Prefix = "WEIR" })
	sh(t, "ipset create KUBE-NODE-PORT-TCP hash:ip")
	t.Cleanup(func() { sh(t, "ipset destroy KUBE-NODE-PORT-TCP") })
	if got, err := k.KubeProxy(context.Background()); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A search for kube-proxy does not hide a change from Watch.
func TestPeekLeavesChangesForWatch(t *testing.T) {
	eachBackend(t, func(t *testing.T, k *Kernel, iptables string) {
		add(t, k, ruleObjects()...)
		t.Cleanup(func() { remove(t, k, ruleObjects()...) })
		sh(t, "%s -F KUBE-VIP", iptables)
		if _, err := k.KubeProxy(context.Background()); err != nil {
			t.Fatal(err)
		}
		if gone, _, err := k.watcher.compareRules(context.Background(), lb.IPv4, true); len(gone) == 0 || err != nil {
			t.Errorf("lost %v, %v", gone, err)
		}
	})
}
