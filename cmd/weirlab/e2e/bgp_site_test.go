package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// bgpSite is that of bgpPlan.
type bgpSite struct {
	*site
	routers []*router
	files   string // a folder for copies of the box's files
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

// weirASN is that of weir, connectRetry how often it tries to connect, as often as it can.
const (
	weirASN      = 64500
	connectRetry = 2 * time.Second
)

// newBGPSite boots the site. Nothing runs on it yet but the web servers.
func newBGPSite(t *testing.T) *bgpSite {
	t.Helper()
	lab.Routers.Require(t)
	return amongRouters(t, openSite(t, bgpPlan()))
}

func amongRouters(t *testing.T, box *site) *bgpSite {
	t.Helper()
	s := &bgpSite{site: box, files: t.TempDir()}
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
	return fmt.Sprintf("[[bgp.peer]]\nname = %q\naddress = %q\nsource_address = \"10.1.0.1\"\nconnect_retry = %q\nasn = %d\n%s\n",
		r.name, r.v4, connectRetry, r.asn, strings.Join(keys, "\n"))
}

// internal is a router as iBGP peer over IPv6, likewise.
func (r *router) internal(keys ...string) string {
	return fmt.Sprintf("[[bgp.peer]]\nname = %q\naddress = %q\nsource_address = \"fd01::1\"\nconnect_retry = %q\nasn = %d\n%s\n",
		r.name, r.v6, connectRetry, weirASN, strings.Join(keys, "\n"))
}

// externals is external of all of them.
func (s *bgpSite) externals(keys ...string) string {
	var b strings.Builder
	for _, r := range s.routers {
		b.WriteString(r.external(keys...))
	}
	return b.String()
}

// side is the router's configuration as weir prints it, with words of it replaced as an operator does. It is printed
// here, of the box's files: a box takes a tenth of a second to start weir. It names them, so their folder stays.
func (s *bgpSite) side(t testing.TB, r *router, replace ...string) string {
	t.Helper()
	for _, path := range []string{configFile, passwordFile} {
		if text, err := s.box.ReadFile(t.Context(), path); err == nil {
			lab.Must(t, os.WriteFile(filepath.Join(s.files, filepath.Base(path)), []byte(text), 0o600))
		}
	}
	text := tool(t, s.weir, "bgp", "router-config", "--vendor", r.name, "--peer", r.name, "--config", filepath.Join(s.files, filepath.Base(configFile)))
	replace = append(replace, "ROUTER-ID", r.v4)
	for i := 0; i < len(replace); i += 2 {
		if i < len(replace)-2 && !strings.Contains(text, replace[i]) {
			t.Fatalf("the configuration for %s has no %q:\n%s", r.name, replace[i], text)
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

// begin starts or restarts a router, with a configuration.
func (s *bgpSite) begin(t testing.TB, r *router, config string) {
	t.Helper()
	s.beginAll(t, map[*router]string{r: config})
}

// beginAll does so with several routers, side by side.
func (s *bgpSite) beginAll(t testing.TB, configs map[*router]string) {
	t.Helper()
	var all sync.WaitGroup
	for r, config := range configs {
		all.Go(func() {
			if r.Router != nil {
				if err := r.Stop(within(t, time.Minute)); err != nil {
					t.Error(err)
				}
			}
			var err error
			if r.Router, err = lab.StartRouter(within(t, time.Minute), s.Host(r.name), r.kind, config); err != nil {
				t.Errorf("%v\n%s", err, config)
			}
			r.config = config
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
}

// beginWith starts or restarts those routers that have not the configuration which
// side gives.
func (s *bgpSite) beginWith(t testing.TB, side func(*router) string) {
	t.Helper()
	configs := map[*router]string{}
	for _, r := range s.routers {
		if text := side(r); r.Router == nil || text != r.config {
			configs[r] = text
		}
	}
	s.beginAll(t, configs)
}

// peerWith gives weir a configuration, every router what weir prints for it unless it has that, and waits
// for the sessions. It gives the time from the last router's start until then.
func (s *bgpSite) peerWith(t testing.TB, toml string, replace ...string) time.Duration {
	t.Helper()
	s.serve(t, toml)
	s.beginWith(t, func(r *router) string { return s.side(t, r, replace...) })
	begin := time.Now()
	s.established(t, s.routers...)
	return time.Since(begin)
}

// sessionPatience is how long sessions may take to come up: the routers' own timers are some seconds.
const sessionPatience = 40 * time.Second

// sessionBeat is how often they are asked for: each question is a program in a router or on the box.
const sessionBeat = 200 * time.Millisecond

// becomes waits until f gives nil, with fewer questions than eventually.
func becomes(t testing.TB, f func() error) {
	t.Helper()
	lab.Must(t, traffic.Every(context.WithoutCancel(t.Context()), sessionBeat, sessionPatience, func(context.Context) error { return f() }))
}

// established waits until both sides report an established session.
func (s *bgpSite) established(t testing.TB, routers ...*router) {
	t.Helper()
	for _, r := range routers {
		becomes(t, func() error {
			n, err := r.boxSession(t.Context())
			if err == nil && !n.Established() {
				err = fmt.Errorf("%s says of the box: %+v", r.name, n)
			}
			return err
		})
		becomes(t, func() error {
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
	State, Down, Authentication, Problem   string
	Families                               []string
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
	var all []string
	for _, p := range paths {
		all = append(all, p.Prefix.String())
	}
	slices.Sort(all)
	return all, err
}

// have waits until routers have exactly these prefixes from the box, each once.
func have(t testing.TB, routers []*router, want ...string) {
	t.Helper()
	slices.Sort(want)
	for _, r := range routers {
		becomes(t, func() error {
			got, err := r.prefixes(t.Context())
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%s has %s, want %s", r.name, brief(got), brief(want))
			}
			return err
		})
	}
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

// forwarding waits until the kernels of the routers that have one route to the box, and only there.
func (s *bgpSite) forwarding(t testing.TB) {
	t.Helper()
	for _, r := range s.routers[:2] {
		for vip, box := range map[string]string{vip4: "10.1.0.1", vip6: "fd01::1"} {
			becomes(t, func() error {
				route, err := r.Machine().KernelRoute(t.Context(), hosts(vip)[0])
				if err == nil && fmt.Sprint(route.Via) != "["+box+"]" {
					err = fmt.Errorf("the kernel of %s leads to %s by %+v, want %s", r.name, vip, route, box)
				}
				return err
			})
		}
	}
}

// reaches waits until a client is answered at a VIP: the kernel of a router has a route later than the router shows it.
func (s *bgpSite) reaches(t testing.TB, client *lab.Machine, vip string) {
	t.Helper()
	eventually(t, routeWait, func() error {
		_, err := get(t.Context(), client, at(vip, 80))
		return err
	})
}

// streams are requests of both clients to both VIPs: through BIRD, and through FRR.
func (s *bgpSite) streams(t testing.TB) []*load {
	return []*load{slowStream(t, s.client1), slowStream(t, s.client2)}
}

// slowStream are requests of a client to both VIPs, which go on while sessions come up: for many seconds.
func slowStream(t testing.TB, client *lab.Machine) *load {
	return startLoad(t, client, traffic.Options{Beat: 50 * time.Millisecond}, at(vip4, 80), at(vip6, 80))
}
