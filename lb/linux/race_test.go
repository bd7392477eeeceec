package linux

import (
	"context"
	"sync"
	"testing"
)

// TestCountersAreReadWhileTheConfigurationChanges is for the race detector: the status page
// reads counters during a reload.
func TestCountersAreReadWhileTheConfigurationChanges(t *testing.T) {
	k := &Kernel{core: core{mode: ModeIPVS}}
	var all sync.WaitGroup
	all.Go(func() {
		for range 100 {
			if err := k.Configure(Config{Ping: true}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 100 {
		if _, err := k.Traffic(context.Background()); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
