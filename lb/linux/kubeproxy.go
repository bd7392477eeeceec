package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// kubePrefix is the prefix with which weir and kube-proxy would use the same sets and chains.
const kubePrefix = "KUBE"

// kubeProxySets are sets that kube-proxy's IPVS mode creates at its start and weir never does,
// one of each family.
var kubeProxySets = [...]string{"KUBE-NODE-PORT-TCP", "KUBE-6-NODE-PORT-TCP"}

// kubeProxyChains are chains that kube-proxy creates at its start and weir never does, with
// their table; "" is any table. KUBE-KUBELET-CANARY is not among them: every kubelet creates
// it.
var kubeProxyChains = []struct{ name, table string }{
	{"KUBE-PROXY-CANARY", ""}, {"KUBE-IPVS-OUT-FILTER", ""}, {"KUBE-EXTERNAL-SERVICES", ""},
	{"KUBE-NODEPORTS", "filter"}, {"KUBE-NODE-PORT", "filter"}, {"KUBE-PROXY-FIREWALL", "filter"},
}

// KubeProxy returns the first object in the kernel that kube-proxy creates and weir never
// does: "ipset KUBE-NODE-PORT-TCP". It is empty without one, and if weir has another prefix
// and so shares nothing with kube-proxy. A kube-proxy that ended without `kube-proxy
// --cleanup` leaves its objects behind, too.
func (k *Kernel) KubeProxy(ctx context.Context) (trace string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config.Prefix != kubePrefix {
		return "", nil
	}
	ipsets := newSets(kubePrefix, marking{}, &k.counters.IPSet)
	defer ipsets.conn.close()
	for _, name := range kubeProxySets {
		if !hasIPSet() {
			break
		}
		held, err := ipsets.exists(ctx, name)
		if errors.Is(err, unix.EINVAL) { // a kernel without ipset
			break
		}
		if err != nil {
			return "", fmt.Errorf("look for set %s: %w", name, needPrivilege(err))
		}
		if held {
			return "ipset " + name, nil
		}
	}
	for _, f := range k.config.Families {
		have, err := k.rules[f].peek(ctx)
		if err != nil {
			return "", fmt.Errorf("read rules %s: %w", f, err)
		}
		if trace := kubeProxyChain(have, f); trace != "" {
			return trace, nil
		}
	}
	return "", nil
}

// kubeProxyChain returns the first of kube-proxy's chains.
func kubeProxyChain(have saved, f lb.Family) string {
	var tables []string
	for name := range have {
		tables = append(tables, name)
	}
	slices.Sort(tables)
	for _, table := range tables {
		for _, chain := range kubeProxyChains {
			if chain.table != "" && chain.table != table {
				continue
			}
			if _, ok := have[table].rules[chain.name]; ok {
				return fmt.Sprintf("%s chain %s in table %s", f, chain.name, table)
			}
		}
	}
	return ""
}
