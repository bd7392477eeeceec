package gather

import (
	"bytes"
	"encoding/json"
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
		out[i].Hooks = append(out[i].Hooks, facts.NFHook{Hook: strings.ToUpper(c.Hook), Chain: c.Name, Type: c.Type, Priority: c.Priority})
	}
	return out
}

func (t nftTable) has(c linux.FilterChain) bool { return c.Family == t.Family && c.Table == t.Name }

// hasSet reports whether an object is a set with a name, or a rule with one without a name.
func (x nftObject) hasSet() bool {
	return x.Set != nil || x.Map != nil || x.Rule != nil && slices.ContainsFunc(x.Rule.Expr, func(e json.RawMessage) bool {
		return bytes.Contains(e, []byte(`"set":`))
	})
}
