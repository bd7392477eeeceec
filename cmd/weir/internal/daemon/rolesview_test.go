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
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/drain"
	"weir/cmd/weir/internal/status/explain"
)

// What the box is to a VIP in a fleet is seen in its routes, its status, and where the
// VIP is explained.
func TestRolesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, oneRouter+`
[[service]]
name = "web"
vips = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
ports = [80]
backends = ["10.1.0.1"]
`)
		b.loops(t)
		b.pass(t)
		b.show()
		assign := func(roles map[netip.Addr]advertise.Role) {
			b.steering.announcer.Assign(roles, time.Now())
			b.pass(t)
			b.show()
		}
		vip := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
		assign(map[netip.Addr]advertise.Role{vip(1): advertise.Standby, vip(2): advertise.Out})
		prefix := netip.MustParsePrefix("192.0.2.1/32")
		h.routes = []bgp.RouteStatus{{Prefix: prefix, Path: h.now[prefix][0]}}
		if _, there := h.now[netip.MustParsePrefix("192.0.2.2/32")]; there {
			t.Error("a VIP that is out is announced")
		}
		doc, err := b.steering.announcer.Reader().Routes(t.Context(), "")
		if err != nil || len(doc.Routes) != 1 || len(doc.Withheld) != 1 {
			t.Fatalf("%+v, %v", doc, err)
		}
		if r := doc.Routes[0]; r.MED == nil || *r.MED != 100 || r.VIPs[0].State != "standby" {
			t.Errorf("the standby's route is %+v", r)
		}
		if w := doc.Withheld[0]; w.Address != "192.0.2.2" || w.Reason != "out" || w.Text == "" {
			t.Errorf("withheld is %+v", w)
		}
		if s := b.steering.announcer.Reader().Status(); s.Announced != 2 || s.Standby != 1 || s.Withheld["out"] != 1 {
			t.Errorf("status %+v", s)
		}
		b.shows(t, vip(1), "standby", "routes: standby since 0s: another member of the fleet owns it")
		b.shows(t, vip(2), "out", "routes: out since 0s: another member of the fleet serves it")
		b.shows(t, vip(3), "", "routes: announced\n")
		b.steering.drains.Replace(drain.Set{}.With(time.Now()))
		b.pass(t)
		b.shows(t, vip(2), "out", "routers prefer other boxes (and out: another member of the fleet serves it")
	})
}

// shows checks the output about a VIP.
func (b *box) shows(t *testing.T, vip netip.Addr, role, text string) {
	t.Helper()
	b.steering.announcer.Reader().Refresh(t.Context())
	var doc explain.Answer
	doc.Announced = b.steering.announcer.Reader().Explain(vip)
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
		b, _, _ := speakerBox(t, text)
		b.loops(t)
		b.sources.pools = poolsOf(&giver{})
		b.pass(t)
		b.steering.announcer.Assign(map[netip.Addr]advertise.Role{vipA: advertise.Standby}, time.Now())
		file := filepath.Join(t.TempDir(), "weir.toml")
		for _, tt := range []struct {
			cluster string
			changes int
		}{{"[fleet]\nname = \"edge\"\nmember = \"box1\"\nadvertise = \"10.0.0.5\"\ninsecure_without_key = true\n", 0}, {"", 1}} {
			must(t, os.WriteFile(file, []byte(text+tt.cluster), 0o600))
			got, err := b.answers.plan(t.Context(), file)
			must(t, err)
			if len(got.Announce) != 0 || len(got.Change) != tt.changes || len(got.Withdraw) != 0 {
				t.Errorf("with %q: %+v, want %d changes", tt.cluster, got, tt.changes)
			}
		}
	})
}
