package cluster

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWhatABoxTellsOthersToReachItBy(t *testing.T) {
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
		{"nobody to join", "[::]:7000", "", nil, "", "there is nobody to join"},
		{"its own name in the hosts file", "[::]:7000", "", []string{"localhost"}, "", "localhost is this box itself"},
		{"no port", "[::]:7000", "", []string{"127.0.0.1:x"}, "", "so write it: "},
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
