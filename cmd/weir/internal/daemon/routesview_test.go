package daemon

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
	"weir/cmd/weir/internal/announce"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/cmd/weir/internal/status/routing"
)

// loops lets a speakerBox answer those who ask its loop.
func (b *box) loops(t *testing.T) {
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case f := <-b.calls:
				f()
			}
		}
	}()
}

// show publishes what others read of routes.
func (b *box) show() {
	b.published.view.Store(&view{ready: true})
	b.steering.announcer.Publish()
}

const twoRouters = oneRouter + `
[[bgp.peer]]
name = "tor2"
address = "10.0.0.2"
asn = 64502
[[bgp.advertise]]
services = ["hidden"]
announce = false
[[bgp.advertise]]
peers = ["tor1"]
communities = ["64500:100", "64500:1:100"]
med = 7
` + `
[[service]]
name = "web"
vips = ["192.0.2.1"]
ports = [80]
backends = ["10.1.0.1"]
[[service]]
name = "hidden"
vips = ["192.0.2.2"]
ports = [80]
backends = ["10.1.0.1"]
[[service]]
name = "empty"
vips = ["192.0.2.3"]
ports = [80]
backends = []
`

func TestAdvertisedRoutesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, twoRouters)
		b.loops(t)
		b.pass(t)
		b.show()
		med := uint32(7)
		h.routes = []bgp.RouteStatus{{
			Prefix: netip.MustParsePrefix("192.0.2.1/32"), Path: h.now[netip.MustParsePrefix("192.0.2.1/32")][0],
			Peers: []bgp.Advertised{{Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), NextHop: netip.MustParseAddr("10.0.0.5"), ASPath: []uint32{64500}}},
		}}
		got, err := b.steering.announcer.Reader().Routes(t.Context(), "")
		must(t, err)
		for i := range got.Withheld {
			got.Withheld[i].Text, got.Withheld[i].Since = "", time.Time{}
		}
		want := routing.Routes{
			ASN: 64500,
			Routes: []routing.Route{{
				Prefix: "192.0.2.1/32", MED: &med, Communities: []string{"64500:100"}, LargeCommunities: []string{"64500:1:100"}, Peers: []string{"tor1"},
				VIPs:       []routing.VIPRoute{{Address: "192.0.2.1", State: "announced", Services: []string{"static/web"}}},
				Advertised: []routing.Advertised{{Peer: "tor1", Address: "10.0.0.1", NextHop: "10.0.0.5", ASPath: []uint32{64500}}},
			}},
			Withheld: []routing.WithheldVIP{
				{Address: "192.0.2.2", Reason: "refused-by-rule", Services: []string{"static/hidden"}},
				{Address: "192.0.2.3", Reason: "no-backend", Services: []string{}},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("routes (-want +got):\n%s", diff)
		}
		other, err := b.steering.announcer.Reader().Routes(t.Context(), "tor2")
		if err != nil || len(other.Routes) != 0 || len(other.Withheld) != 3 || other.Withheld[0].Reason != "no-rule" {
			t.Errorf("tor2 hears %+v, %v", other, err)
		}
		if _, err := b.steering.announcer.Reader().Routes(t.Context(), "tor3"); err == nil || !strings.Contains(err.Error(), `no peer "tor3"`) {
			t.Errorf("tor3: %v", err)
		}
		var doc explain.Answer
		doc.Announced = b.steering.announcer.Reader().Explain(vipA)
		peers := []explain.PeerRoute{
			{Peer: "tor1", State: "announced", Rule: "advertise 2", Prefix: "192.0.2.1/32", Up: true},
			{Peer: "tor2", State: "no-rule", Text: routing.TextOf("no-rule")},
		}
		if diff := cmp.Diff(peers, doc.Announced.Peers); diff != "" {
			t.Errorf("explained (-want +got):\n%s", diff)
		}
	})
}

func TestTheStatusCountsRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, _ := speakerBox(t, twoRouters)
		b.loops(t)
		b.pass(t)
		b.show()
		h.peers = []bgp.PeerStatus{
			{Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), State: bgp.Established, Problem: "no next hop of IPv6"},
			{Name: "tor2", Address: netip.MustParseAddr("10.0.0.2"), State: bgp.Active, Down: "hold timer expired"},
			{Name: "any", Range: netip.MustParsePrefix("10.9.0.0/24"), State: bgp.Idle},
			{Name: "any", Range: netip.MustParsePrefix("10.9.0.0/24"), Address: netip.MustParseAddr("10.9.0.7"), State: bgp.Established},
		}
		b.steering.announcer.Reader().Refresh(t.Context())
		want := &status.BGP{
			ASN: 64500, RouterID: "10.0.0.5", Up: []string{"tor1", "any"},
			Down:      []status.DownPeer{{Name: "tor2", State: "Active", Reason: "hold timer expired"}},
			Problems:  []string{"BGP peer tor1: no next hop of IPv6"},
			Announced: 1, Withheld: map[string]int{"refused-by-rule": 1, "no-backend": 1},
		}
		if diff := cmp.Diff(want, b.steering.announcer.Reader().Status()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		r := b.steering.announcer.Reader()
		got := only(t, metrics.Sample{Status: status.Status{BGP: r.Status(), Drained: b.steering.drains.Doc(0)}, Peers: r.Snapshot(announce.SnapshotAge).Peers})
		for name, want := range map[string]float64{
			`weir_bgp_session_up{address="10.0.0.1",peer="tor1"}`: 1, `weir_bgp_session_up{address="10.0.0.2",peer="tor2"}`: 0, `weir_bgp_session_up{address="10.9.0.7",peer="any"}`: 1, "weir_routes_announced": 1,
			`weir_routes_withheld{reason="no-backend"}`: 1, "weir_drained": 0, "weir_bgp_failed": 0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (%v) of %v", name, v, ok, got)
			}
		}
	})
}

// drains asks a box as weir drain does.
func drains(t *testing.T, b *box, path string) (doc status.Drained, code int, text string) {
	t.Helper()
	mux := http.NewServeMux()
	b.commands.handleRoutes(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil).WithContext(t.Context()))
	if w.Code == http.StatusOK {
		must(t, json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&doc))
	}
	return doc, w.Code, w.Body.String()
}

func TestWhatCantBeDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := speakerBox(t, oneRouter+web(`"10.1.0.1"`))
		b.loops(t)
		b.pass(t)
		b.show()
		for path, want := range map[string]string{
			"/drain?vip=192.0.2.9":   "192.0.2.9 is not a VIP of this box: see weir services",
			"/drain?vip=web":         `"web" is not an address`,
			"/drain":                 "write vip=ADDRESS or all=true, one of them",
			"/drain?vips=192.0.2.1":  `"vips" is not known: write vip=ADDRESS or all=true`,
			"/drain?all=no":          "write vip=ADDRESS or all=true, one of them",
			"/undrain?vip=%zz":       `invalid URL escape "%zz"`,
			"/undrain?vip=192.0.2.1": "192.0.2.1 is not drained",
		} {
			if _, code, text := drains(t, b, path); code == http.StatusOK || strings.TrimSpace(text) != want {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		if b.steering.drains.Set().Any() {
			t.Error("something is drained")
		}
		b.steering.announcer, b.target.cfg = nil, parse(t, "")
		if _, code, text := drains(t, b, "/drain?all=true"); code == http.StatusOK || !strings.Contains(text, "no [bgp]") {
			t.Errorf("without [bgp]: %d %s", code, text)
		}
	})
}
