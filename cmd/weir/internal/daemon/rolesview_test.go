package daemon

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/status"
)

// What the box is to a VIP in a fleet is seen in its routes, its status, and where the
// VIP is explained.
func TestRolesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := heraldBox(t, oneRouter+`
[[service]]
name = "web"
vips = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
ports = [80]
backends = ["10.1.0.1"]
`)
		b.loops(t)
		b.turn(t)
		b.show()
		assign := func(roles map[netip.Addr]bgp.Role) {
			b.announcer.owe(b.announcer.adv.Assign(roles, time.Now()))
			b.turn(t)
			b.show()
		}
		vip := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
		assign(map[netip.Addr]bgp.Role{vip(1): bgp.Standby, vip(2): bgp.Out})
		prefix := netip.MustParsePrefix("192.0.2.1/32")
		h.routes = []bgp.RouteStatus{{Prefix: prefix, Path: h.now[prefix][0]}}
		if _, there := h.now[netip.MustParsePrefix("192.0.2.2/32")]; there {
			t.Error("a VIP that is out is announced")
		}
		doc, err := b.routes(t.Context(), "")
		if err != nil || len(doc.Routes) != 1 || len(doc.Withheld) != 1 {
			t.Fatalf("%+v, %v", doc, err)
		}
		if r := doc.Routes[0]; r.MED == nil || *r.MED != 100 || r.VIPs[0].State != "standby" {
			t.Errorf("the standby's route is %+v", r)
		}
		if w := doc.Withheld[0]; w.Address != "192.0.2.2" || w.Reason != "out" || w.Text == "" {
			t.Errorf("withheld is %+v", w)
		}
		if s := b.bgpStatus(); s.Announced != 2 || s.Standby != 1 || s.Withheld["out"] != 1 {
			t.Errorf("status %+v", s)
		}
		b.shows(t, vip(1), "standby", "routes: standby since 0s: another member of the fleet owns it")
		b.shows(t, vip(2), "out", "routes: out since 0s: another member of the fleet serves it")
		b.shows(t, vip(3), "", "routes: announced\n")
		b.announcer.owe(b.announcer.adv.Drain(bgp.Drains{All: bgp.Shutting}, time.Now()))
		b.shows(t, vip(2), "out", "peers are asked to prefer others (and out: another member of the fleet serves it")
	})
}

// shows checks what is said of a VIP.
func (b *box) shows(t *testing.T, vip netip.Addr, role, text string) {
	t.Helper()
	b.announcements(t.Context())
	var doc status.Explanation
	b.explainWay(&doc, vip)
	var out bytes.Buffer
	doc.Table(&out, time.Now())
	if doc.Announced.Role != role || !strings.Contains(out.String(), text) {
		t.Errorf("%s is %q, want %q, and said is:\n%swhich lacks %q", vip, doc.Announced.Role, role, out.String(), text)
	}
}

// A plan takes it that no VIP has another owner, unless the fleet goes.
func TestAPlanKeepsRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := oneRouter + web(`"10.1.0.1"`)
		b, _, _ := heraldBox(t, text)
		b.loops(t)
		b.provider = &giver{}
		b.turn(t)
		b.announcer.owe(b.announcer.adv.Assign(map[netip.Addr]bgp.Role{vipA: bgp.Standby}, time.Now()))
		file := filepath.Join(t.TempDir(), "weir.toml")
		for _, tt := range []struct {
			cluster string
			changes int
		}{{"[cluster]\nname = \"edge\"\nmember = \"box1\"\nadvertise = \"10.0.0.5\"\ninsecure_without_key = true\n", 0}, {"", 1}} {
			if err := os.WriteFile(file, []byte(text+tt.cluster), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := b.plan(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Announce) != 0 || len(got.Change) != tt.changes || len(got.Withdraw) != 0 {
				t.Errorf("with %q: %+v, want %d changes", tt.cluster, got, tt.changes)
			}
		}
	})
}
