package gather

import (
	"slices"
	"strings"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/lb/linux"
)

// unread returns the tables without their rules.
func unread(chains []linux.FilterChain) (out []facts.NFTable) {
	for _, c := range chains {
		if (nftTable{Family: c.Family, Name: c.Table}).skipped() {
			continue
		}
		i := slices.IndexFunc(out, func(t facts.NFTable) bool { return t.Family == c.Family && t.Name == c.Table })
		if i < 0 {
			i, out = len(out), append(out, facts.NFTable{Family: c.Family, Name: c.Table, Unread: true})
		}
		out[i].Hooks = append(out[i].Hooks, facts.NFHook{Hook: strings.ToUpper(c.Hook), Chain: c.Name})
	}
	return out
}
