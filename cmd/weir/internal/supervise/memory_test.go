package supervise

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGarbageOfAnAuditIsFreed(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	deadline := time.Now().Add(time.Minute) // of a busy machine
	for FreeGarbage(); after.NumForcedGC <= before.NumForcedGC; runtime.ReadMemStats(&after) {
		if time.Now().After(deadline) {
			t.Fatal("no collection was forced")
		}
		runtime.Gosched()
	}
}

func TestGarbageIsAllowedWhileAConfigurationIsLoaded(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "1GiB")
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	before := percent()
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "")
	collect := func() {
		for range 2 { // one may be under way
			done := make(chan struct{})
			runtime.AddCleanup(new(*int), func(done chan struct{}) { close(done) }, done)
			runtime.GC()
			<-done
		}
	}
	var used []byte
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"the start", LimitMemory, percentOf(0)},
		{"after a collection", collect, percentOf(0)},
		{"it is over", FreeMemory, restingPercent},
		{"after a collection then", collect, restingPercent},
		{"a reload", AllowGarbage, percentOf(0)},
		{"a second one in the meantime", AllowGarbage, percentOf(0)},
		{"with much in use", func() { used = make([]byte, 2*roomyHeap); collect() }, loadingPercent},
		{"with little again", func() { runtime.KeepAlive(used); used = nil; collect() }, percentOf(0)},
		{"it is over, too", FreeMemory, restingPercent},
	} {
		step.do()
		for end := time.Now().Add(10 * time.Second); percent() != step.want; time.Sleep(time.Millisecond) { // what a collection causes is done in the background
			if time.Now().After(end) {
				t.Fatalf("%s: %d %% garbage, want %d", step.name, percent(), step.want)
			}
		}
	}
	t.Setenv("GOGC", "80")
	debug.SetGCPercent(80)
	LimitMemory()
	FreeMemory()
	if got := percent(); got != 80 {
		t.Errorf("GOGC=80 is replaced by %d", got)
	}
}

func TestPercentOfGarbage(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{
		0: 1100, 1 << 20: 1100, 4 << 20: 1100, 12 << 20: 300, 24 << 20: 100, 47 << 20: 100, 48 << 20: 100, 500 << 20: 100,
	} {
		if got := percentOf(live); got != want {
			t.Errorf("%d MiB live: %d %% garbage, want %d", live>>20, got, want)
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no cgroups": {nil, math.MaxInt64},
		"version 1":  {map[string]string{"proc/self/cgroup": "3:memory:/weir\n"}, math.MaxInt64},
		"no limit": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/weir.service\n",
			"sys/fs/cgroup/system.slice/weir.service/memory.high": "max\n",
			"sys/fs/cgroup/system.slice/weir.service/memory.max":  "max\n",
		}, math.MaxInt64},
		"MemoryHigh below MemoryMax": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/weir.service\n",
			"sys/fs/cgroup/system.slice/weir.service/memory.high": "1000\n",
			"sys/fs/cgroup/system.slice/weir.service/memory.max":  "2000\n",
		}, 1000},
		"the slice has less": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/weir.service\n",
			"sys/fs/cgroup/system.slice/weir.service/memory.high": "1000\n",
			"sys/fs/cgroup/system.slice/memory.max":               "700\n",
		}, 700},
		"in a container": {map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "500\n",
		}, 500},
	} {
		root := t.TempDir()
		for file, text := range test.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupLimit(root); got != test.want {
			t.Errorf("%s: %d instead of %d", name, got, test.want)
		}
	}
}
