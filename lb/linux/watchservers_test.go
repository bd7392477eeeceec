package linux

import (
	"errors"
	"os"
	"slices"
	"testing"

	"weir/lb"
)

func TestTheEndOfAllVirtualServersIsNoticed(t *testing.T) {
	_, missing := os.Open("/nowhere/ip_vs")
	for _, tt := range []struct {
		name string
		any  bool
		err  error
		want []string
	}{
		{"cleared", false, nil, []string{"IPVS was cleared"}},
		{"unloaded", false, missing, []string{"module ip_vs was unloaded"}},
		{"unreadable", false, errors.New("no memory"), nil},
		{"unchanged", true, nil, nil},
	} {
		var w serversWatch
		var got []string
		notify := func(e lb.Event) {
			if got = append(got, e.What); !e.Host {
				t.Errorf("%s: it needs no audit", tt.name)
			}
		}
		w.compare(false, tt.err, notify) // as before the first virtual server
		w.compare(true, nil, notify)
		for range 2 { // only the change counts
			w.compare(tt.any, tt.err, notify)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: reported %q, want %q", tt.name, got, tt.want)
		}
	}
}
