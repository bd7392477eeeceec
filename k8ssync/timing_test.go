package k8ssync

import (
	"testing"
	"time"
)

func TestOnlyTheLinkerShortensIntervals(t *testing.T) {
	if got := defaultTiming.faster(hurry); got != defaultTiming {
		t.Errorf("timings are %+v, want %+v", got, defaultTiming)
	}
	got := defaultTiming.faster("5")
	if got.timeouts.idle != 3*time.Second || got.timeouts.ping != 2*time.Second || got.saves != 6*time.Second || got.grace != defaultTiming.grace {
		t.Errorf("five times as fast: %+v", got)
	}
}
