package k8ssync

import (
	"testing"
	"time"
)

func TestOnlyALinkerMakesAClusterHurry(t *testing.T) {
	if got := patient.faster(hurry); got != patient {
		t.Errorf("timings are %+v, want %+v", got, patient)
	}
	got := patient.faster("5")
	if got.silence.idle != 3*time.Second || got.silence.ping != 2*time.Second || got.saves != 6*time.Second || got.grace != patient.grace {
		t.Errorf("five times as fast: %+v", got)
	}
}
