package supervise

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
)

// The garbage, in percent of the live heap, at which a collection begins. A start and a
// reload make a multiple of what remains, and are over in seconds. Afterwards an audit or a
// scrape makes little garbage and is rare, so that a small heap costs little processor time.
const (
	loadingPercent = 100
	restingPercent = 30
)

// roomyHeap is the least heap, in bytes, at which a collection begins while a configuration is
// loaded: from Go's 4 MiB on, one for every half more took a quarter of the processor time of
// a start with 1,000 Services.
const roomyHeap = 48 << 20

// leastLive is taken for the live heap where it is smaller, in bytes: Go scales its least heap of
// 4 MiB by the same percentage (runtime/mgcpacer.go, heapMinimum).
const leastLive = 4 << 20

// LimitMemory sets how the garbage collector trades processor time for memory: AllowGarbage
// until the first FreeMemory, and as its soft limit nine tenths of the memory at which the
// kernel would throttle weir (MemoryHigh= or MemoryMax= of the unit). The variables GOGC and
// GOMEMLIMIT take precedence.
func LimitMemory() {
	AllowGarbage()
	if os.Getenv("GOMEMLIMIT") == "" {
		if n := cgroupLimit("/"); n < math.MaxInt64 {
			debug.SetMemoryLimit(n / 10 * 9)
		}
	}
}

// AllowGarbage begins a time in which a configuration is loaded. Then a collection begins at
// roomyHeap, or at loadingPercent of garbage if that is more.
func AllowGarbage() {
	collector.Lock()
	defer collector.Unlock()
	collector.loading++
	allow(collector.loading)
}

// FreeMemory ends it, and returns to the system what the configuration has taken.
func FreeMemory() {
	collector.Lock()
	defer collector.Unlock()
	collector.loading++
	setGarbage(restingPercent)
	FreeGarbage()
}

// collector is the garbage collector, of which a process has one.
var collector struct {
	sync.Mutex
	loading int // counts the calls of AllowGarbage and FreeMemory
}

// allow sets the percentage for the live heap of the last collection, and again after each one,
// until the next call of AllowGarbage or FreeMemory. The caller holds the collector.
func allow(loading int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	setGarbage(percentOf(live[0].Value.Uint64()))
	runtime.AddCleanup(new(*int), func(loading int) { // the next collection finds it unused
		collector.Lock()
		defer collector.Unlock()
		if collector.loading == loading {
			allow(loading)
		}
	}, loading)
}

// percentOf is how much garbage is allowed beside a live heap of some bytes, in percent of it.
func percentOf(live uint64) int {
	live = max(live, leastLive)
	return max(loadingPercent, int(100*(roomyHeap-min(live, roomyHeap))/live))
}

// FreeGarbage returns the garbage of an audit to the system: until the next one nothing needs it.
func FreeGarbage() { go debug.FreeOSMemory() }

func setGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// cgroupLimit returns the lowest memory.high or memory.max of this process's cgroup and of
// those above it (cgroups version 2), in bytes; MaxInt64 if none has one.
func cgroupLimit(root string) int64 {
	lowest := int64(math.MaxInt64)
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return lowest
	}
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for ok {
			for _, name := range []string{"memory.high", "memory.max"} {
				b, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", group, name))
				if err != nil {
					continue // the root cgroup has none
				}
				if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
					lowest = min(lowest, n)
				}
			}
			if group == "" || group == "." {
				break
			}
			group = path.Dir(group)
		}
	}
	return lowest
}
