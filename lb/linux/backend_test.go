package linux

import (
	"context"
	"strings"
	"testing"

	"weir/lb"
)

// A new owner of the sets reports those of the one before as present, and copies them with its
// first change: weir plan changes nothing.
func TestNFTReadsTheSetsOfIPSet(t *testing.T) {
	inNamespace(t)
	before := newKernel(t, withoutIPVS)
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	set, member := lb.IPSet{Set: lb.SetLoadBalancer, Family: lb.IPv4}, someMembers()[0]
	add(t, before, setObjects()...)
	t.Cleanup(func() { remove(t, before, setObjects()...) })
	add(t, before, member)
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend = NFTables })
	if found := snapshot(t, k, isSet); found[set] == nil || found[member.ID()] == nil {
		t.Errorf("the sets of ipset are not reported: %v", found)
	}
	if tables := sh(t, "nft list tables"); strings.Contains(tables, NFTable) {
		t.Errorf("a reading made tables: %s", tables)
	}
	for _, err := range k.Apply(context.Background(), []lb.Op{{Verb: lb.Add, Object: set}}) {
		if err != nil {
			t.Error(err)
		}
	}
	if found := snapshot(t, k, isSet); found[member.ID()] == nil || !strings.Contains(sh(t, "nft list tables"), NFTable) {
		t.Errorf("after a change: %v", found)
	}
}
