package linux

import (
	"context"
	"fmt"
	"slices"

	"weir/lb"
)

// kubePrefix is the prefix under which weir and kube-proxy would fight over the
// same sets and chains.
const kubePrefix = "KUBE"

// kubeProxySets are sets that kube-proxy's IPVS mode makes at its start and weir never
// does, one of each family.
var kubeProxySets = [...]string{"KUBE-NODE-PORT-TCP", "KUBE-6-NODE-PORT-TCP"}

// kubeProxyChains are chains that kube-proxy makes at its start and weir never
// does, by their tables; any table where none is named. KUBE-KUBELET-CANARY is not
// among them: every node's kubelet makes it.
var kubeProxyChains = []struct{ name, table string }{
	{"KUBE-PROXY-CANARY", ""}, {"KUBE-IPVS-OUT-FILTER", ""}, {"KUBE-EXTERNAL-SERVICES", ""},
	{"KUBE-NODEPORTS", "filter"}, {"KUBE-NODE-PORT", "filter"}, {"KUBE-PROXY-FIREWALL", "filter"},
}

// KubeProxy looks for what kube-proxy makes in the kernel and weir never does,
// and names the first such thing: "ipset KUBE-NODE-PORT-TCP". It is empty when
// there is nothing, and when weir has a prefix of its own and so nothing in common
// with kube-proxy. A kube-proxy that has ended without `kube-proxy --cleanup`
// leaves its traces too.
func (k *Kernel) KubeProxy(ctx context.Context) (trace string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.config.Prefix != kubePrefix {
		return "", nil
	}
	for _, name := range kubeProxySets {
		held, err := k.sets.exists(ctx, name)
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

// kubeProxyChain names the first of kube-proxy's chains.
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
