package linux

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/lb"
)

func syncDaemons() []lb.SyncDaemon {
	return []lb.SyncDaemon{
		{Role: lb.SyncMaster, Interface: "lan", SyncID: 7, Group: netip.MustParseAddrPort("224.0.0.81:8848"), TTL: 1, MaxLen: 1472},
		{Role: lb.SyncBackup, Interface: "lan", Group: netip.MustParseAddrPort("224.0.0.81:8848"), TTL: 1, MaxLen: 1472},
		{Role: lb.SyncMaster, Interface: "lan", SyncID: 255, Group: netip.MustParseAddrPort("[ff05::81]:9000"), TTL: 4, MaxLen: 2000},
	}
}

func TestSyncDaemonMessages(t *testing.T) {
	t.Parallel()
	for _, want := range syncDaemons() {
		var e encoder
		e.reset(1)
		ipvsMessages{family: 30}.syncDaemon(&e, ipvsNewDaemon, want)
		e.finish()
		got, ok := parseSyncDaemon(e.b[unix.NLMSG_HDRLEN:])
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); !ok || d != "" {
			t.Errorf("%v (-want +got):\n%s", ok, d)
		}
	}
	for _, body := range [][]byte{nil, {1}, {1, 1, 0, 0}, make([]byte, 40)} {
		if d, ok := parseSyncDaemon(body); ok {
			t.Errorf("%v is %s", body, d)
		}
	}
}

// Daemons are added, changed and deleted; a foreign one stays.
func TestSyncDaemonsInTheKernel(t *testing.T) {
	inBox(t)
	inNamespace(t)
	sh(t, "ip link add lan type dummy && ip addr add 10.97.0.1/24 dev lan && ip link set lan up multicast on")
	t.Cleanup(func() { sh(t, "ip link del lan") })
	k := newKernel(t)
	ctx := context.Background()
	running := func() string {
		t.Helper()
		obs, err := k.Observe(ctx, nil)
		must(t, err)
		var out []string
		for _, role := range []lb.SyncRole{lb.SyncMaster, lb.SyncBackup} {
			if o, ok := obs.Objects.Get(lb.SyncDaemon{Role: role}); ok {
				out = append(out, o.String())
			}
		}
		return strings.Join(out, "\n")
	}
	all := syncDaemons()
	master, backup, other := all[0], all[1], all[2]
	t.Cleanup(func() { k.Apply(ctx, []lb.Op{{Verb: lb.Delete, Object: master}, {Verb: lb.Delete, Object: backup}}) })
	apply(t, k, lb.Op{Verb: lb.Add, Object: master}, lb.Op{Verb: lb.Add, Object: backup})
	apply(t, k, lb.Op{Verb: lb.Add, Object: master}) // there already
	if got, want := running(), master.String()+"\n"+backup.String(); got != want {
		t.Errorf("running:\n%s\nwant:\n%s", got, want)
	}
	if out := sh(t, "ipvsadm --list --daemon"); !strings.Contains(out, "master sync daemon (mcast=lan, syncid=7") {
		t.Errorf("ipvsadm sees:\n%s", out)
	}
	apply(t, k, lb.Op{Verb: lb.Change, Object: other})
	if got, want := running(), other.String()+"\n"+backup.String(); got != want {
		t.Errorf("changed:\n%s\nwant:\n%s", got, want)
	}
	apply(t, k, lb.Op{Verb: lb.Delete, Object: other}, lb.Op{Verb: lb.Delete, Object: backup})
	apply(t, k, lb.Op{Verb: lb.Delete, Object: other}) // gone already
	if got := running(); got != "" {
		t.Errorf("left:\n%s", got)
	}

	sh(t, "ipvsadm --start-daemon master --mcast-interface lan --syncid 42")
	err := k.Apply(ctx, []lb.Op{{Verb: lb.Add, Object: master}})[0]
	if err == nil || !strings.Contains(err.Error(), "id 42") || !strings.Contains(err.Error(), "--stop-daemon master") {
		t.Errorf("with a foreign one: %v", err)
	}
	if got := running(); !strings.Contains(got, "id 42") {
		t.Errorf("the foreign one is gone: %s", got)
	}
	sh(t, "ipvsadm --stop-daemon master")
	missing := master
	missing.Interface = "none0"
	if err := k.Apply(ctx, []lb.Op{{Verb: lb.Add, Object: missing}})[0]; err == nil || !strings.Contains(err.Error(), "no interface none0") {
		t.Errorf("without the interface: %v", err)
	}
}
