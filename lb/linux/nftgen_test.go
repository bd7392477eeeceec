package linux

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftKernel returns a Kernel with rules, sets and some members in nf_tables, and the state that it
// has been read with.
func nftKernel(t *testing.T) (*Kernel, *lb.Table) {
	t.Helper()
	inNamespace(t)
	if err := TryNFTables(context.Background(), DefaultConfig()); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	sh(t, "nft flush ruleset")
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend = NFTables })
	for _, of := range k.rules { // made before Linux 6.9
		k.tables.shared[of.family] = true
	}
	sh(t, "nft add table ip weir; nft add table ip6 weir")
	objects := base(lb.IPv4, lb.IPv6)[1:] // without the device
	add(t, k, append(objects, tenMembers()[0])...)
	t.Cleanup(func() {
		remove(t, k, objects...)
		sh(t, "nft flush ruleset")
	})
	obs, err := k.Observe(t.Context(), nil)
	must(t, err)
	obs.Objects.Snapshot() // read
	return k, &obs.Objects
}

func tenMembers() (out []lb.Object) {
	for i := range 10 {
		out = append(out, lb.Member{Set: lb.SetIPVSIPs, Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})})
	}
	return out
}

// audit reads the kernel, and reports whether the rules and sets were kept.
func (k *Kernel) audit(t *testing.T, expected *lb.Table) bool {
	t.Helper()
	obs, err := k.Observe(t.Context(), expected)
	must(t, err)
	return obs.Kept() != lb.KeptNothing
}

// An audit of an unchanged ruleset costs one message. It is read after a change of another
// program, after a change of weir's own that failed, and by one audit of ten.
func TestNFTAnUnchangedRulesetIsNotRead(t *testing.T) {
	k, known := nftKernel(t)
	before, sets := k.counters.Conntrack.Messages.Load(), k.counters.IPSet.Messages.Load()
	if !k.audit(t, known) {
		t.Error("nothing has changed, and all is read")
	}
	if n, m := k.counters.Conntrack.Messages.Load()-before, k.counters.IPSet.Messages.Load()-sets; n != 1 || m != 0 {
		t.Errorf("%d and %d messages, want only that for the number", n, m)
	}
	members := tenMembers()
	for _, m := range members[1:3] {
		add(t, k, m)
		if !k.audit(t, known) {
			t.Error("after a change of weir's own, all is read")
		}
	}
	for _, tt := range []struct {
		name   string
		change func()
	}{
		{"another table", func() { sh(t, "nft add table ip other") }},
		{"a set of weir's", func() { sh(t, "nft add element ip weir KUBE-IPVS-IPS '{ 192.0.2.77 }'") }},
		{"another program's change before one of weir's own", func() {
			sh(t, "nft add table ip another")
			add(t, k, members[3])
		}},
		{"a change that failed", func() {
			set := lb.IPSet{Set: lb.SetSourceCIDR, Family: lb.IPv4}
			errs := k.watcher.changeSets(t.Context(), func() []error {
				return []error{k.tables.put(t.Context(), set.Family, 0), errors.New("refused")}
			})
			if firstError(errs) == nil {
				t.Fatal("it succeeded")
			}
		}},
		{"no state that is known", func() { known = nil }},
	} {
		last := known
		tt.change()
		if k.audit(t, known) {
			t.Errorf("%s: not read", tt.name)
		}
		known = last
		if !k.audit(t, known) {
			t.Errorf("%s: read twice", tt.name)
		}
	}
	kept := 1
	for k.audit(t, known) {
		kept++
	}
	if kept != completeEvery-1 {
		t.Errorf("%d audits without a complete one, want %d", kept, completeEvery-1)
	}
	if read, all := k.counters.RulesRead.Load(), k.counters.RulesKept.Load(); read != 7 || all != 16 {
		t.Errorf("counted %d complete reads and %d others", read, all)
	}
}

// The change of another program during a read makes the next audit complete.
func TestNFTAChangeDuringAReadIsNoticed(t *testing.T) {
	k, known := nftKernel(t)
	sh(t, "nft add table ip other")
	ctx := t.Context()
	k.mu.Lock()
	if k.watcher.keeps(ctx, true) {
		t.Error("another program has changed the ruleset, and it is kept")
	}
	sh(t, "nft add table ip another")
	k.watcher.endRead(ctx, nil)
	k.mu.Unlock()
	if k.audit(t, known) {
		t.Error("after a change during the read, the ruleset is kept")
	}
}

// Only a known number with no other change than weir's own lets audits keep the ruleset.
func TestOwnChangesAreFollowed(t *testing.T) {
	t.Parallel()
	const last = 1<<32 - 1
	for _, tt := range []struct {
		name                  string
		number                uint32
		before, after, n, now uint32
		err                   error
	}{
		{"two of its own", 7, 7, 9, 2, 9, nil},
		{"one that changes nothing", 7, 7, 7, 1, 7, nil},
		{"another before it", 7, 8, 9, 1, 0, nil},
		{"another meanwhile", 7, 7, 9, 1, 0, nil},
		{"a failed one", 7, 7, 7, 0, 0, unix.EINVAL},
		{"an unknown number", 0, 0, 0, 0, 0, nil},
		{"an unknown number after it", 7, 7, 0, 1, 0, nil},
		{"the number starts over", last, last, 1, 1, 0, nil},
		{"the kernel counts from 0", last, last, 0, 1, 0, nil},
	} {
		r := nftRead{number: tt.number, done: true}
		r.follow(tt.before, tt.after, tt.n, tt.err)
		if r.number != tt.now || r.done != (tt.now != 0) {
			t.Errorf("%s: %+v, want %d", tt.name, r, tt.now)
		}
	}
}

// A first start may have many changes before there is a table. It gets an owner all the same.
func TestNFTAPauseMakesNoTable(t *testing.T) {
	k, _ := nftKernel(t)
	watching(t, k)
	sh(t, "nft flush ruleset")
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watcher.pause(t.Context())()
	if out := sh(t, "nft list tables"); strings.Contains(out, "table ip weir\n") {
		t.Errorf("there are\n%s", out)
	}
}

// While weir makes many changes, the kernel announces none of them. Another program's change in that time
// is noticed afterwards.
func TestNFTManyChangesAreNotAnnounced(t *testing.T) {
	k, _ := nftKernel(t)
	events := watching(t, k)
	var many []lb.Object
	for i := range manyOps {
		many = append(many, lb.Member{Set: lb.SetIPVSIPs, Addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})})
	}
	caughtUp(t, k, events)
	add(t, k, many...)
	remove(t, k, many...)
	if e := quiet(t, events, 500*time.Millisecond); len(e) > 0 {
		t.Errorf("weir's own changes were reported: %v", e)
	}
	const member = "element ip weir KUBE-IPVS-IPS '{ 192.0.2.77 }'"
	nothing := func() {}
	for _, tt := range []struct {
		name           string
		before, during func()
		announced      int
		want           string
	}{
		{"before the pause", func() { sh(t, "nft add "+member) }, nothing, 1, "table weir of IPv4 was changed"},
		{"during the pause", nothing, func() { sh(t, "nft delete "+member) }, 0, "another program changed nf_tables"},
	} {
		k.mu.Lock() // Watch waits
		tt.before()
		resume := k.watcher.pause(t.Context())
		tt.during()
		time.Sleep(50 * time.Millisecond)
		nft := &k.watcher.changes.hints.nft
		nft.mu.Lock()
		if n := len(nft.announced); n != tt.announced {
			t.Errorf("%s: %d announced, want %d", tt.name, n, tt.announced)
		}
		nft.mu.Unlock()
		resume()
		k.mu.Unlock()
		if e := event(t, events); !e.Host || !strings.Contains(e.What, tt.want) {
			t.Errorf("%s: %v", tt.name, e)
		}
		quiet(t, events, 500*time.Millisecond)
	}
	// The subscription is back.
	sh(t, "nft add element ip weir KUBE-IPVS-IPS '{ 192.0.2.78 }'")
	event(t, events)
}
