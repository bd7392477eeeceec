package load

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestPoolsCopyNoServices has many services and pools. A copy of all addresses for each range would take
// seconds with thousands.
func TestPoolsCopyNoServices(t *testing.T) {
	var services, pools strings.Builder
	for i := range 2000 {
		services.WriteString(serviceText(fmt.Sprintf("s%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	for i := range 200 {
		fmt.Fprintf(&pools, "[[pool]]\nname = \"p%d\"\naddresses = [\"198.18.%d.0/24\"]\n", i, i)
	}
	allocated := func(text string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("weir.toml", []byte(text), noFiles{})
		must(t, err)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if more := int64(allocated(services.String()+pools.String())) - int64(allocated(services.String())); more > 30<<20 {
		t.Errorf("200 pools take %d MiB", more>>20)
	}
}
