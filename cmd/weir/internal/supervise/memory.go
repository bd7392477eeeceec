package supervise

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// The garbage, in percent of the live heap, at which a collection begins. A start and a
// reload make a multiple of what remains, and are over in seconds. Afterwards an audit or a
// scrape makes little garbage and is rare, so that a small heap costs little processor time.
const (
	loadingPercent = 50
	restingPercent = 30
)

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

// AllowGarbage begins a time in which a configuration is loaded.
func AllowGarbage() { setGarbage(loadingPercent) }

// FreeMemory ends it, and returns to the system what the configuration has taken.
func FreeMemory() {
	setGarbage(restingPercent)
	FreeGarbage()
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
