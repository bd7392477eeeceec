package schema

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	words := []string{"sync_period", "min_sync_period", "exclude_cidrs", "wrr", "rr", "warn", "verify"}
	for _, tt := range []struct{ in, want string }{
		{"sync_perod", "sync_period"},
		{"syncPeriod", "sync_period"},
		{"minSyncPeriod", "min_sync_period"},
		{"excludeCIDRs", "exclude_cidrs"},
		{"wrrr", "wrr"},
		{"wr", "wrr"},
		{"warning", "warn"},
		{"veryfi", "verify"},
		{"maglev", ""},
		{"", ""},
		{strings.Repeat("x", 1000), ""},
	} {
		if got, _ := nearest(tt.in, words); got != tt.want {
			t.Errorf("nearest(%.20q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// A key that is split, or has another name, is named by the keys with its word.
func TestWithWord(t *testing.T) {
	keys := []string{"health_listen", "listen_port", "page", "unlisten"}
	if got := strings.Join(withWord("listen", keys), " "); got != "health_listen listen_port" {
		t.Errorf("got %q", got)
	}
}
