package daemon

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/cmd/weir/internal/status"
)

// The traffic of 10,000 services with 10 backends each is close to a million
// samples. They are written as text while they are read: kept as metrics of the
// client library they would take a gigabyte for the time of a scrape.

const (
	// scrapeTimeout bounds reading the traffic counters.
	scrapeTimeout = 10 * time.Second
	maxScrapes    = 2 // at a time
)

// metricsHandler answers with the registry's metrics and then the traffic, as
// text, whatever other formats are asked for.
func (b *box) metricsHandler() http.Handler {
	own := promhttp.HandlerFor(b.metrics.registry, promhttp.HandlerOpts{DisableCompression: true})
	running := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are running already", maxScrapes), http.StatusServiceUnavailable)
			return
		}
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }()
			w = compressed{w, z}
		}
		r.Header.Del("Accept")
		own.ServeHTTP(w, r)
		ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
		defer cancel()
		doc, err := Services(ctx, b.kernel, b.owners(ctx))
		writeTraffic(w, doc, err)
	})
}

// compressed is a response that is compressed on its way.
type compressed struct {
	http.ResponseWriter
	to io.Writer
}

func (c compressed) Write(p []byte) (int, error) { return c.to.Write(p) }

// writeTraffic writes the counters of the frontends that have owners, as far as
// they could be read. Strangers' are not weir's to tell.
func writeTraffic(w io.Writer, doc status.Services, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	defer func() { _ = out.Flush() }() // the reader may have gone; nobody to tell
	header(out, "traffic_read_failed", "gauge", "1 if the kernel's traffic counters could not be read for this scrape.")
	_, _ = fmt.Fprintf(out, "weir_traffic_read_failed %v\n", boolValue(err != nil))
	var all []labelled
	for _, f := range doc.Frontends {
		if f.Service != "" {
			all = append(all, labelled{f, fmt.Sprintf("service=%q,vip=%q,port=\"%d\",protocol=%q", f.Service, f.Address, f.Port, f.Protocol)})
		}
	}
	for _, m := range trafficMetrics {
		header(out, m.name, m.kind, m.help)
		for _, f := range all {
			if m.frontend != nil {
				m.frontend(&f.Frontend, sampler{out, m.name, f.labels, ""})
				continue
			}
			for i := range f.Servers {
				m.server(&f.Servers[i], sampler{out, m.name, f.labels, f.Servers[i].Address})
			}
		}
	}
}

// labelled is a frontend and its labels, as they are written.
type labelled struct {
	status.Frontend
	labels string
}

// trafficMetric is a metric that each frontend or each server has.
type trafficMetric struct {
	name, kind, help string
	frontend         func(*status.Frontend, sampler)
	server           func(*status.Server, sampler)
}

const (
	connsHelp   = "Connections since the kernel made the %s."
	packetsHelp = "Packets, by direction as clients see it."
	bytesHelp   = "Bytes, by direction as clients see it."
)

var trafficMetrics = []trafficMetric{
	{
		name: "service_connections_total", kind: "counter", help: fmt.Sprintf(connsHelp, "virtual server"),
		frontend: func(f *status.Frontend, s sampler) { s.write("", f.Traffic.Connections) },
	},
	{
		name: "service_packets_total", kind: "counter", help: packetsHelp,
		frontend: func(f *status.Frontend, s sampler) { s.directions(f.Traffic.PacketsIn, f.Traffic.PacketsOut) },
	},
	{
		name: "service_bytes_total", kind: "counter", help: bytesHelp,
		frontend: func(f *status.Frontend, s sampler) { s.directions(f.Traffic.BytesIn, f.Traffic.BytesOut) },
	},
	{
		name: "backend_connections_total", kind: "counter", help: fmt.Sprintf(connsHelp, "real server"),
		server: func(f *status.Server, s sampler) { s.write("", f.Traffic.Connections) },
	},
	{
		name: "backend_packets_total", kind: "counter", help: packetsHelp,
		server: func(f *status.Server, s sampler) { s.directions(f.Traffic.PacketsIn, f.Traffic.PacketsOut) },
	},
	{
		name: "backend_bytes_total", kind: "counter", help: bytesHelp,
		server: func(f *status.Server, s sampler) { s.directions(f.Traffic.BytesIn, f.Traffic.BytesOut) },
	},
	{
		name: "backend_open_connections", kind: "gauge", help: "Connections that the kernel knows, by state.",
		server: func(f *status.Server, s sampler) {
			s.write(`,state="active"`, uint64(f.Active))
			s.write(`,state="inactive"`, uint64(f.Inactive))
		},
	},
	{
		name: "backend_weight", kind: "gauge", help: "Weight of the real server in the kernel.",
		server: func(f *status.Server, s sampler) { s.write("", uint64(f.Weight)) },
	},
}

func header(out *bufio.Writer, name, kind, help string) {
	_, _ = fmt.Fprintf(out, "# HELP weir_%s %s\n# TYPE weir_%s %s\n", name, help, name, kind)
}

// sampler writes the samples of one metric of one frontend or server.
type sampler struct {
	out                   *bufio.Writer
	name, labels, backend string
}

func (s sampler) directions(in, out uint64) {
	s.write(`,direction="in"`, in)
	s.write(`,direction="out"`, out)
}

// write writes one sample. No label of ours has anything to be escaped: names
// are checked, the rest are addresses and numbers.
func (s sampler) write(more string, v uint64) {
	s.text("weir_", s.name, "{", s.labels)
	if s.backend != "" {
		s.text(`,backend="`, s.backend, `"`)
	}
	s.text(more, "} ")
	_, _ = s.out.Write(strconv.AppendUint(s.out.AvailableBuffer(), v, 10))
	s.text("\n")
}

// text writes parts of a line. A bufio.Writer keeps its first error for Flush.
func (s sampler) text(parts ...string) {
	for _, p := range parts {
		_, _ = s.out.WriteString(p)
	}
}
