package routerconfig

import (
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bgp"
)

var updateGolden = flag.Bool("update", false, "write what is printed into testdata")

// rich is a session with about everything.
func rich() Router {
	return Router{
		Config: bgp.Config{
			ASN: 64500, RouterID: netip.MustParseAddr("10.0.0.2"), ListenPort: 179, GracefulRestart: 2 * time.Minute,
			Peers: []bgp.Peer{{
				Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), ASN: 64601, Source: netip.MustParseAddr("10.0.0.2"),
				TTLSecurity: 1, Password: "not for printing", BFD: bgp.BFD{Enabled: true},
			}},
		},
		Peer:         "tor1",
		PasswordFile: "/etc/weir/tor1.password",
		Prefixes: []netip.Prefix{
			netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:2::/112"),
			netip.MustParsePrefix("192.0.2.16/28"), // within another one
		},
	}
}

// sides are sessions of all sorts.
func sides() map[string]Router {
	with := func(change func(*Router, *bgp.Peer)) Router {
		r := rich()
		change(&r, &r.Config.Peers[0])
		return r
	}
	plain := func(_ *Router, p *bgp.Peer) { p.TTLSecurity, p.Password, p.BFD = 0, "", bgp.BFD{} }
	return map[string]Router{
		"rich":  rich(),
		"plain": with(func(r *Router, p *bgp.Peer) { plain(r, p); r.PasswordFile = "" }),
		"internal": with(func(r *Router, p *bgp.Peer) {
			plain(r, p)
			p.ASN = r.Config.ASN
		}),
		"internal with BFD":        with(func(r *Router, p *bgp.Peer) { p.ASN, p.TTLSecurity = r.Config.ASN, 0 }),
		"internal by its own ASN":  with(func(_ *Router, p *bgp.Peer) { p.LocalASN, p.TTLSecurity = p.ASN, 0 }),
		"internal, TTL security":   with(func(r *Router, p *bgp.Peer) { p.ASN, p.BFD = r.Config.ASN, bgp.BFD{} }),
		"multihop":                 with(func(r *Router, p *bgp.Peer) { plain(r, p); p.Multihop = 4 }),
		"TTL security of 3 hops":   with(func(_ *Router, p *bgp.Peer) { p.TTLSecurity, p.BFD = 3, bgp.BFD{} }),
		"the box does not listen":  with(func(r *Router, _ *bgp.Peer) { r.Config.ListenPort = 0 }),
		"other ports":              with(func(r *Router, p *bgp.Peer) { r.Config.ListenPort, p.Port = 1790, 1791 }),
		"aggregates":               with(func(r *Router, _ *bgp.Peer) { r.Aggregates = true }),
		"no graceful restart":      with(func(r *Router, _ *bgp.Peer) { r.Config.GracefulRestart = 0 }),
		"IPv4 alone":               with(func(_ *Router, p *bgp.Peer) { p.Families.IPv4 = true }),
		"IPv6 alone":               with(func(_ *Router, p *bgp.Peer) { p.Families.IPv6 = true }),
		"four-byte ASNs":           with(func(r *Router, p *bgp.Peer) { r.Config.ASN, p.ASN = 4200000000, 4200000001 }),
		"slow BFD and timers":      with(func(_ *Router, p *bgp.Peer) { p.BFD.Interval, p.BFD.Multiplier, p.Hold = time.Second, 5, time.Minute }),
		"a name that is no symbol": with(func(r *Router, p *bgp.Peer) { p.Name, r.Peer = "0rack-1.tor", "0rack-1.tor" }),
		"over IPv6": with(func(_ *Router, p *bgp.Peer) {
			p.Address, p.Source = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		}),
		"a router of a range": with(func(_ *Router, p *bgp.Peer) {
			p.Address, p.Range = netip.Addr{}, netip.MustParsePrefix("10.0.0.0/24")
		}),
	}
}

func TestRouterConfigGolden(t *testing.T) {
	for _, vendor := range Vendors() {
		t.Run(vendor, func(t *testing.T) {
			r := rich()
			r.Vendor = vendor
			got, err := Text(r)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Join("testdata", "router-"+vendor+".conf")
			if *updateGolden {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s; if that is right: go test ./bgp -run RouterConfigGolden -update (-want +got):\n%s", name, diff)
			}
		})
	}
}

// checkers are the routers' own ways to check a configuration.
var checkers = map[string]func(file string) *exec.Cmd{
	"bird":  func(file string) *exec.Cmd { return exec.Command(program("bird"), "-p", "-c", file) },
	"frr":   func(file string) *exec.Cmd { return exec.Command(program("vtysh"), "--dryrun", "-f", file) },
	"gobgp": func(file string) *exec.Cmd { return exec.Command(program("gobgpd"), "--dry-run", "-f", file) },
}

// program finds a program, also where only an administrator's PATH looks; "": nowhere.
func program(name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin", "/usr/local/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// The routers that are here take what is printed for them, for sessions of all sorts.
func TestRouterConfigIsTakenByRouters(t *testing.T) {
	for vendor, check := range checkers {
		t.Run(vendor, func(t *testing.T) {
			if check("").Path == "" {
				t.Skipf("SKIPPED: no %s here, so nobody has checked what is printed for it: apt-get install -y bird2 frr gobgpd", vendor)
			}
			for name, r := range sides() {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r.Vendor = vendor
					text, err := Text(r)
					if err != nil {
						t.Fatal(err)
					}
					if out, err := taken(t, check, vendor, text); err != nil {
						t.Errorf("%v\n%s\n%s", err, out, text)
					}
				})
			}
			// And they would fail if they did not.
			if out, err := taken(t, check, vendor, "nonsense of 10.0.0.1\n"); err == nil {
				t.Errorf("nonsense is taken, too: %s", out)
			}
		})
	}
}

// taken asks a router about a configuration. A router of a range has no ID of its own
// yet: an operator puts it in.
func taken(t *testing.T, check func(string) *exec.Cmd, vendor, text string) (string, error) {
	t.Helper()
	text = strings.ReplaceAll(text, "ROUTER-ID", "10.0.0.9")
	file := filepath.Join(t.TempDir(), "router.toml")
	if vendor == "bird" && !strings.Contains(text, "\nrouter id") {
		text = "router id 10.0.0.9;\n" + text
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := check(file).CombinedOutput()
	return string(out), err
}

func TestRouterConfigNeverPrintsThePassword(t *testing.T) {
	for _, vendor := range Vendors() {
		for name, r := range sides() {
			r.Vendor = vendor
			text, err := Text(r)
			if err != nil {
				t.Fatalf("%s, %s: %v", vendor, name, err)
			}
			secret := r.Config.Peers[0].Password
			if secret != "" && strings.Contains(text, string(secret)) {
				t.Errorf("%s, %s: the password is printed", vendor, name)
			}
			if secret != "" && (!strings.Contains(text, r.PasswordFile) || !strings.Contains(text, passwordMissing)) {
				t.Errorf("%s, %s: the place of the password is missing", vendor, name)
			}
		}
	}
}

func TestRouterConfigWithoutTheBoxesAddress(t *testing.T) {
	for _, vendor := range Vendors() {
		r := rich()
		r.Vendor, r.Config.Peers[0].Source = vendor, netip.Addr{}
		text, err := Text(r)
		if err != nil || !strings.Contains(text, "Replace BOX-ADDRESS by the box's address") {
			t.Errorf("%s: %v\n%s", vendor, err, text)
		}
		r.Box = netip.MustParseAddr("10.0.0.77")
		if text, err := Text(r); err != nil || !strings.Contains(text, "10.0.0.77") || strings.Contains(text, "BOX-ADDRESS") {
			t.Errorf("%s: %v\n%s", vendor, err, text)
		}
	}
}

func TestRouterConfigErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Router, *bgp.Peer)
		want   string
	}{
		"vendor":   {func(r *Router, _ *bgp.Peer) { r.Vendor = "cisco" }, `"cisco" is not a supported kind of router: arista, bird, frr, gobgp, junos`},
		"peer":     {func(r *Router, _ *bgp.Peer) { r.Peer = "tor2" }, `there is no peer "tor2"`},
		"nothing":  {func(r *Router, _ *bgp.Peer) { r.Prefixes = nil }, "there is nothing that the router could accept"},
		"families": {func(r *Router, p *bgp.Peer) { p.Families.IPv6, r.Prefixes = true, r.Prefixes[:2] }, "of a family that the peer carries"},
		"any ASN":  {func(_ *Router, p *bgp.Peer) { p.ASN = 0 }, "give the peer an asn"},
		"link":     {func(_ *Router, p *bgp.Peer) { p.Address = netip.MustParseAddr("fe80::1%eth0") }, "use an address of a network"},
	} {
		r := rich()
		r.Vendor = "frr"
		test.change(&r, &r.Config.Peers[0])
		if _, err := Text(r); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestAcceptedPrefixes(t *testing.T) {
	r := rich()
	four, six := acceptedOf(r, false), acceptedOf(r, true)
	if want := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("203.0.113.7/32")}; !slices.Equal(four.prefixes, want) {
		t.Errorf("IPv4: %v, want %v", four.prefixes, want)
	}
	if four.limit != 257 || six.limit != mostRoutes {
		t.Errorf("limits %d and %d, want 257 and %d", four.limit, six.limit, mostRoutes)
	}
	r.Aggregates = true
	if four := acceptedOf(r, false); four.limit != 514 {
		t.Errorf("with aggregates the limit is %d, want 514", four.limit)
	}
}
