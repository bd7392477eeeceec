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

// gcPercent is the garbage, in percent of the live heap, at which a collection begins. An
// audit or a scrape makes little garbage and is rare, so that a small heap costs little
// processor time.
const gcPercent = 50

// LimitMemory sets how the garbage collector trades processor time for memory: gcPercent,
// and as its soft limit nine tenths of the memory at which the kernel would throttle weir
// (MemoryHigh= or MemoryMax= of the unit). The variables GOGC and GOMEMLIMIT take
// precedence.
func LimitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if n := cgroupLimit("/"); n < math.MaxInt64 {
			debug.SetMemoryLimit(n / 10 * 9)
		}
	}
}

// FreeMemory returns to the system what a configuration has taken while it was loaded: a
// multiple of what remains of it.
func FreeMemory() { go debug.FreeOSMemory() }

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
