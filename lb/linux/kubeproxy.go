package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// kubePrefix is the prefix under which weir and kube-proxy would fight over the
// same sets and chains.
const kubePrefix = "KUBE"

// What kube-proxy makes at its start and weir never does: a set of its IPVS mode
// is enough, they come all at once. KUBE-KUBELET-CANARY is not among the chains:
// every node's kubelet makes it.
var (
	kubeProxySets   = []string{"NODE-PORT-TCP", "HEALTH-CHECK-NODE-PORT", "EXTERNAL-IP"}
	kubeProxyChains = []string{"KUBE-PROXY-CANARY", "KUBE-NODE-PORT", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"}
)

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
	for _, infix := range []string{"-", "-6-"} { // of both families, whichever weir has
		for _, set := range kubeProxySets {
			name := kubePrefix + infix + set
			switch _, err := k.sets.info(ctx, name); {
			case err == nil:
				return "ipset " + name, nil
			case !errors.Is(err, unix.ENOENT):
				return "", fmt.Errorf("look for set %s: %w", name, needPrivilege(err))
			}
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
			if _, ok := have[table].rules[chain]; ok {
				return fmt.Sprintf("%s chain %s in table %s", f, chain, table)
			}
		}
	}
	return ""
}
