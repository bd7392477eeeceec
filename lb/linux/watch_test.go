package linux

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// watching runs Watch and returns its events.
func watching(t *testing.T, k *Kernel) <-chan lb.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan lb.Event, 100)
	done := make(chan error, 1)
	go func() { done <- k.Watch(ctx, func(e lb.Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("watch: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("watch does not end with its context")
		}
	})
	// Only an event shows that the sockets are open.
	for heard := false; !heard; {
		for _, verb := range []string{"add", "del"} {
			sh(t, "ip addr %s 10.99.0.1/32 dev lo", verb)
			heard = len(quiet(t, events, 100*time.Millisecond)) > 0
		}
	}
	quiet(t, events, 500*time.Millisecond) // an event may be late
	return events
}

// event waits for the next event.
func event(t *testing.T, events <-chan lb.Event) (e lb.Event) {
	t.Helper()
	select {
	case e = <-events:
	case <-time.After(10 * time.Second):
		t.Fatal("no event")
	}
	return e
}

// caughtUp waits until the watcher has checked all previous changes. When it reports an
// address of the host it has completed a round; a check that waits for minInterval is due
// then.
func caughtUp(t *testing.T, k *Kernel, events <-chan lb.Event) {
	t.Helper()
	heard := func() {
		for _, verb := range []string{"add", "del"} {
			sh(t, "ip addr %s 10.99.0.1/32 dev lo", verb)
			event(t, events)
		}
	}
	heard()
	time.Sleep(k.watcher.pace.minInterval + k.watcher.pace.poll)
	heard()
	heard()
	quiet(t, events, 2*k.watcher.pace.minInterval)
}

// quiet returns the events until there are none for a while.
func quiet(t *testing.T, events <-chan lb.Event, d time.Duration) (out []lb.Event) {
	t.Helper()
	for {
		select {
		case e := <-events:
			out = append(out, e)
		case <-time.After(d):
			return out
		}
	}
}

// lost waits until exactly these objects have been reported as lost.
func lost(t *testing.T, events <-chan lb.Event, want ...lb.Object) {
	t.Helper()
	slices.SortFunc(want, lb.Compare)
	var got []lb.Object
	start := time.Now()
	for time.Since(start) < 10*time.Second && len(got) < len(want) {
		select {
		case e := <-events:
			got = append(got, e.Lost...)
			t.Logf("after %v: %s", time.Since(start).Round(time.Millisecond), e.What)
		case <-time.After(100 * time.Millisecond):
		}
	}
	slices.SortFunc(got, lb.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
}

func TestWatchReportsForeignChangesOfLinks(t *testing.T) {
	inBox(t)
	host(t)
	k := newKernel(t)
	snapshot(t, k, isLink)
	objects := linkObjects()
	add(t, k, objects...)
	t.Cleanup(func() { remove(t, k, objects...) })
	events := watching(t, k)

	remove(t, k, objects[1:]...)
	add(t, k, objects...)
	if got := quiet(t, events, 300*time.Millisecond); len(got) != 0 {
		t.Errorf("weir's own changes: %v", got)
	}

	a := netip.MustParseAddr
	sh(t, "ip addr del 192.0.2.1/32 dev kube-ipvs0")
	lost(t, events, lb.Address{Addr: a("192.0.2.1")})
	sh(t, "ip -6 addr del 2001:db8::1/128 dev kube-ipvs0")
	lost(t, events, lb.Address{Addr: a("2001:db8::1")})
	add(t, k, objects...)
	sh(t, "ip link del kube-ipvs0")
	lost(t, events, objects[0], objects[1], objects[2])
	add(t, k, objects...)
	sh(t, "ip route del local 198.51.100.0/24 dev lo && ip -6 route del local 2001:db8:100::/64 dev lo")
	lost(t, events, objects[3].ID(), objects[4].ID())
	add(t, k, objects...)
	sh(t, "ip route replace local 198.51.100.0/24 dev lo proto %d src 10.9.0.1", RouteProtocol)
	lost(t, events, objects[3].ID())
	add(t, k, objects...)
	if got := quiet(t, events, 300*time.Millisecond); len(got) != 0 {
		t.Errorf("after the repair: %v", got)
	}

	sh(t, "ip addr add 10.9.0.77/24 dev host0")
	got := append([]lb.Event{event(t, events)}, quiet(t, events, 300*time.Millisecond)...)
	if len(got) != 1 || !got[0].Host || len(got[0].Lost) != 0 {
		t.Errorf("an address of the host: %v", got)
	}
}

// An announced change that can't be read makes an audit due, like one of links.
func TestNFTUnreadableChangesAreAudited(t *testing.T) {
	inNamespace(t)
	k := newKernel(t, withoutIPVS, func(c *Config) { c.Backend = NFTables })
	t.Cleanup(func() { sh(t, "nft flush ruleset") })
	add(t, k, append(setObjects(), lb.Rules{Family: lb.IPv4})...)
	conn := k.rules[lb.IPv4].nft.conn
	conn.close()
	conn.open = func() (wire, error) { return nil, unix.EMFILE }
	var got []lb.Event
	k.watcher.checkRules(context.Background(), rulesWatch{}, hintTable4, func(ev lb.Event) { got = append(got, ev) })
	if len(got) != 1 || !got[0].Host || !strings.Contains(got[0].What, "can't be read") {
		t.Errorf("events %+v, want one that makes an audit due", got)
	}
}

// The removal of weir's table is reported with its sets, so that they are written before an audit has
// read everything else.
func TestNFTARemovedTableIsLostWithItsSets(t *testing.T) {
	k, _ := nftKernel(t)
	k.tables.noOwners = true // as before Linux 6.9
	for _, command := range []string{"nft delete table ip weir", "nft flush ruleset"} {
		sh(t, "%s", command)
		var got []lb.Event
		k.watcher.checkRules(t.Context(), rulesWatch{}, hintTable4, func(ev lb.Event) { got = append(got, ev) })
		want := base(lb.IPv4)[1:]
		if len(got) != 1 || !got[0].Host || len(got[0].Lost) != len(want) {
			t.Fatalf("%s: events %+v, want one with %d objects that makes an audit due", command, got, len(want))
		}
		for _, o := range got[0].Lost {
			if !slices.Contains(want, o) {
				t.Errorf("%s: %s is lost", command, o)
			}
		}
		add(t, k, append(want, tenMembers()[0])...)
	}
	if lost, err := k.rules[lb.IPv4].lostFromTable(t.Context()); len(lost) > 0 || err != nil {
		t.Errorf("after the repair: %v, %v", lost, err)
	}
}

// Removed members are reported with the announcement, so that they are written before an audit has read everything.
func TestNFTRemovedMembersAreLost(t *testing.T) {
	k, _ := nftKernel(t)
	var members []lb.Object
	for i, m := range tenMembers() {
		members = append(members, m, lb.Member{Set: lb.SetLoadBalancer, Addr: m.(lb.Member).Addr, Port: uint16(80 + i), Proto: lb.TCP})
	}
	mapped := lb.Member{Set: lb.SetInternal, Addr: netip.MustParseAddr("2001:db8::1"), Port: 53, Proto: lb.UDP, Mark: 7}
	ranged := lb.Member{Set: lb.SetSourceCIDR, Addr: tenMembers()[0].(lb.Member).Addr, Port: 80, Proto: lb.TCP, Net: netip.MustParsePrefix("198.51.100.0/24")}
	add(t, k, append(members, mapped, ranged)...)
	events := watching(t, k)
	caughtUp(t, k, events)
	remove(t, k, members[:4]...)
	if got := quiet(t, events, 300*time.Millisecond); len(got) != 0 {
		t.Errorf("weir's own changes: %v", got)
	}
	sh(t, "nft delete element ip weir KUBE-LOAD-BALANCER '{ 192.0.2.2 . tcp . 82 }'")
	lost(t, events, members[5])
	const key = "2001:db8::1 . udp . 53"
	sh(t, "nft 'delete element ip6 weir KUBE-6-INTERNAL { %s }; add element ip6 weir KUBE-6-INTERNAL { %s : 8 }'", key, key)
	lost(t, events, mapped.ID())
	sh(t, "nft flush map ip6 weir KUBE-6-INTERNAL")
	lost(t, events, mapped.ID())
	var rest []lb.Object
	var addrs []string
	for _, o := range members[4:] {
		if m := o.(lb.Member); m.Set == lb.SetIPVSIPs {
			rest, addrs = append(rest, m), append(addrs, m.Addr.String())
		}
	}
	sh(t, "nft 'flush set ip weir KUBE-IPVS-IPS; add element ip weir KUBE-IPVS-IPS { %s }'", strings.Join(addrs[1:], ", "))
	lost(t, events, rest[0])
	sh(t, "nft flush set ip weir KUBE-IPVS-IPS")
	lost(t, events, rest[1:]...)
	sh(t, "nft flush set ip weir KUBE-LOAD-BALANCER-SOURCE-CIDR")
	if e := event(t, events); !e.Host || len(e.Lost) > 0 { // an audit reads it
		t.Errorf("the removal of a range: %+v", e)
	}
}

func TestWatchReportsAClearedIPVS(t *testing.T) {
	inBox(t)
	k := newKernel(t)
	events := watching(t, k)
	sh(t, "ipvsadm -A -t 192.0.2.1:80 -s rr && ipvsadm -A -t 192.0.2.2:80 -s rr")
	caughtUp(t, k, events) // it has seen both
	sh(t, "ipvsadm -D -t 192.0.2.1:80")
	if got := quiet(t, events, 3*k.watcher.pace.poll); len(got) > 0 {
		t.Errorf("one of two virtual servers was removed: %v, want nothing", got)
	}
	sh(t, "ipvsadm -C")
	got := append([]lb.Event{event(t, events)}, quiet(t, events, 3*k.watcher.pace.poll)...)
	if len(got) != 1 || !got[0].Host || got[0].What != "IPVS was cleared" {
		t.Errorf("IPVS was cleared: %+v, want one event that has all read", got)
	}
}

func TestWatchReportsForeignChangesOfRules(t *testing.T) {
	eachBackend(t, func(t *testing.T, k *Kernel, iptables string) {
		add(t, k, ruleObjects()...)
		t.Cleanup(func() { remove(t, k, ruleObjects()...) })
		events := watching(t, k)
		rules4, rules6 := ruleObjects()[0], ruleObjects()[1]

		add(t, k, ruleObjects()...)
		sh(t, "%s -A FORWARD -s 10.77.0.0/16 -j ACCEPT && %s -D FORWARD -s 10.77.0.0/16 -j ACCEPT", iptables, iptables)
		if got := quiet(t, events, 2*k.watcher.pace.minInterval); len(got) != 0 {
			t.Errorf("weir's own changes, and others' rules: %v", got)
		}
		caughtUp(t, k, events)
		execs := k.Counters().Execs.Load()
		quiet(t, events, 2*k.watcher.pace.minInterval)
		if got := k.Counters().Execs.Load() - execs; got != 0 {
			t.Errorf("%d programs run while nothing happened", got)
		}

		sh(t, "%s -t nat -F", iptables)
		lost(t, events, rules4)
		add(t, k, rules4)
		sh(t, "%s -F KUBE-VIP", strings.Replace(iptables, "iptables", "ip6tables", 1))
		lost(t, events, rules6)
		add(t, k, rules6)
		// Watch continues after a reload without a change of the rules.
		c := k.config
		c.Sysctls = []string{"net.ipv4.ip_forward"}
		if err := k.Configure(c); err != nil {
			t.Fatal(err)
		}
		sh(t, "%s -F KUBE-VIP", iptables)
		lost(t, events, rules4)
		add(t, k, rules4)
		if got := quiet(t, events, 2*k.watcher.pace.minInterval); len(got) != 0 {
			t.Errorf("after the repair: %v", got)
		}
	})
}
