package query

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// FuzzQuestion asks /explain and /conns anything. A valid question has one family, and its answer
// is JSON and a table. Each valid one for /explain, without a client or a firewall mark, is one for /conns.
func FuzzQuestion(f *testing.F) {
	fuzzing.Wide(f)
	rec := lb.NewReconciler(&lb.Fake{}, lb.Options{Base: lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4, lb.IPv6}}}, config.Source)
	node := served(9)
	node.VIPs = []lb.VIP{{Addr: netip.IPv4Unspecified(), Kind: lb.NodePort}, {Addr: netip.MustParseAddr("2001:db8::1"), Local: true}}
	node.Ports[0].NodePort = 30080
	rec.Update(lb.Update{Source: config.Source, Put: []lb.Service{served(1), served(2), node}, Synced: true})
	if _, err := rec.Sync(context.Background(), time.Now()); err != nil {
		f.Fatal(err)
	}
	for _, q := range [][3]string{
		{"192.0.2.1:80", "tcp", ""}, {"192.0.2.1", "udp", "10.0.0.1"}, {"[2001:db8::1]:80", "SCTP", "fd00::1"}, {"192.0.2.9", "tcp", "::1"},
		{"fe80::1%eth0", "tcp", ""}, {"[::ffff:192.0.2.1]:0", "", "fe80::1%x"}, {"0.0.0.0:30080", "tcp", ""}, {"", "\x00", "x"}, {"192.0.2.1:99999", "tcp", ""},
	} {
		f.Add(q[0], q[1], q[2])
	}
	f.Fuzz(func(t *testing.T, vip, proto, client string) {
		q, err := ParseQuestion(vip, proto, client)
		if err != nil {
			return
		}
		if !q.Addr.IsValid() || q.Addr.Is4In6() || q.Client.IsValid() && lb.FamilyOf(q.Client) != lb.FamilyOf(q.Addr) {
			t.Fatalf("%q, %q, %q is %+v", vip, proto, client, q)
		}
		m, err := parseMatch(vip)
		if q.Mark == 0 && (err != nil || !m.selects(netip.AddrPortFrom(q.Addr, q.Port))) {
			t.Fatalf("%q selects %+v and not %+v: %v", vip, m, q, err)
		}
		doc := Explain(rec, q, lb.Query{})
		if _, err := json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
		doc.Table(io.Discard, time.Now())
	})
}
