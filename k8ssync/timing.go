package k8ssync

import (
	"strconv"
	"time"
)

// timing has the intervals of a Cluster. Those of tests are shorter.
type timing struct {
	// poll is the interval of checks of files with credentials.
	poll time.Duration
	// grace is the time of the API server to answer before the snapshot is
	// served instead. An error ends it at once.
	grace time.Duration
	// quiet is how long the file waits after a change, saves is the least interval of
	// writes, and refresh that of writes without a change.
	quiet, saves, refresh time.Duration
	// backoff is the longest wait of a broken feed, before jitter.
	backoff  time.Duration
	timeouts timeouts
}

var defaultTiming = timing{
	poll: 5 * time.Second, grace: 2 * time.Second,
	quiet: 5 * time.Second, saves: 30 * time.Second, refresh: time.Hour,
	backoff:  15 * time.Second,
	timeouts: defaultTimeouts,
}

// hurry divides the intervals of a Cluster, if the linker of a test has set it
// (-X weir/k8ssync.hurry=5): a test of the whole program has no other means. Releases
// have none.
var hurry string

// faster divides the intervals by hurry. The grace of an API server stays: it is a limit
// for slow machines.
func (t timing) faster(hurry string) timing {
	n, err := strconv.Atoi(hurry)
	if err != nil || n < 2 {
		return t
	}
	for _, d := range []*time.Duration{
		&t.poll, &t.quiet, &t.saves, &t.backoff, &t.timeouts.dial, &t.timeouts.idle, &t.timeouts.ping,
	} {
		*d /= time.Duration(n)
	}
	return t
}
