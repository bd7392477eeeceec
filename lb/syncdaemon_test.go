package lb

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var syncing = Base{Sync: []SyncDaemon{
	{Role: SyncMaster, Interface: "lan", SyncID: 7, Group: netip.MustParseAddrPort("224.0.0.81:8848"), TTL: 1, MaxLen: 1452},
	{Role: SyncBackup, Interface: "lan", Group: netip.MustParseAddrPort("224.0.0.81:8848"), TTL: 1, MaxLen: 1452},
}}

const (
	masterText = "sync master lan id 7 224.0.0.81:8848 ttl 1 maxlen 1452"
	backupText = "sync backup lan id 0 224.0.0.81:8848 ttl 1 maxlen 1452"
)

func TestSyncDaemonsComeChangeAndGo(t *testing.T) {
	s := newStory(t)
	s.k.Put(Device{})
	s.Configure(Options{Base: syncing})
	s.Update(put())
	s.sync(0, "add "+masterText, "add "+backupText)

	k := s.k // a restart finds them, and leaves them unchanged
	s = newStory(t)
	s.k, s.kernel = k, k
	s.Configure(Options{Base: syncing})
	s.Update(put())
	s.sync(0)

	s.k.Remove(SyncDaemon{Role: SyncMaster})
	rep, err := s.Audit(context.Background(), s.now)
	if err != nil || len(rep.Drift) != 1 || rep.Drift[0].ID() != (SyncDaemon{Role: SyncMaster}).ID() {
		t.Errorf("drift %v, %v", rep.Drift, err)
	}
	other := Base{Sync: []SyncDaemon{syncing.Sync[0], syncing.Sync[1]}}
	other.Sync[0].SyncID = 9
	s.Configure(Options{Base: other})
	s.sync(time.Second, "change sync master lan id 9 224.0.0.81:8848 ttl 1 maxlen 1452")
	s.Configure(Options{})
	s.sync(time.Second, "delete sync master lan id 9 224.0.0.81:8848 ttl 1 maxlen 1452", "delete "+backupText)
}

// keepalived's daemon belongs only to keepalived.
func TestSyncDaemonsOfOthersStay(t *testing.T) {
	s := newStory(t)
	foreign := SyncDaemon{Role: SyncMaster, Interface: "eth9", SyncID: 51, Group: netip.MustParseAddrPort("224.0.0.81:8848"), TTL: 1, MaxLen: 1472}
	s.k.Put(Device{}, foreign)
	s.Update(put())
	s.sync(0)
	if _, err := s.Cleanup(context.Background(), s.now); err != nil || !s.k.has(foreign.ID()) {
		t.Errorf("cleanup took it away: %v", err)
	}
	s = newStory(t)
	s.k.Put(Device{}, foreign)
	s.k.Fail = func(op Op) error {
		if op.Object.ID() == foreign.ID() {
			return errors.New("there is another")
		}
		return nil
	}
	s.Configure(Options{Base: syncing})
	s.Update(put())
	s.sync(0, "add "+backupText)
	if n := s.Notes(); len(n) != 1 || n[0].Reason != Failed || n[0].Text != "add "+masterText+": there is another" {
		t.Errorf("notes %v", n)
	}
}

// Real servers that an observation finds out of place are put into it, those that drain
// too; what is only observed is never wanted.
func TestMisplacedServerIsRepaired(t *testing.T) {
	s := newStory(t)
	s.create()
	displace := func(a netip.AddrPort, weight uint32) {
		s.k.Put(RealServer{Frontend: front, Addr: a, Weight: weight, Misplaced: true})
	}
	displace(be1, 1)
	rep := mustAudit(t, s.Reconciler, s.now)
	var ops []string
	for _, op := range rep.Ops {
		ops = append(ops, op.String())
	}
	if d := cmp.Diff([]string{"change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1"}, ops); d != "" || len(rep.Drift) != 1 {
		t.Errorf("drift %v, ops (-want +got):\n%s", rep.Drift, d)
	}

	s.conns(be1, 1)
	s.Update(put(web(be2)))
	s.sync(time.Second, "change real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 0")
	displace(be1, 0)
	mustAudit(t, s.Reconciler, s.now)
	if got := s.k.Objects()[RealServer{Frontend: front, Addr: be1}]; got != (RealServer{Frontend: front, Addr: be1}) {
		t.Errorf("the one that drains is still %v", got)
	}
}

func TestBaseRefusesPacketsForItsSources(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.250"), netip.MustParseAddr("2001:db8::250")
	base := Base{Sources: []netip.Addr{a, b}, Unreachable: []netip.Prefix{single(a)}}
	var got []string
	for _, o := range base.Objects() {
		if u, ok := o.(Unreachable); ok {
			got = append(got, u.String())
		}
	}
	if d := cmp.Diff([]string{"unreachable route 192.0.2.250/32", "unreachable route 2001:db8::250/128"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestSyncAndMixedFamilies changes from synchronization to servers of the other family and back. IPVS
// refuses either while there is the other one.
func TestSyncAndMixedFamilies(t *testing.T) {
	s := newStory(t)
	synced := base
	synced.Sync = syncing.Sync
	six := netip.MustParseAddrPort("[fd00::1]:80")
	service := Service{
		ID: ServiceID{Source: "static", Name: "web"}, VIPs: []VIP{{Addr: front.Addr, Kind: LoadBalancer}}, Forward: Tunnel, Keep: true,
		Scheduler: Scheduler{Name: "rr"}, Ports: []Port{{Port: 80, Proto: TCP, Backends: []Backend{{Addr: six, Weight: 1, Forward: Tunnel}}}},
	}
	holds := func(daemons, servers int) {
		t.Helper()
		if n := s.Notes(); len(n) > 0 {
			t.Errorf("notes %v", n)
		}
		haveDaemons, haveServers := 0, 0
		for _, o := range s.k.Objects() {
			switch o := o.(type) {
			case SyncDaemon:
				haveDaemons++
			case RealServer:
				if o.mixed() {
					haveServers++
				}
			}
		}
		if haveDaemons != daemons || haveServers != servers {
			t.Errorf("%d daemons and %d servers, want %d and %d", haveDaemons, haveServers, daemons, servers)
		}
	}
	pass := func(after time.Duration) {
		t.Helper()
		s.now = s.now.Add(after)
		mustSync(t, s.Reconciler, s.now)
	}
	s.Configure(Options{Base: synced})
	s.Update(put())
	pass(0)
	holds(2, 0)

	s.Configure(Options{Base: base})
	s.Update(put(service))
	pass(time.Second)
	holds(0, 1)

	s.Configure(Options{Base: synced})
	s.Update(put())
	pass(time.Second)
	holds(2, 0)

	// A server that drains delays the daemons.
	s.Configure(Options{Base: base})
	service.Drain = time.Minute
	s.Update(put(service))
	pass(time.Second)
	s.conns(six, 1)
	s.Configure(Options{Base: synced})
	s.Update(put())
	pass(time.Second)
	holds(0, 1)
	s.conns(six, 0)
	for range 3 {
		pass(2 * time.Minute)
	}
	holds(2, 0)
}
