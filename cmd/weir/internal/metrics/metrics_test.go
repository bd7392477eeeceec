package metrics

import (
	"testing"
	"time"

	"weir/cmd/weir/internal/status"
)

func TestLastSyncIsAbsentBeforeTheFirst(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]time.Time{"starting": {}, "synced": time.Unix(1, 0)} {
		x := Sample{Status: status.Status{Kernel: status.Kernel{LastSync: last}}}
		families, err := New(func() Sample { return x }).Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for _, f := range families {
			if f.GetName() == "weir_last_sync_timestamp_seconds" {
				got = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if want := float64(max(0, last.Unix())); got != want {
			t.Errorf("%s: weir_last_sync_timestamp_seconds is %v, want %v", name, got, want)
		}
	}
}
