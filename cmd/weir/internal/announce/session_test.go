package announce

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/bgp"
)

func TestTheRouterIDIsTheAddressTowardsAPeer(t *testing.T) {
	t.Parallel()
	gone := netip.MustParseAddr("203.0.113.1") // a link that is down
	find := func(router netip.Addr) (netip.Addr, error) {
		if router == gone {
			return netip.Addr{}, syscall.ENETUNREACH
		}
		return sourceTo(router)
	}
	for _, tt := range []struct {
		name  string
		peers []bgp.Peer
		want  string
	}{
		{"its address", []bgp.Peer{{Address: netip.MustParseAddr("2001:db8::1")}, {Address: netip.MustParseAddr("127.0.0.9")}}, "127.0.0.1"},
		{"its range", []bgp.Peer{{Range: netip.MustParsePrefix("127.0.9.0/24")}}, "127.0.0.1"},
		{"the source", []bgp.Peer{{Address: netip.MustParseAddr("192.0.2.1"), Source: netip.MustParseAddr("192.0.2.77")}}, "192.0.2.77"},
		{"of the next one, if the first is unreachable", []bgp.Peer{{Address: gone}, {Address: netip.MustParseAddr("127.0.0.9")}}, "127.0.0.1"},
	} {
		if got, err := ownAddress(tt.peers, find); err != nil || got.String() != tt.want {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	if _, err := ownAddress([]bgp.Peer{{Name: "tor1", Address: gone}}, find); !errors.Is(err, syscall.ENETUNREACH) || !strings.Contains(err.Error(), "tor1") {
		t.Errorf("without a route: %v", err)
	}
	if _, err := ownAddress([]bgp.Peer{{Address: netip.MustParseAddr("2001:db8::1")}}, find); err == nil || !strings.Contains(err.Error(), "write router_id") {
		t.Errorf("without IPv4: %v", err)
	}
}

func TestRoutesHideNoFailedStart(t *testing.T) {
	t.Parallel()
	s := newSession(Options{Log: slog.New(slog.DiscardHandler), Speaker: &slowSpeaker{}})
	if s.begin(context.Background(), bgp.Config{}) || s.err == nil {
		t.Fatalf("began without a router ID: %v", s.err)
	}
	if !s.set(nil, time.Time{}) || s.err == nil {
		t.Error("routes that the speaker took hide that it has not started")
	}
}
