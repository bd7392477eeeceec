package linux

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
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

// ownerRun is a run of weir with a mode and an owner of the rules.
type ownerRun struct {
	mode    Mode
	backend Backend
}

// recordedMember records the virtual server.
var recordedMember = lb.Member{Set: lb.SetLoadBalancer, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: lb.TCP}

func (o ownerRun) open(t *testing.T) *Kernel {
	t.Helper()
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Mode, c.Backend, c.Families = o.mode, o.backend, []lb.Family{lb.IPv4} })
	_, err := k.Observe(t.Context(), nil)
	must(t, err)
	return k
}

// serve has the sets and rules, and a member with a virtual server in mode netfilter.
func (o ownerRun) serve(t *testing.T) {
	t.Helper()
	k := o.open(t)
	p := serverWith("192.0.2.1", 2)
	for _, s := range lb.Sets() {
		add(t, k, lb.IPSet{Set: s, Family: lb.IPv4})
	}
	if err := firstError(k.Apply(t.Context(), []lb.Op{{Verb: lb.Add, Object: lb.Rules{Family: lb.IPv4}}})); err != nil {
		t.Skip("SKIPPED: this kernel lacks a part of the rules: ", err)
	}
	add(t, k, recordedMember)
	if o.mode == ModeNetfilter {
		add(t, k, p.server, p.reals[0], p.reals[1])
	}
	k.Close()
}

// The old owner of the rules filters with sets that nothing updates, so it goes as soon as the new one has its rules.
// It waits only for virtual servers that the new mode can't copy.
func TestNFTTheOldOwnerOfTheRulesGoesAtOnce(t *testing.T) {
	inNamespace(t)
	never := func(lb.Frontend) bool { return false }
	for _, tt := range []struct {
		from, to ownerRun
		waits    bool
	}{
		{ownerRun{ModeIPVS, NFT}, ownerRun{ModeIPVS, NFTables}, false},
		{ownerRun{ModeIPVS, NFTables}, ownerRun{ModeIPVS, NFT}, false},
		{ownerRun{ModeNetfilter, NFT}, ownerRun{ModeNetfilter, NFTables}, false},
		{ownerRun{ModeNetfilter, NFTables}, ownerRun{ModeNetfilter, NFT}, false},
		{ownerRun{ModeNetfilter, NFT}, ownerRun{ModeIPVS, NFTables}, true},
	} {
		t.Run(fmt.Sprint(tt.from, tt.to), func(t *testing.T) {
			t.Cleanup(func() { sh(t, "nft flush ruleset; ipset destroy") })
			tt.from.serve(t)
			k := tt.to.open(t)
			if left, err := k.ForgetOther(t.Context(), never, false); err != nil || left == 0 {
				t.Errorf("without the new rules: %d left, %v", left, err)
			}
			apply(t, k, lb.Op{Verb: lb.Add, Object: lb.Rules{Family: lb.IPv4}})
			left, err := k.ForgetOther(t.Context(), never, false)
			if err != nil || (left > 0) != tt.waits {
				t.Fatalf("%d left, %v", left, err)
			}
			if tt.waits {
				if left, err = k.ForgetOther(t.Context(), anyServer, false); err != nil || left > 0 {
					t.Errorf("with the virtual servers: %d left, %v", left, err)
				}
			}
			have := map[Backend]bool{NFT: strings.Contains(sh(t, "iptables-nft-save"), "KUBE-"), NFTables: strings.Contains(sh(t, "nft list tables"), NFTable)}
			if have[tt.from.backend] || !have[tt.to.backend] {
				t.Errorf("owners of rules: %v", have)
			}
			if found := snapshot(t, k, isSet); found[recordedMember.ID()] == nil {
				t.Error("the member is not copied")
			}
			if n := len(k.rules[lb.IPv4].servers()); n != 3 && tt.to.mode == ModeNetfilter {
				t.Errorf("%d objects of the virtual server are copied, want 3", n)
			}
		})
	}
}

var admitted = lb.Member{Set: lb.SetIPVSPorts, Addr: recordedMember.Addr, Port: 80, Proto: lb.TCP}

// betweenOwners runs a test for both modes and both changes of the owner. The first one serves before.
func betweenOwners(t *testing.T, test func(t *testing.T, first, second ownerRun)) {
	t.Helper()
	inNamespace(t)
	for _, mode := range []Mode{ModeIPVS, ModeNetfilter} {
		for _, owners := range [][2]Backend{{NFT, NFTables}, {NFTables, NFT}} {
			t.Run(fmt.Sprint(mode, owners), func(t *testing.T) {
				t.Cleanup(func() { sh(t, "nft flush ruleset; ipset destroy") })
				first, second := ownerRun{mode, owners[0]}, ownerRun{mode, owners[1]}
				first.serve(t)
				test(t, first, second)
			})
		}
	}
}

// The owner before may come back before its rules are removed. Virtual servers that the other one has added meanwhile
// are weir's all the same.
func TestNFTTheOwnerBeforeComesBack(t *testing.T) {
	betweenOwners(t, func(t *testing.T, first, second ownerRun) {
		k := second.open(t)
		later := recordedMember
		later.Port = 81
		add(t, k, later)
		k.Close()
		k = first.open(t)
		if found := snapshot(t, k, isSet); found[later.ID()] == nil {
			t.Error("the later record is not in use")
		}
		if left, err := k.ForgetOther(t.Context(), anyServer, false); left > 0 || err != nil {
			t.Errorf("%d left, %v", left, err)
		}
		if found := snapshot(t, k, isSet); found[later.ID()] == nil {
			t.Error("the later record is not copied")
		}
	})
}

// A process that ends before it has removed the other owner leaves its sets and virtual servers. Nothing updates them, so
// the next process copies none of them but records, and virtual servers that it lacks.
func TestNFTOldSetsAreCopiedOnce(t *testing.T) {
	betweenOwners(t, func(t *testing.T, first, second ownerRun) {
		k := first.open(t)
		add(t, k, admitted)
		k.Close()
		k = second.open(t)
		apply(t, k, lb.Op{Verb: lb.Add, Object: lb.Rules{Family: lb.IPv4}})
		apply(t, k, lb.Op{Verb: lb.Delete, Object: admitted})
		drained := serverWith("192.0.2.1", 2).reals
		drained[0].Weight = 0
		if second.mode == ModeNetfilter {
			apply(t, k, lb.Op{Verb: lb.Change, Object: drained[0]})
			apply(t, k, lb.Op{Verb: lb.Delete, Object: drained[1]})
		}
		k.Close()
		k = second.open(t)
		defer func() {
			_, err := k.Observe(t.Context(), nil)
			must(t, err)
			servers := k.rules[lb.IPv4].servers()
			if second.mode == ModeNetfilter && (servers[drained[0].ID()] != drained[0] || servers[drained[1].ID()] != nil) {
				t.Errorf("the old owner's backends are in use: %v", servers)
			}
		}()
		if found := snapshot(t, k, isSet); found[admitted.ID()] != nil || found[recordedMember.ID()] == nil {
			t.Errorf("the old owner's port is in use, or a record is missing: %v", found)
		}
		apply(t, k, lb.Op{Verb: lb.Add, Object: lb.Member{Set: lb.SetIPVSIPs, Addr: admitted.Addr}})
		if left, err := k.ForgetOther(t.Context(), anyServer, false); left > 0 || err != nil {
			t.Errorf("%d left, %v", left, err)
		}
		if found := snapshot(t, k, isSet); found[admitted.ID()] != nil || found[recordedMember.ID()] == nil {
			t.Errorf("the old owner's port is copied, or a record is not: %v", found)
		}
	})
}

// Rules of iptables are no obstacle if its programs are gone.
func TestNFTTheProgramsOfIPTablesMayBeGone(t *testing.T) {
	inNamespace(t)
	t.Cleanup(func() { sh(t, "nft flush ruleset; ipset destroy") })
	for _, mode := range []Mode{ModeIPVS, ModeNetfilter} {
		t.Run(string(mode), func(t *testing.T) {
			ownerRun{mode, NFT}.serve(t)
			nft, err := exec.LookPath("nft")
			must(t, err)
			t.Setenv("PATH", t.TempDir())
			k := ownerRun{mode, NFTables}.open(t)
			must(t, firstError(k.Apply(t.Context(), []lb.Op{{Verb: lb.Add, Object: lb.Rules{Family: lb.IPv4}}})))
			if left, err := k.ForgetOther(t.Context(), anyServer, false); err != nil || left != 0 || k.other.left != nil {
				t.Errorf("%d left, %v", left, err)
			}
			must(t, exec.Command(nft, "flush", "ruleset").Run())
		})
	}
}
