package load

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/source"
)

// allocated returns the bytes that are allocated to read a configuration.
func allocated(t *testing.T, text string, files source.Files) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Parse("weir.toml", []byte(text), files)
	must(t, err)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestServicesReadNoWholeBundle has many services with the same file of many certificates.
func TestServicesReadNoWholeBundle(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		text.WriteString(serviceText(fmt.Sprintf("s%d", i), fmt.Sprintf("192.0.2.%d", i+1)))
		text.WriteString("[service.check]\ntype = \"tls\"\nverify = true\nca_file = \"ca.pem\"\n")
	}
	one := certificate(t)
	size := allocated(t, text.String(), memory{"ca.pem": one})
	if more := int64(allocated(t, text.String(), memory{"ca.pem": strings.Repeat(one, 100)})) - int64(size); more > 20<<20 {
		t.Errorf("100 services take %d MiB", more>>20)
	}
}

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
	more := int64(allocated(t, services.String()+pools.String(), noFiles{})) - int64(allocated(t, services.String(), noFiles{}))
	if more > 30<<20 {
		t.Errorf("200 pools take %d MiB", more>>20)
	}
}
