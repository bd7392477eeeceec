package daemon

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestLastSyncIsAbsentBeforeTheFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		last time.Time
		want bool
	}{
		{"starting", time.Time{}, false},
		{"synced", time.Unix(1, 0), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, v := &box{}, &view{}
			v.status.Kernel.LastSync = tt.last
			b.published.Store(v)
			out := make(chan prometheus.Metric, 100)
			collector{b}.box(out)
			close(out)
			got := false
			for m := range out {
				got = got || m.Desc() == descLastSync
			}
			if got != tt.want {
				t.Errorf("weir_last_sync_timestamp_seconds is there: %v, want %v", got, tt.want)
			}
		})
	}
}
