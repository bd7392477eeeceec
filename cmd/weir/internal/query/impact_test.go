package query

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cmd/weir/internal/kernelmode"
	"weir/lb"
	"weir/lb/linux"
)

// previewed gives what a kernel holds by one configuration, and the ops and services of another.
func previewed(t *testing.T, have, want string) (*lb.Table, []lb.Op, []lb.Service) {
	t.Helper()
	kernel := &lb.Fake{}
	reconciler := func(toml string) *lb.Reconciler {
		cfg := parse(t, toml)
		rec := lb.NewReconciler(kernel, kernelmode.LBOptions(cfg, kernelmode.Of(cfg), kernelmode.Node{}), kernelmode.Sources(cfg)...)
		rec.Update(lb.Update{Source: "static", Put: cfg.Services, Synced: true})
		return rec
	}
	if _, err := reconciler(have).Sync(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	rec, services := reconciler(want), parse(t, want).Services
	ops, err := rec.Preview(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return rec.Have(), ops, services
}

func TestImpact(t *testing.T) {
	t.Parallel()
	one := func(name, vip, more string) string {
		return "[[service]]\nname = \"" + name + "\"\nvips = [\"" + vip + "\"]\nports = [80]\nbackends = [\"10.0.0.1\", \"10.0.0.2\"]\n" + more
	}
	fewer := "[[service]]\nname = \"a\"\nvips = [\"192.0.2.1\"]\nports = [80]\nbackends = [\"10.0.0.1\"]\n"
	now := `drain_timeout = "0s"` + "\n"
	connections := []linux.Connection{}
	for i, state := range []string{"ESTABLISHED", "ESTABLISHED", "TIME_WAIT"} {
		for _, backend := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
			connections = append(connections, linux.Connection{
				Client: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), uint16(1000+i)),
				VIP:    netip.MustParseAddrPort("192.0.2.1:80"), Backend: netip.MustParseAddrPort(backend), Proto: lb.TCP, State: state,
			})
		}
	}
	marked := func(backends string) string {
		return "[[service]]\nname = \"m\"\nfwmark = 7\nvips = [\"192.0.2.1\"]\nbackends = [" + backends + "]\n"
	}
	weighed := func(weight int, forward string) string {
		return fmt.Sprintf("[[service]]\nname = \"a\"\nvips = [\"192.0.2.1\"]\nports = [80]\n[[service.backend]]\naddress = \"10.0.0.1\"\nweight = %d\nforward = %q\n", weight, forward)
	}
	vipA := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tt := range []struct {
		name, have, want string
		impact           Impact
	}{
		{"nothing", one("a", "192.0.2.1", ""), one("a", "192.0.2.1", ""), Impact{}},
		{"a service more", one("a", "192.0.2.1", ""), one("a", "192.0.2.1", "") + one("b", "192.0.2.2", ""), Impact{}},
		{"a service goes", one("a", "192.0.2.1", "") + one("b", "192.0.2.2", ""), one("b", "192.0.2.2", ""), Impact{VIPs: vipA, Backends: 2, Living: 4}},
		{"at once", one("a", "192.0.2.1", "") + one("b", "192.0.2.2", ""), "[defaults]\n" + now + one("b", "192.0.2.2", ""), Impact{VIPs: vipA, Backends: 2, Cut: 2, Cutting: 4}},
		{"a backend goes", one("a", "192.0.2.1", ""), fewer, Impact{Backends: 1, Living: 2}},
		{"at once, too", one("a", "192.0.2.1", now), fewer + now, Impact{Backends: 1, Cut: 1, Cutting: 2}},
		{"another backend instead", fewer, "[[service]]\nname = \"a\"\nvips = [\"192.0.2.1\"]\nports = [80]\nbackends = [\"10.0.0.2\"]\n", Impact{Backends: 1, Living: 2}},
		{"a mark goes", marked(`"10.0.0.1", "10.0.0.2"`) + one("b", "192.0.2.2", ""), one("b", "192.0.2.2", ""), Impact{VIPs: vipA, Backends: 2, Living: 4}},
		{"a mark goes at once", marked(`"10.0.0.1", "10.0.0.2"`) + one("b", "192.0.2.2", ""), "[defaults]\n" + now + one("b", "192.0.2.2", ""), Impact{VIPs: vipA, Backends: 2, Cut: 2, Cutting: 4}},
		{"a backend of a mark goes", marked(`"10.0.0.1", "10.0.0.2"`), marked(`"10.0.0.1"`), Impact{Backends: 1, Living: 2}},
		{"a backend of a mark with another port", marked(`"10.0.0.1", "10.0.0.2:81"`), marked(`"10.0.0.1"`), Impact{Backends: 1}},
		{"a mark leaves its VIP to ports", marked(`"10.0.0.3"`), one("a", "192.0.2.1", ""), Impact{Backends: 1}},
		{"a mark goes beside ports", marked(`"10.0.0.1"`) + one("a", "192.0.2.1", ""), one("a", "192.0.2.1", ""), Impact{Backends: 1}},
		{"direct routing instead", one("a", "192.0.2.1", ""), one("a", "192.0.2.1", "forward = \"direct\"\n"), Impact{Redirected: 2, Masqueraded: 4}},
		{"direct routing instead, without weight", weighed(0, "nat"), weighed(0, "direct"), Impact{Redirected: 1, Masqueraded: 2}},
		{"direct routing instead, with a drain", weighed(1, "nat"), weighed(0, "direct"), Impact{VIPs: vipA, Backends: 1, Living: 2, Redirected: 1}},
		{"direct routing no more", one("a", "192.0.2.1", "forward = \"direct\"\n"), one("a", "192.0.2.1", ""), Impact{}},
		{"direct routing for one, and the other goes", one("a", "192.0.2.1", ""), fewer + "forward = \"direct\"\n", Impact{Backends: 1, Living: 2, Redirected: 1, Masqueraded: 2}},
		{"direct routing for a mark", marked(`"10.0.0.1", "10.0.0.2"`), marked(`"10.0.0.1", "10.0.0.2"`) + "forward = \"direct\"\n", Impact{Redirected: 2, Masqueraded: 4}},
		{"the last backend of a mark goes", marked(`"10.0.0.1"`), marked(""), Impact{VIPs: vipA, Backends: 1, Living: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ImpactOf(previewed(t, tt.have, tt.want))
			for _, c := range connections {
				got.Count(c)
			}
			if diff := cmp.Diff(tt.impact, got, cmpopts.IgnoreUnexported(Impact{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
