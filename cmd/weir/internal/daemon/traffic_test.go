package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
)

func TestTrafficIsWrittenAsPrometheusReadsIt(t *testing.T) {
	doc := status.Services{Frontends: []status.Frontend{
		{
			Service: "static/web", Address: "2001:db8::1", Port: 80, Protocol: "tcp",
			Traffic: &status.Counters{Connections: 1, PacketsIn: 2, PacketsOut: 3, BytesIn: 4, BytesOut: 5},
			Servers: []status.Server{{
				Address: "[fd00::1]:8080", Weight: 6, Active: 7, Inactive: 8,
				Traffic: &status.Counters{Connections: 9, PacketsIn: 10, PacketsOut: 11, BytesIn: 12, BytesOut: 13},
			}},
		},
		{Address: "192.0.2.1", Port: 80, Protocol: "tcp", Traffic: &status.Counters{}}, // a stranger's
	}}
	var b strings.Builder
	writeTraffic(&b, doc, errors.New("cut short"))
	var samples []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	const service = `{service="static/web",vip="2001:db8::1",port="80",protocol="tcp"`
	const backend = service + `,backend="[fd00::1]:8080"`
	want := []string{
		"weir_traffic_read_failed 1",
		"weir_service_connections_total" + service + "} 1",
		"weir_service_packets_total" + service + `,direction="in"} 2`,
		"weir_service_packets_total" + service + `,direction="out"} 3`,
		"weir_service_bytes_total" + service + `,direction="in"} 4`,
		"weir_service_bytes_total" + service + `,direction="out"} 5`,
		"weir_backend_connections_total" + backend + "} 9",
		"weir_backend_packets_total" + backend + `,direction="in"} 10`,
		"weir_backend_packets_total" + backend + `,direction="out"} 11`,
		"weir_backend_bytes_total" + backend + `,direction="in"} 12`,
		"weir_backend_bytes_total" + backend + `,direction="out"} 13`,
		"weir_backend_open_connections" + backend + `,state="active"} 7`,
		"weir_backend_open_connections" + backend + `,state="inactive"} 8`,
		"weir_backend_weight" + backend + "} 6",
	}
	if d := cmp.Diff(want, samples); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if n := strings.Count(b.String(), "# TYPE "); n != 9 {
		t.Errorf("%d metrics, want 9:\n%s", n, b.String())
	}
}
