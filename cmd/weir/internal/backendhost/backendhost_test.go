package backendhost

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake is a server in memory that understands the commands of this package.
type fake struct {
	sysctls map[string]string
	links   map[string]bool // is up
	addrs   map[string]bool
	fou     map[string]bool
	on      map[string]bool // devices with an address
	any     bool            // ip6tnl0 has mode any
	table   string
	ran     []string
	fail    string
}

func newFake() *fake {
	return &fake{
		sysctls: map[string]string{"net.ipv4.conf.all.arp_ignore": "0", "net.ipv4.conf.all.arp_announce": "0", "net.ipv4.conf.all.rp_filter": "1"},
		links:   map[string]bool{}, addrs: map[string]bool{}, fou: map[string]bool{}, on: map[string]bool{},
	}
}

func (f *fake) host(t *testing.T) Host {
	return Host{
		Run: f.run, Record: filepath.Join(t.TempDir(), "record.json"),
		Sysctl:     func(name string) string { return f.sysctls[name] },
		Link:       func(name string) (bool, bool) { up, exists := f.links[name]; return exists, up },
		HasAddress: func(a netip.Addr) bool { return f.addrs[a.String()] },
		HasIPv4:    func(device string) bool { return f.on[device] },
	}
}

func (f *fake) run(_ context.Context, args ...string) (string, error) {
	line := strings.Join(args, " ")
	switch {
	case line == "ip fou show":
		return strings.Join(sorted(f.fou), "\n"), nil
	case line == "ip -6 tunnel show ip6tnl0":
		return map[bool]string{true: "ip6tnl0: any/ipv6 remote :: local ::", false: "ip6tnl0: ipv6/ipv6 remote :: local ::"}[f.any], nil
	case line == "nft list table inet weir_backend" && f.table == "":
		return "", errors.New("no such table")
	case line == "nft list table inet weir_backend":
		return f.table, nil
	case f.fail != "" && strings.Contains(line, f.fail):
		return "", errors.New("refused: " + line)
	}
	f.ran = append(f.ran, line)
	switch args[0] {
	case "sysctl":
		name, value, _ := strings.Cut(args[2], "=")
		f.sysctls[name] = value
	case "modprobe":
		for module, device := range map[string]string{"ipip": "tunl0", "ip6_tunnel": "ip6tnl0", "ip_gre": "gre0", "sit": "sit0", "ip6_gre": "ip6gre0"} {
			if args[1] == module {
				if _, there := f.links[device]; !there {
					f.links[device] = false
				}
				f.sysctls["net.ipv4.conf."+device+".rp_filter"] = "0"
			}
		}
	case "nft":
		switch args[1] {
		case "delete":
			f.table = ""
		case "flush":
			f.table = "table\n"
		case "add":
			f.table += args[len(args)-1] + "\n"
		}
	case "ip":
		f.ip(args[1:])
	}
	return "", nil
}

func (f *fake) ip(args []string) {
	switch {
	case args[0] == "link":
		f.links[args[2]] = args[3] == "up"
	case args[0] == "address" && args[4] != "lo":
		if f.on[args[4]] = true; args[1] == "del" {
			delete(f.on, args[4])
		}
	case args[0] == "-6" && args[1] == "tunnel":
		f.any = args[5] == "any"
	case args[0] == "address":
		a := netip.MustParsePrefix(args[2]).Addr().String()
		if f.addrs[a] = true; args[1] == "del" {
			delete(f.addrs, a)
		}
	case args[2] == "add":
		f.fou["port "+args[4]+" gue "+args[0]] = true
	default:
		delete(f.fou, "port "+args[4]+" gue "+args[0])
	}
}

func sorted(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func spec(tunnel string, vips ...string) Spec {
	s := Spec{Tunnel: tunnel}
	if tunnel != "" {
		s.MTU = 1500
	}
	if tunnel == "gue" {
		s.Port = 6080
	}
	for _, v := range vips {
		s.VIPs = append(s.VIPs, netip.MustParseAddr(v))
	}
	return s
}

// TestConfigureCheckAndUndo goes through each method: a second call does nothing, and undo restores the
// server.
func TestConfigureCheckAndUndo(t *testing.T) {
	t.Parallel()
	for _, kind := range append([]string{"", "ipip mixed", "gue mixed", "gre mixed"}, Tunnels...) {
		tunnel, mixed, _ := strings.Cut(kind, " ")
		f := newFake()
		h, s := f.host(t), spec(tunnel, "192.0.2.10", "2001:db8:2::10")
		s.Mixed = mixed != ""
		before := newFake()
		if r := h.Check(t.Context(), s); r.OK {
			t.Errorf("%q: a server without configuration is well: %+v", tunnel, r)
		}
		if _, err := h.Configure(t.Context(), s); err != nil {
			t.Fatalf("%q: %v", tunnel, err)
		}
		if r := h.Check(t.Context(), s); !r.OK {
			t.Errorf("%q: %+v", tunnel, r)
		}
		if got, err := h.Configured(); err != nil || !slices.Equal(got.VIPs, s.VIPs) || got.Tunnel != tunnel {
			t.Errorf("%q: configured: %+v, %v", tunnel, got, err)
		}
		if ran, err := h.Configure(t.Context(), s); err != nil || len(ran) > 0 {
			t.Errorf("%q: a second call: %v, %v", tunnel, ran, err)
		}
		if _, err := h.Undo(t.Context()); err != nil {
			t.Fatalf("%q: %v", tunnel, err)
		}
		for name, want := range before.sysctls {
			if f.sysctls[name] != want {
				t.Errorf("%q: after undo %s is %s, was %s", tunnel, name, f.sysctls[name], want)
			}
		}
		up := slices.Collect(func(yield func(string) bool) {
			for name, up := range f.links {
				if up && !yield(name) {
					return
				}
			}
		})
		if f.any || len(up)+len(f.on)+len(f.addrs)+len(f.fou)+len(f.table) > 0 {
			t.Errorf("%q: left after undo: %v, %v, %v, %q", tunnel, up, f.addrs, f.fou, f.table)
		}
		if ran, err := h.Undo(t.Context()); err != nil || len(ran) > 0 {
			t.Errorf("%q: a second undo: %v, %v", tunnel, ran, err)
		}
	}
}

func TestUndoKeepsTheStateOfOtherPrograms(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := f.host(t)
	f.addrs["192.0.2.10"], f.sysctls["net.ipv4.conf.all.arp_ignore"] = true, "2"
	if _, err := h.Configure(t.Context(), spec("", "192.0.2.10", "192.0.2.11")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]bool{"192.0.2.10": true}, f.addrs); d != "" || f.sysctls["net.ipv4.conf.all.arp_ignore"] != "2" {
		t.Errorf("after undo: %v; addresses (-want +got):\n%s", f.sysctls, d)
	}
}

func TestAnotherSpecificationReplacesTheFirst(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := f.host(t)
	for _, s := range []Spec{spec("gue", "192.0.2.10", "192.0.2.11"), spec("gre", "192.0.2.11", "2001:db8:2::10")} {
		if _, err := h.Configure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if r := h.Check(t.Context(), s); !r.OK {
			t.Errorf("%+v", r)
		}
	}
	if d := cmp.Diff([]string{"192.0.2.11", "2001:db8:2::10"}, sorted(f.addrs)); d != "" || len(f.fou) > 0 || f.links["tunl0"] {
		t.Errorf("ports %v, devices %v, addresses (-want +got):\n%s", f.fou, f.links, d)
	}
}

// TestFailureIsRecorded has a command fail: the next call continues, and undo reverts what was done.
func TestFailureIsRecorded(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := f.host(t)
	f.fail = "address add 192.0.2.10"
	if _, err := h.Configure(t.Context(), spec("", "192.0.2.10")); err == nil || !strings.Contains(err.Error(), f.fail) {
		t.Errorf("%v", err)
	}
	f.fail = ""
	if ran, err := h.Configure(t.Context(), spec("", "192.0.2.10")); err != nil || len(ran) != 1 {
		t.Errorf("the next call: %v, %v", ran, err)
	}
	if _, err := h.Undo(t.Context()); err != nil || f.sysctls["net.ipv4.conf.all.arp_ignore"] != "0" {
		t.Errorf("%v, %v", err, f.sysctls)
	}
}

// TestUndoContinuesAfterAFailure has another program remove a VIP before: undo reports it, and reverts
// the rest.
func TestUndoContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := f.host(t)
	if _, err := h.Configure(t.Context(), spec("", "192.0.2.10")); err != nil {
		t.Fatal(err)
	}
	f.fail = "address del"
	if _, err := h.Undo(t.Context()); err == nil || f.sysctls["net.ipv4.conf.all.arp_ignore"] != "0" {
		t.Errorf("%v, %v", err, f.sysctls)
	}
	if s, err := h.Configured(); err != nil || len(s.VIPs) > 0 {
		t.Errorf("still configured: %+v, %v", s, err)
	}
}

// TestAnotherSpecificationIsAppliedAfterAFailure has another program remove the first VIP before: the second one comes
// nevertheless, and the failure is reported.
func TestAnotherSpecificationIsAppliedAfterAFailure(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := f.host(t)
	if _, err := h.Configure(t.Context(), spec("", "192.0.2.10")); err != nil {
		t.Fatal(err)
	}
	f.fail = "address del 192.0.2.10"
	second := spec("", "192.0.2.11")
	if _, err := h.Configure(t.Context(), second); err == nil || !strings.Contains(err.Error(), f.fail) {
		t.Errorf("%v", err)
	}
	if r := h.Check(t.Context(), second); !r.OK {
		t.Errorf("%+v", r)
	}
}

func TestSegmentsFitTheTunnel(t *testing.T) {
	t.Parallel()
	for tunnel, want := range map[string][2]int{"ipip": {1440, 1400}, "gre": {1436, 1396}, "gue": {1420, 1380}} {
		s := spec(tunnel, "192.0.2.10", "2001:db8:2::10")
		if got := [2]int{s.mss(4), s.mss(6)}; got != want {
			t.Errorf("%s: %v, want %v", tunnel, got, want)
		}
		if s.Mixed = true; s.mss(4) != want[0]-20 || s.mss(6) != want[1] {
			t.Errorf("%s, mixed: %d, %d", tunnel, s.mss(4), s.mss(6))
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Spec{
		"no VIP is given: weir backend 192.0.2.10":                                            spec(""),
		`"vxlan" is no tunnel: use one of ipip, gue, gre`:                                     spec("vxlan", "192.0.2.10"),
		"127.0.0.1 can't be a VIP":                                                            spec("", "127.0.0.1"),
		"no device of this server is up, so the MTU of the path is unknown: write --mtu 1500": {VIPs: spec("", "192.0.2.10").VIPs, Tunnel: "ipip"},
		"only tunnels can be mixed: write --tunnel ipip, gue or gre":                          {VIPs: spec("", "192.0.2.10").VIPs, Mixed: true},
		"an MTU of 65536 is not from 1280, the least of IPv6, to 65535":                       {VIPs: spec("", "192.0.2.10").VIPs, Tunnel: "ipip", MTU: 65536},
		"gue needs a port above 0":                                                            {VIPs: spec("", "192.0.2.10").VIPs, Tunnel: "gue", MTU: 1500},
	} {
		if err := s.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}
