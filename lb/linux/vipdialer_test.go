package linux

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/lb"
)

// TestVIPDialerNeedsAMark has no connection without a virtual server: it would reach any backend.
func TestVIPDialerNeedsAMark(t *testing.T) {
	t.Parallel()
	d := NewVIPDialer(0x4000)
	at := lb.CheckTarget{Service: lb.ServiceID{Name: "web"}, Backend: netip.MustParseAddr("127.0.0.1")}
	for range 2 {
		if _, err := d.Dial(t.Context(), "tcp", "192.0.2.10:80", at); !errors.Is(err, lb.ErrNoCheckServer) {
			t.Errorf("%v", err)
		}
		d.Set(map[lb.ServiceID]map[netip.Addr]uint32{at.Service: {netip.MustParseAddr("127.0.0.2"): 7}})
	}
}

func TestParametersThatDropReplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ acceptAll, accept, filterAll, filter, want string }{
		{"1", "0", "0", "0", ""},
		{"0", "1", "0", "2", ""},
		{"1", "0", "1", "2", ""},
		{"0", "0", "0", "0", "accept_local is 0 on back"},
		{"1", "0", "0", "1", "rp_filter is 1 on back"},
		{"1", "0", "1", "0", "rp_filter is 1 on back"},
	} {
		dir := t.TempDir()
		for name, value := range map[string]string{
			"all/accept_local": tt.acceptAll, "back/accept_local": tt.accept, "all/rp_filter": tt.filterAll, "back/rp_filter": tt.filter,
		} {
			must(t, errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600)))
		}
		err := replyFault(dir+"/", "back")
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !errors.Is(err, lb.ErrRepliesDropped)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestInterfaceOfABackend reads one route, not the addresses of all interfaces.
func TestInterfaceOfABackend(t *testing.T) {
	t.Parallel()
	if got := deviceTo(t.Context(), netip.MustParseAddr("127.0.0.1")); got != "lo" {
		t.Errorf("interface %q, want lo", got)
	}
}
