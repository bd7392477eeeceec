package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// TestBGP is weir among routers that others wrote: BIRD 2, FRR and GoBGP, all at once. Their
// configuration is what weir prints for them. The stories are in the other files of this name. Those with the same
// routers follow one another, and the sessions go on.
func TestBGP(t *testing.T) {
	t.Parallel()
	s := newBGPSite(t)
	t.Run("external peers hear what is served", s.hearWhatIsServed)
	t.Run("attributes", s.hearAttributes)
	t.Run("drain", s.drains)
	t.Run("weir is killed and restarted", s.restarts)
	t.Run("routers end and come back", s.comesBack)
	t.Run("an attacker far away", s.tooFar)
	t.Run("another ASN", s.otherASN)
	t.Run("another family", s.otherFamily)
	t.Run("too many prefixes", s.tooMany)
	t.Run("aggregates", s.aggregates)
	t.Run("many routes", s.hearMany)
	t.Run("internal peers, MD5 and TTL security over IPv6", s.internals)
	t.Run("the same router ID", s.sameRouterID)
	t.Run("another password", s.otherPassword)
	t.Run("who connects to whom", s.waysToConnect)
	t.Run("BFD", s.foundDead)
}

// hearWhatIsServed: all prefixes that are served and no others, and a way for the clients.
func (s *bgpSite) hearWhatIsServed(t *testing.T) {
	dead := "[[service]]\nname = \"dead\"\nvips = [\"192.0.2.20\"]\nports = [80]\nbackends = []\n"
	toml := speaker() + s.externals() + service("web", "")
	more := strings.NewReplacer(vip4, "192.0.2.11", vip6, "2001:db8:2::11").Replace(service("more", ""))
	figure(t, "three routers' sessions up after", s.peerWith(t, toml+more+dead))
	have(t, s.routers, hosts(vip4, vip6, "192.0.2.11", "2001:db8:2::11")...)
	s.forwarding(t)
	for _, client := range []string{"client1", "client2"} {
		for _, vip := range []string{at(vip4, 80), at(vip6, 80)} {
			mustGet(t, s.Host(client), vip, 6)
		}
	}
	for _, r := range s.routers {
		n, err := r.boxSession(t.Context())
		if err != nil || n.ASN != weirASN || n.Accepted != 4 {
			t.Errorf("%s says of the box: %+v, %v", r.name, n, err)
		}
		if n := s.neighbor(t, r.name); n.Advertised != 4 || n.Received != 0 || n.ASN != uint32(r.asn) {
			t.Errorf("weir says of %s: %+v", r.name, n)
		}
		for vip, via := range map[string]string{vip4: "10.1.0.1", vip6: "fd01::1"} {
			p, err := r.path(t.Context(), vip)
			if err != nil || p.NextHop.String() != via || !slices.Equal(p.ASPath, []uint32{weirASN}) {
				t.Errorf("%s: %+v, %v; want next hop %s and path %d", r.name, p, err, via, weirASN)
			}
		}
	}
	t.Log(s.box.Must(t, s.weir, "bgp", "neighbors"))
	t.Log(s.box.Must(t, s.weir, "bgp", "routes"))
	s.printsDocuments(t, "bgp neighbors", "bgp routes")
	if out := s.box.Must(t, s.weir, "bgp", "routes"); !strings.Contains(out, "192.0.2.20") || !strings.Contains(out, "no-backend") {
		t.Errorf("nothing is said of the VIP without backends:\n%s", out)
	}
	// One less, and one more, while the sessions go on.
	begin := time.Now()
	s.reload(t, toml)
	have(t, s.routers, hosts(vip4, vip6)...)
	figure(t, "a service less: three routers know after", time.Since(begin))
	begin = time.Now()
	s.reload(t, toml+more)
	have(t, s.routers, hosts(vip4, vip6, "192.0.2.11", "2001:db8:2::11")...)
	figure(t, "  and more", time.Since(begin))
	for _, r := range s.routers {
		if n := s.neighbor(t, r.name); n.Flaps != 0 {
			t.Errorf("a reload cost the session with %s: %+v", r.name, n)
		}
	}
}

// hearAttributes: the attributes of a rule are those that routers have.
func (s *bgpSite) hearAttributes(t *testing.T) {
	rules := `
[[bgp.advertise]]
services = ["web"]
communities = ["customers", "64500:1:100", "no-export"]
med = 50
prepend = 2
local_pref = 200 # for internal peers: not told to these
peers = ["bird", "gobgp"]

[[bgp.advertise]]
services = ["web"]
communities = ["all"]
`
	names := `communities = { customers = "64500:100", all = "64500:1:0" }`
	s.peerWith(t, speaker(names)+s.externals()+rules+service("web", ""))
	for _, r := range s.routers {
		want := "path [64500 64500 64500] pref 100 med 50 communities [64500:100 65535:65281] [64500:1:100]"
		if r.name == "frr" {
			want = "path [64500] pref 100 med 0 communities [] [64500:1:0]"
		}
		for _, vip := range []string{vip4, vip6} {
			s.hearsPath(t, r, vip, want)
		}
	}
}

// hearsPath waits until a router has a path with these attributes.
func (s *bgpSite) hearsPath(t *testing.T, r *router, vip, want string) {
	t.Helper()
	becomes(t, func() error {
		p, err := r.path(t.Context(), vip)
		got := fmt.Sprintf("path %v pref %d med %d communities %v %v", p.ASPath, p.LocalPref, p.MED, p.Communities, p.LargeCommunities)
		if err == nil && got != want {
			err = fmt.Errorf("%s has of %s\n%s, want\n%s", r.name, vip, got, want)
		}
		return err
	})
}

// aggregates: one route for a prefix while one of its VIPs is served. The other addresses of it are refused.
func (s *bgpSite) aggregates(t *testing.T) {
	pools := "[kernel]\nsync_period = \"2s\"\nvip_mode = \"route\"\nroute_pools = [\"192.0.2.0/28\", \"2001:db8:2::/120\"]\n"
	rule := "[[bgp.advertise]]\nservices = [\"web\", \"more\"]\naggregation_length = 28\naggregation_length_v6 = 120\n"
	web := pools + speaker() + s.externals() + rule + service("web", "")
	more := strings.NewReplacer(`"web"`, `"more"`, vip4, "192.0.2.11", vip6, "2001:db8:2::11").Replace(service("web", ""))
	s.peerWith(t, web+more)
	flaps := map[string]int{} // those of the stories before
	for _, r := range s.routers {
		flaps[r.name] = s.neighbor(t, r.name).Flaps
	}
	have(t, s.routers, "192.0.2.0/28", "2001:db8:2::/120")
	for _, vip := range []string{vip4, vip6, "192.0.2.11", "2001:db8:2::11"} {
		for _, client := range []*lab.Machine{s.client1, s.client2} {
			s.reaches(t, client, vip)
		}
	}
	s.reload(t, web)
	for _, vip := range []string{"192.0.2.11", "192.0.2.12", "2001:db8:2::11", "2001:db8:2::12"} {
		eventually(t, routeWait, func() error {
			if end := fate(t.Context(), s.client1, "tcp", at(vip, 80)); end != traffic.Refused {
				return fmt.Errorf("%s is not served: %s, want %s", vip, end, traffic.Refused)
			}
			return nil
		})
	}
	have(t, s.routers, "192.0.2.0/28", "2001:db8:2::/120")
	mustGet(t, s.client1, at(vip4, 80), 2)
	s.reload(t, pools+speaker()+s.externals()+rule+strings.Replace(service("web", ""), "\nbackends = ", "\nbackends = [] #", 1))
	have(t, s.routers)
	for _, r := range s.routers {
		if n := s.neighbor(t, r.name); n.Flaps != flaps[r.name] {
			t.Errorf("aggregates cost the session with %s: %+v", r.name, n)
		}
	}
}

// drains: routers are asked to prefer others, and then have the route no more; back it comes at once. The delay is
// so long that three routers can be asked within it one after the other, on a slow machine, too.
func (s *bgpSite) drains(t *testing.T) {
	s.peerWith(t, speaker(`drain_delay = "15s"`)+s.externals()+service("web", ""))
	have(t, s.routers, hosts(vip4, vip6)...)
	streams := s.streams(t)
	t.Cleanup(func() { _, _ = s.box.Run(context.Background(), s.weir, "undrain", vip4) }) // of a test that failed
	begin := time.Now()
	s.box.Must(t, s.weir, "drain", vip4)
	for _, r := range s.routers {
		pref := 0 // by the filters that weir prints
		if r.name == "gobgp" {
			pref = 1 // to which 0 is none
		}
		s.hearsPath(t, r, vip4, fmt.Sprintf("path [64500] pref %d med 0 communities [65535:0] []", pref))
	}
	figure(t, "weir drain: three routers are asked to prefer others after", time.Since(begin))
	for _, st := range streams {
		st.more(t, 10) // the routers have no other way, and take this
	}
	mustHaveLostNothing(t, streams...)
	have(t, s.routers, hosts(vip6)...)
	figure(t, "  and have the route no more, drain_delay = 15s, after", time.Since(begin))
	begin = time.Now()
	s.box.Must(t, s.weir, "undrain", vip4)
	have(t, s.routers, hosts(vip4, vip6)...)
	figure(t, "weir undrain: they have it again after", time.Since(begin))
}

// hearMany: as many routes as a large box has, and none again.
func (s *bgpSite) hearMany(t *testing.T) {
	v6 := sized(60, 1000)
	v4 := 4 * v6
	var vips []string
	for i := range v4 {
		vips = append(vips, fmt.Sprintf("198.18.%d.%d", i/250, i%250+1))
	}
	for i := range v6 {
		vips = append(vips, fmt.Sprintf("2001:db8:3::%x", i+1))
	}
	web := fmt.Sprintf("[[service]]\nname = \"many\"\nvips = [\"%s\"]\nports = [\"80:8080\"]\nbackends = [\"10.2.0.11\", \"fd02::11\"]\n",
		strings.Join(vips, `", "`))
	few := speaker() + s.externals() + service("web", "")
	all := append(hosts(vips...), hosts(vip4, vip6)...)
	s.serve(t, few)
	s.beginWith(t, func(r *router) string { return s.side(t, r, wide[r.name]...) })
	s.established(t, s.routers...)
	begin := time.Now()
	s.reload(t, few+web)
	figure(t, fmt.Sprintf("%d VIPs come: weir reload took", len(vips)), time.Since(begin))
	have(t, s.routers, all...)
	figure(t, "  and three routers have all routes after", time.Since(begin))
	for _, r := range s.routers {
		if n := s.neighbor(t, r.name); n.Advertised != v4+v6+2 {
			t.Errorf("weir says that %s has %d routes, want %d", r.name, n.Advertised, v4+v6+2)
		}
		n, err := r.boxSession(t.Context())
		if err != nil || n.Accepted != v4+v6+2 {
			t.Errorf("%s says that it has %d routes (%v), want %d", r.name, n.Accepted, err, v4+v6+2)
		}
	}
	for client, vip := range map[*lab.Machine]string{s.client1: vips[v4-1], s.client2: vips[v4+v6-1]} {
		s.reaches(t, client, vip)
	}
	begin = time.Now()
	s.reload(t, few)
	have(t, s.routers, hosts(vip4, vip6)...)
	figure(t, "  and they go: no router has a route after", time.Since(begin))
}

// wide is how an operator has a router accept whatever the box announces.
var wide = map[string][]string{
	"bird":  {"192.0.2.10/32", "0.0.0.0/0+", "2001:db8:2::10/128", "::/0+", "limit 1 ", "limit 10000 "},
	"frr":   {"192.0.2.10/32", "0.0.0.0/0 le 32", "2001:db8:2::10/128", "::/0 le 128", "maximum-prefix 1 ", "maximum-prefix 10000 "},
	"gobgp": {"192.0.2.10/32", "0.0.0.0/0", "2001:db8:2::10/128", "::/0", "32..32", "0..32", "128..128", "0..128", "max-prefixes = 1\n", "max-prefixes = 10000\n"},
}
