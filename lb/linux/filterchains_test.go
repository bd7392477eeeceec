package linux

import (
	"slices"
	"strings"
	"testing"
)

func TestFilterChainsOfAllTablesAreRead(t *testing.T) {
	inNamespace(t)
	sh(t, "nft flush ruleset") // of other tests
	sh(t, "nft 'add table inet fence; add chain inet fence out { type filter hook output priority 0; policy drop; }; add chain inet fence plain; "+
		"add chain inet fence late { type filter hook postrouting priority 0; }; add table ip6 six; add chain ip6 six in { type filter hook input priority 0; }'")
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	got, err := FilterChains(t.Context())
	must(t, err)
	slices.SortFunc(got, func(a, b FilterChain) int { return strings.Compare(a.Table, b.Table) })
	if want := []FilterChain{{"inet", "fence", "out", "output"}, {"ip6", "six", "in", "input"}}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}
