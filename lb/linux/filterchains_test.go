package linux

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

func TestFilterChainsOfAllTablesAreRead(t *testing.T) {
	inNamespace(t)
	sh(t, "nft flush ruleset") // of other tests
	sh(t, "nft 'add table inet fence; add chain inet fence out { type filter hook output priority 0; policy drop; }; add chain inet fence plain; add table ip early; add chain ip early pre { type filter hook prerouting priority raw; }; "+
		"add chain inet fence late { type filter hook postrouting priority 0; }; add table ip6 six; add chain ip6 six in { type filter hook input priority 0; }; "+
		"add table ip mangle; add chain ip mangle OUTPUT { type route hook output priority mangle; }; add table ip nat; add chain ip nat OUTPUT { type nat hook output priority -100; }'")
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	got, err := FilterChains(t.Context())
	must(t, err)
	slices.SortFunc(got, func(a, b FilterChain) int { return strings.Compare(a.Table, b.Table) })
	if want := []FilterChain{
		{"ip", "early", "pre", "filter", "prerouting", -300}, {"inet", "fence", "out", "filter", "output", 0},
		{"ip", "mangle", "OUTPUT", "route", "output", -150}, {"ip6", "six", "in", "filter", "input", 0},
	}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

// FuzzFilterChain has a kernel report any chain. One that is read has a family and a hook of those that doctor knows.
func FuzzFilterChain(f *testing.F) {
	fuzzing.Wide(f)
	for _, hook := range []uint32{unix.NF_INET_LOCAL_IN, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING} {
		f.Add(encoded(func(e *encoder) {
			r := newNFTRules(lb.IPv4, "KUBE", newNFTTables(nil, "weir"))
			r.putChain(e, nftChain{name: "in", hook: &nftHook{"filter", hook, -1, nfAccept}})
		}))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, ok := parseFilterChain(body)
		if ok && (!slices.Contains([]string{"ip", "ip6", "inet"}, c.Family) || !slices.Contains(FilterHooks, c.Hook)) {
			t.Errorf("%q is read as %+v", body, c)
		}
	})
}
