package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// The site of BGP: the box among three routers that others wrote, a client behind each of two (GoBGP
// passes nothing on), and web servers behind the box.
//
//	client1 10.8.0.2 -- bird  10.1.0.11 --\                       /-- web1 10.2.0.11
//	client2 10.9.0.2 -- frr   10.1.0.12 ---- front -- box -- back --- web2 10.2.0.12
//	                    gobgp 10.1.0.13 --/   .1          .1      \-- web3 10.2.0.13
//
// IPv6 is the same in fd08::/64, fd09::/64, fd01::/64 and fd02::/64. Nobody has a route to a VIP but from BGP.
type bgpSite struct {
	*site
	routers []*router
}

// router is a peer of weir's: its name on the site is also what weir calls it.
type router struct {
	*lab.Router
	name   string
	kind   lab.RouterKind
	v4, v6 string
	asn    int    // of its own, where it is an external peer
	config string // what it was started with
}

// weirASN is that of weir.
const weirASN = 64500

func bgpPlan() lab.Site {
	p := plain(lab.UML)
	p.Hosts = slices.DeleteFunc(p.Hosts, func(h lab.Host) bool { return strings.HasPrefix(h.Name, "client") })
	for i, name := range []string{"bird", "frr", "gobgp"} {
		h := lab.Host{Name: name, Forward: true, Nets: lab.Nets{"front": fmt.Sprintf("10.1.0.%d/24 fd01::%d/64", 11+i, 11+i)}}
		if name != "gobgp" {
			lan, v4, v6 := "lan-"+name, fmt.Sprintf("10.%d.0", 8+i), fmt.Sprintf("fd0%d:", 8+i)
			h.Nets[lan] = fmt.Sprintf("%s.1/24 %s:1/64", v4, v6)
			p.Hosts = append(p.Hosts, lab.Host{
				Name:   fmt.Sprintf("client%d", i+1),
				Nets:   lab.Nets{lan: fmt.Sprintf("%s.2/24 %s:2/64", v4, v6)},
				Routes: []string{"default via " + v4 + ".1", "default via " + v6 + ":1"},
			})
			p.Boxes[0].Routes = append(p.Boxes[0].Routes, fmt.Sprintf("%s.0/24 via 10.1.0.%d", v4, 11+i), fmt.Sprintf("%s:/64 via fd01::%d", v6, 11+i))
		}
		p.Hosts = append(p.Hosts, h)
	}
	return p
}

// newBGPSite boots the site. Nothing runs on it yet but the web servers.
func newBGPSite(t *testing.T) *bgpSite {
	t.Helper()
	lab.RequireRouters(t)
	s := &bgpSite{site: openSite(t, bgpPlan())}
	s.serveAll(t, 8080)
	for i, kind := range lab.RouterKinds {
		s.routers = append(s.routers, &router{
			name: strings.ToLower(kind.String()), kind: kind, asn: 64511 + i,
			v4: fmt.Sprintf("10.1.0.%d", 11+i), v6: fmt.Sprintf("fd01::%d", 11+i),
		})
	}
	return s
}

func (s *bgpSite) router(name string) *router {
	return s.routers[slices.IndexFunc(s.routers, func(r *router) bool { return r.name == name })]
}

// speaker is the [bgp] of a configuration, with the keys that a test cares for.
func speaker(keys ...string) string {
	return fmt.Sprintf("[bgp]\nasn = %d\n%s\n", weirASN, strings.Join(keys, "\n"))
}

// external is a router as eBGP peer over IPv4, connected to from the box's address there, with more keys.
func (r *router) external(keys ...string) string {
	return fmt.Sprintf("[[bgp.peer]]\nname = %q\naddress = %q\nsource_address = \"10.1.0.1\"\nasn = %d\n%s\n",
		r.name, r.v4, r.asn, strings.Join(keys, "\n"))
}

// internal is a router as iBGP peer over IPv6, likewise.
func (r *router) internal(keys ...string) string {
	return fmt.Sprintf("[[bgp.peer]]\nname = %q\naddress = %q\nsource_address = \"fd01::1\"\nasn = %d\n%s\n",
		r.name, r.v6, weirASN, strings.Join(keys, "\n"))
}

// externals is external of all of them.
func (s *bgpSite) externals(keys ...string) string {
	var b strings.Builder
	for _, r := range s.routers {
		b.WriteString(r.external(keys...))
	}
	return b.String()
}

// serve gives weir a configuration: it is started, or reloads.
func (s *bgpSite) serve(t testing.TB, toml string) {
	t.Helper()
	if s.daemon == nil {
		s.run(t, toml)
		return
	}
	s.reload(t, toml)
}

// side is the router's configuration as weir prints it, with words of it replaced as an operator does.
func (s *bgpSite) side(t testing.TB, r *router, replace ...string) string {
	t.Helper()
	text := s.box.Must(t, s.weir, "bgp", "router-config", "--vendor", r.name, "--peer", r.name)
	replace = append(replace, "ROUTER-ID", r.v4)
	for i := 0; i < len(replace); i += 2 {
		if i < len(replace)-2 && !strings.Contains(text, replace[i]) {
			t.Fatalf("the configuration for %s has no %q:\n%s", r.name, replace[i], text)
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

// begin starts a router, or starts it anew, with a configuration.
func (s *bgpSite) begin(t testing.TB, r *router, config string) {
	t.Helper()
	if r.Router != nil {
		if err := r.Stop(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.Router, err = lab.StartRouter(within(t, time.Minute), s.Host(r.name), r.kind, config); err != nil {
		t.Fatalf("%v\n%s", err, config)
	}
	r.config = config
}

// peerWith gives weir a configuration, every router what weir prints for it unless it has that, and waits
// for the sessions. It gives the time from the last router's start until then.
func (s *bgpSite) peerWith(t testing.TB, toml string, replace ...string) time.Duration {
	t.Helper()
	s.serve(t, toml)
	for _, r := range s.routers {
		if side := s.side(t, r, replace...); side != r.config {
			s.begin(t, r, side)
		}
	}
	begin := time.Now()
	s.established(t, s.routers...)
	return time.Since(begin)
}

// sessionPatience is how long sessions may take to come up: the routers' own timers are some seconds.
const sessionPatience = 40 * time.Second

// established waits until both sides say that they are.
func (s *bgpSite) established(t testing.TB, routers ...*router) {
	t.Helper()
	for _, r := range routers {
		eventually(t, sessionPatience, func() error {
			n, err := r.boxSession(t.Context())
			if err == nil && !n.Established() {
				err = fmt.Errorf("%s says of the box: %+v", r.name, n)
			}
			return err
		})
		eventually(t, sessionPatience, func() error {
			if n := s.neighbor(t, r.name); n.State != "Established" {
				return fmt.Errorf("weir says of %s: %+v", r.name, n)
			}
			return nil
		})
	}
}

// boxSession is the router's session with the box: the only one it has.
func (r *router) boxSession(ctx context.Context) (lab.Neighbour, error) {
	all, err := r.Neighbours(ctx)
	if err != nil || len(all) == 0 {
		return lab.Neighbour{}, err
	}
	return all[0], nil
}

// neighbor is a line of weir bgp neighbors.
type neighbor struct {
	Name, Address, Range                   string
	ASN                                    uint32
	State, Down, Authentication            string
	NotificationSent, NotificationReceived string
	Received, Advertised, Flaps            int
	BFD                                    *struct{ State string }
}

// neighbors are those that weir names so: more than one, if they come from a range.
func (s *bgpSite) neighbors(t testing.TB, name string) []neighbor {
	t.Helper()
	var doc struct{ Neighbors []neighbor }
	s.weirJSON(t, &doc, "bgp", "neighbors")
	return slices.DeleteFunc(doc.Neighbors, func(n neighbor) bool { return n.Name != name })
}

// neighbor is the one of that name that has an address.
func (s *bgpSite) neighbor(t testing.TB, name string) neighbor {
	t.Helper()
	for _, n := range s.neighbors(t, name) {
		if n.Address != "" {
			return n
		}
	}
	return neighbor{}
}

// prefixes are those that a router has from the box, sorted.
func (r *router) prefixes(ctx context.Context) ([]string, error) {
	paths, err := r.Paths(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, p := range paths {
		all = append(all, p.Prefix.String())
	}
	slices.Sort(all)
	return all, nil
}

// have waits until routers have exactly these prefixes from the box, each once, and gives how long that took.
func have(t testing.TB, routers []*router, want ...string) time.Duration {
	t.Helper()
	slices.Sort(want)
	begin := time.Now()
	for _, r := range routers {
		eventually(t, sessionPatience, func() error {
			got, err := r.prefixes(t.Context())
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%s has %s, want %s", r.name, brief(got), brief(want))
			}
			return err
		})
	}
	return time.Since(begin)
}

// brief quotes a list that may be long.
func brief(list []string) string {
	if len(list) > 10 {
		return fmt.Sprintf("%d: %s...", len(list), strings.Join(list[:10], " "))
	}
	return fmt.Sprintf("%d: %s", len(list), strings.Join(list, " "))
}

// hosts makes host routes of addresses.
func hosts(addrs ...string) []string {
	var all []string
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	return all
}

// path is what a router has of the box to a host route.
func (r *router) path(ctx context.Context, addr string) (lab.Path, error) {
	paths, err := r.PathsTo(ctx, hosts(addr)[0])
	if err == nil && len(paths) != 1 {
		err = fmt.Errorf("%s has %d paths to %s: %+v", r.name, len(paths), addr, paths)
	}
	if err != nil {
		return lab.Path{}, err
	}
	return paths[0], nil
}

// forwarding waits until the kernels of the routers that have one lead to the box, and only there.
func (s *bgpSite) forwarding(t testing.TB) {
	t.Helper()
	for _, r := range s.routers[:2] {
		for vip, box := range map[string]string{vip4: "10.1.0.1", vip6: "fd01::1"} {
			eventually(t, sessionPatience, func() error {
				route, err := r.Machine().KernelRoute(t.Context(), hosts(vip)[0])
				if err == nil && fmt.Sprint(route.Via) != "["+box+"]" {
					err = fmt.Errorf("the kernel of %s leads to %s by %+v, want %s", r.name, vip, route, box)
				}
				return err
			})
		}
	}
}

// streams are requests of both clients to both VIPs: through BIRD, and through FRR.
func (s *bgpSite) streams(t testing.TB) []*load {
	vips := []string{at(vip4, 80), at(vip6, 80)}
	return []*load{startStream(t, s.client1, vips...), startStream(t, s.client2, vips...)}
}
