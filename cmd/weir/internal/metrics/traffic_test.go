package metrics

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/traffic"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
	"weir/lb/health"
)

// fixed are Sources of a test.
func fixed(err error, backends []health.Backend, servers ...status.Frontend) Sources {
	return Sources{
		Traffic: func(_ context.Context, each func(status.Frontend)) error {
			for _, s := range servers {
				each(s)
			}
			return err
		},
		Checks: func(each func(health.Backend)) {
			for _, b := range backends {
				each(b)
			}
		},
	}
}

// testServer returns a virtual server with one backend and no traffic.
func testServer(backend string) status.Frontend {
	return status.Frontend{
		Key: testFrontend, Service: "static/web", Traffic: &traffic.Counters{},
		Servers: []status.Server{{Key: netip.MustParseAddrPort(backend), Traffic: &traffic.Counters{}}},
	}
}

var testFrontend = lb.Frontend{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80, Proto: lb.TCP}

func TestTrafficIsWrittenAsPrometheusReadsIt(t *testing.T) {
	t.Parallel()
	server := status.Frontend{
		Key: testFrontend, Service: "static/web",
		Traffic: &traffic.Counters{Connections: 1, PacketsIn: 2, PacketsOut: 3, BytesIn: 4, BytesOut: 5},
		Servers: []status.Server{{
			Key: netip.MustParseAddrPort("[fd00::1]:8080"), Weight: 6, Active: 7, Inactive: 8,
			Traffic: &traffic.Counters{Connections: 9, PacketsIn: 10, PacketsOut: 11, BytesIn: 12, BytesOut: 13},
		}},
	}
	foreign := server
	foreign.Service = ""
	web := health.Backend{
		Service: lb.ServiceID{Source: "static", Name: "web"}, Port: lb.PortKey{Port: 80, Proto: lb.TCP},
		Backend: netip.MustParseAddrPort("[fd00::1]:8080"), State: "up", Took: 20 * time.Millisecond,
	}
	down, unknown := web, web
	down.Backend, down.State, down.Took = netip.MustParseAddrPort("[fd00::2]:8080"), "down", 250*time.Millisecond
	unknown.State, unknown.Took = "unknown", time.Second
	from := fixed(errors.New("cut short"), []health.Backend{web, down, unknown}, server, foreign)
	const service = `{service="static/web",vip="2001:db8::1",port="80",protocol="tcp"`
	const backend = service + `,backend="[fd00::1]:8080"`
	want := []string{
		"weir_traffic_read_failed 1",
		`weir_check_last_duration_seconds{service="static/web",port="80",protocol="tcp"} 0.25`,
		"weir_service_connections_total" + service + "} 1",
		"weir_service_packets_total" + service + `,direction="in"} 2`,
		"weir_service_packets_total" + service + `,direction="out"} 3`,
		"weir_service_bytes_total" + service + `,direction="in"} 4`,
		"weir_service_bytes_total" + service + `,direction="out"} 5`,
		"weir_service_open_connections" + service + `,state="active"} 7`,
		"weir_service_open_connections" + service + `,state="inactive"} 8`,
		"weir_backend_connections_total" + backend + "} 9",
		"weir_backend_bytes_total" + backend + "} 25",
		"weir_backend_open_connections" + backend + "} 7",
	}
	const checked = `weir_backend_up{service="static/web",port="80",protocol="tcp",backend="`
	text, samples := written(t, from, true)
	if d := cmp.Diff(slices.Insert(slices.Clone(want), 2, checked+`[fd00::1]:8080"} 1`, checked+`[fd00::2]:8080"} 0`), samples); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if n := strings.Count(text, "# TYPE "); n != 10 {
		t.Errorf("%d metrics, want 10:\n%s", n, text)
	}
	if text, samples := written(t, from, false); !slices.Equal(samples, want[:9]) || strings.Count(text, "# TYPE ") != 6 {
		t.Errorf("without those of backends:\n%s", text)
	}
}

// Marks with the same protocol in lb.Frontend, which means nothing, have samples of their own.
func TestMarksOfAServiceHaveSamplesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var servers []status.Frontend
	for _, mark := range []uint32{1, 4} {
		s := testServer("10.0.0.1:80")
		s.Key = lb.MarkFrontend(lb.IPv4, mark)
		servers = append(servers, s)
	}
	_, samples := written(t, fixed(nil, nil, servers...), true)
	seen := map[string]bool{}
	for _, s := range samples {
		if seen[s] {
			t.Errorf("twice: %s", s)
		}
		seen[s] = true
	}
	if want := `weir_service_connections_total{service="static/web",vip="IPv4 mark 4",port="0",protocol=""} 0`; !seen[want] {
		t.Errorf("%s is missing among %q", want, samples)
	}
}

// written returns what is written, and the samples in it.
func written(t *testing.T, from Sources, perBackend bool) (text string, samples []string) {
	var b strings.Builder
	from.write(t.Context(), &b, perBackend)
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	return b.String(), samples
}

// BenchmarkScrape answers scrapes of manyServices without and with the series of backends; B/op is the garbage of
// a scrape beside the messages of the kernel.
func BenchmarkScrape(b *testing.B) {
	from, sample := manyServices(), manyNotes()
	for name, backends := range map[string]bool{"services": false, "backends": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for scrape := scraper(from, sample, backends); b.Loop(); {
				scrape()
			}
		})
	}
}

// scraper returns a function that is one scrape.
func scraper(from Sources, sample func() Sample, backends bool) func() {
	m := New(sample)
	m.PerBackend(backends)
	h, request := m.Handler(from), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	return func() { h.ServeHTTP(discarded{http.Header{}}, request) }
}

// discarded is a response without a client.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d discarded) WriteHeader(int)             {}

// manyNotes returns the Samples of a box with 10,000 Notes, and 10,000 addresses of a pool: a scrape has their sums.
func manyNotes() func() Sample {
	r, err := ipam.ParseRange("198.18.0.0/16")
	if err != nil {
		panic(err)
	}
	usage := ipam.New(ipam.Config{Pools: []ipam.Pool{{Name: "public", Ranges: []ipam.Range{r}}}}).Usage()
	usage.Pools[0].Used = 10_000
	s := Sample{Provider: &k8ssync.ProviderStatus{Usage: usage, Writing: true}}
	for i := range 10_000 {
		s.Status.Notes = append(s.Status.Notes, status.Note{Service: "static/" + strconv.Itoa(i), Reason: string(lb.Conflict), Text: "text"})
	}
	return func() Sample {
		now := s
		now.Status.Judge(time.Now())
		return now
	}
}

// manyServices are 10,000 services of ten checked backends each.
func manyServices() Sources {
	server := testServer("10.0.0.1:8080")
	server.Servers = slices.Repeat(server.Servers, 10)
	checked := make([]health.Backend, 100_000)
	for i := range checked {
		checked[i] = health.Backend{Service: lb.ServiceID{Source: "static", Name: strconv.Itoa(i / 10)}, Backend: netip.MustParseAddrPort("10.0.0.1:8080"), State: "up"}
	}
	return fixed(nil, checked, slices.Repeat([]status.Frontend{server}, 10_000)...)
}

// TestAScrapeMakesLittleGarbage beside the messages of the kernel.
func TestAScrapeMakesLittleGarbage(t *testing.T) {
	const most = 20 << 20
	from := manyServices()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from.write(t.Context(), io.Discard, true)
	runtime.ReadMemStats(&after)
	made := after.TotalAlloc - before.TotalAlloc
	if t.Logf("%.1f MiB", float64(made)/(1<<20)); made > most {
		t.Errorf("a scrape of 10,000 services makes %d bytes of garbage, want at most %d", made, most)
	}
}
