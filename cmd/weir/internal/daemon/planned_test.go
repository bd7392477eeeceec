package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status/plan"
	"weir/k8ssync/ipam"
	"weir/lb"
)

func TestAPlanHasRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`)+`
[[service]]
name = "gone"
vips = ["192.0.2.2"]
ports = [80]
backends = ["10.1.0.1"]
[[service]]
name = "down"
vips = ["192.0.2.3"]
ports = [80]
backends = ["10.1.0.9"]
`)
		b.loops(t)
		b.sources.pools = poolsOf(&giver{outside: []ipam.Note{{Service: shop("web"), Addr: vipB, Reason: ipam.OutsidePool, Text: "no pool has it"}}})
		b.target.rec.SetHealth(map[lb.ServiceID]lb.Health{static("down"): down("10.1.0.9:80")}, true)
		b.pass(t)
		file := filepath.Join(t.TempDir(), "weir.toml")
		text := oneRouter + "[[bgp.advertise]]\nmed = 5\nservices = [\"web\"]\n[[bgp.advertise]]\n" + web(`"10.1.0.1"`) + `
[[service]]
name = "new"
vips = ["192.0.2.4"]
ports = [80]
backends = ["10.1.0.1"]
[[service]]
name = "down"
vips = ["192.0.2.3"]
ports = [80]
backends = ["10.1.0.9"]
`
		must(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := b.answers.plan(t.Context(), file)
		must(t, err)
		one := func(prefix string, attributes ...string) []plan.Route {
			return []plan.Route{{Prefix: prefix, Paths: []plan.Path{{Peers: []string{"tor1"}, Attributes: append([]string{}, attributes...)}}}}
		}
		want := plan.Routes{
			Announce: one("192.0.2.4/32"), Change: one("192.0.2.1/32", "med 5"), Withdraw: one("192.0.2.2/32"), OutsidePool: []plan.OutsidePool{{Service: "prod/shop/web", Address: "2001:db8::1", Text: "no pool has it"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		must(t, os.WriteFile(file, []byte("[kernel]\ndevice = \"other0\"\n"+text), 0o600))
		if got, err := b.answers.plan(t.Context(), file); err != nil || !slices.Equal(got.Restart, []string{"kernel.device"}) {
			t.Errorf("a key that needs a restart: %q, %v", got.Restart, err)
		}
		if _, err := b.answers.plan(t.Context(), filepath.Join(t.TempDir(), "none.toml")); err == nil {
			t.Error("a file that is not there has a plan")
		}
		if x, _ := b.steering.announcer.Advertiser().Explain(vipA); x.Reason != "announced" || b.steering.announcer.Next() != (time.Time{}) {
			t.Errorf("planning has changed something: %+v", x)
		}
	})
}
