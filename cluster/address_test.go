package cluster

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestAdvertisedAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, bind, advertise string
		join                  []string
		want, err             string
	}{
		{"what is written", "[::]:7946", "10.0.0.5:7947", nil, "10.0.0.5:7947", ""},
		{"where it listens", "10.0.0.5:7000", "", []string{"127.0.0.1"}, "10.0.0.5:7000", ""},
		{"its own towards a member", "[::]:7000", "", []string{"127.0.0.1"}, "127.0.0.1:7000", ""},
		{"with a port", "0.0.0.0:7000", "", []string{"127.0.0.1:9"}, "127.0.0.1:7000", ""},
		{"towards the first that can be reached", "0.0.0.0:7000", "", []string{"[::1]:7946", "127.0.0.1"}, "127.0.0.1:7000", ""},
		{"no member to join", "[::]:7000", "", nil, "", "there is no member to join"},
		{"its own name in the hosts file", "[::]:7000", "", []string{"localhost"}, "", "localhost is a loopback address of this box"},
		{"no port", "[::]:7000", "", []string{"127.0.0.1:x"}, "", "so configure it: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Config{Bind: netip.MustParseAddrPort(tt.bind), Join: tt.join}
			if tt.advertise != "" {
				c.Advertise = netip.MustParseAddrPort(tt.advertise)
			}
			got, err := c.advertised()
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil && got != netip.MustParseAddrPort(tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestBoxesThatListenEverywhere shows that the default of [fleet] bind does: such
// boxes are received by those on IPv4, although they listen on IPv6.
func TestBoxesThatListenEverywhere(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this kernel has no IPv6:", err)
	} else {
		_ = l.Close()
	}
	a := run(t, config(t, "a"))
	cfg := config(t, "b", a)
	cfg.Bind = netip.AddrPortFrom(netip.IPv6Unspecified(), cfg.Bind.Port())
	b := run(t, cfg)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), cfg.Bind.Port())
	for _, x := range []struct {
		on *box
		of string
	}{{a, "b"}, {b, "a"}, {b, "b"}} {
		within(t, x.on.cfg.Name+" hears "+x.of, func() bool {
			m, ok := x.on.sees(x.of)
			return ok && m.Life == Alive && !m.Suspect && (x.of != "b" || m.Addr == at)
		})
	}
}
