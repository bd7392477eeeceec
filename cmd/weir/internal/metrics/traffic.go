package metrics

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/traffic"
	"weir/lb"
	"weir/lb/health"
)

// 10,000 services with 10 backends each are half a million samples: at most four of a backend. They are written as text: as
// metrics of the client library they would take hundreds of megabytes during a scrape. The format wants all samples of one
// metric together, so what the kernel has counted is kept until they are written, as numbers only.

const (
	// scrapeTimeout bounds reading the traffic counters.
	scrapeTimeout = 10 * time.Second
	maxScrapes    = 2 // at a time
)

// Sources are what a scrape reads beside the Sample.
type Sources struct {
	// Traffic calls each for every virtual server, also foreign ones.
	Traffic func(ctx context.Context, each func(status.Frontend)) error
	// Checks calls each for every backend with a check. each does not block.
	Checks func(each func(health.Backend))
}

// Handler serves the registry and then the traffic, as text, whatever other formats a client requests.
func (m *Metrics) Handler(from Sources) http.Handler {
	own := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
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
		from.write(ctx, w, m.perBackend.Load())
	})
}

// compressed is a response that is compressed while it is written.
type compressed struct {
	http.ResponseWriter
	to io.Writer
}

func (c compressed) Write(p []byte) (int, error) { return c.to.Write(p) }

// write writes the results of checks and the counters of the frontends with owners, as far as they could be read, but no
// foreign ones.
func (from Sources) write(ctx context.Context, w io.Writer, perBackend bool) {
	var t reading
	err := from.Traffic(ctx, func(f status.Frontend) { t.add(f, perBackend) })
	out := bufio.NewWriterSize(w, 64<<10)
	defer func() { _ = out.Flush() }() // the client may be gone
	header(out, "traffic_read_failed", "gauge", "1 if the kernel's traffic counters could not be read for this scrape.")
	_, _ = fmt.Fprintf(out, "weir_traffic_read_failed %v\n", boolValue(err != nil))
	var c checks
	from.Checks(c.add)
	c.write(out, perBackend)
	for _, m := range frontendMetrics {
		header(out, m.name, m.kind, m.help)
		for i := range t.frontends {
			f := &t.frontends[i]
			m.write(f, sampler{out, m.name, f.labels, netip.AddrPort{}})
		}
	}
	if !perBackend {
		return
	}
	for _, m := range backendMetrics {
		header(out, m.name, m.kind, m.help)
		for i := range t.frontends {
			f := &t.frontends[i]
			for _, b := range f.backends {
				s := sampler{out, m.name, f.labels, b.addr}
				s.write("", m.value(b))
			}
		}
	}
}

// reading is what the kernel has counted.
type reading struct{ frontends []frontend }

// frontend is a virtual server.
type frontend struct {
	labels           string // as they are written
	counted          traffic.Counters
	active, inactive uint64
	backends         []backend // if their series are wanted
}

// backend is a real server.
type backend struct {
	addr                 netip.AddrPort
	conns, bytes, active uint64
}

// add adds a virtual server, unless it is foreign or of checks.
func (t *reading) add(from status.Frontend, perBackend bool) {
	if from.Service == "" || from.Check {
		return
	}
	f := frontend{labels: labelsOf(from.Service, from.Key), counted: *from.Traffic}
	if perBackend {
		f.backends = make([]backend, 0, len(from.Servers))
	}
	for _, b := range from.Servers {
		f.active, f.inactive = f.active+uint64(b.Active), f.inactive+uint64(b.Inactive)
		if perBackend {
			f.backends = append(f.backends, backend{b.Key, b.Traffic.Connections, b.Traffic.BytesIn + b.Traffic.BytesOut, uint64(b.Active)})
		}
	}
	t.frontends = append(t.frontends, f)
}

// labelsOf returns the labels of a frontend. A mark has no port and protocol, and a service may have several.
func labelsOf(service string, at lb.Frontend) string {
	vip, protocol := at.Addr.String(), at.Proto.String()
	if at.Mark != 0 {
		vip, protocol = at.String(), ""
	}
	return fmt.Sprintf("service=%q,vip=%q,port=\"%d\",protocol=%q", service, vip, at.Port, protocol)
}

// checks are the results of checks, by port.
type checks struct{ ports []*checkedPort }

// checkedPort is a port of a Service with checked backends, and the duration of its slowest check.
type checkedPort struct {
	service  lb.ServiceID
	port     lb.PortKey
	slowest  time.Duration
	backends []checkedBackend
}

type checkedBackend struct {
	addr netip.AddrPort
	up   uint64
}

// add takes in a result. Those of one port come one after the other.
func (c *checks) add(b health.Backend) {
	if b.State == "unknown" {
		return
	}
	n := len(c.ports)
	if n == 0 || c.ports[n-1].service != b.Service || c.ports[n-1].port != b.Port {
		c.ports = append(c.ports, &checkedPort{service: b.Service, port: b.Port, backends: make([]checkedBackend, 0, 12)})
		n++
	}
	p, up := c.ports[n-1], uint64(0)
	if b.State == "up" {
		up = 1
	}
	p.slowest, p.backends = max(p.slowest, b.Took), append(p.backends, checkedBackend{b.Backend, up})
}

// write writes the results, and the duration of the slowest check of each port.
func (c *checks) write(out *bufio.Writer, perBackend bool) {
	const took = "check_last_duration_seconds"
	header(out, took, "gauge", "Duration of the last check, of the slowest backend.")
	for _, p := range c.ports {
		_, _ = fmt.Fprintf(out, "weir_%s{%s} %v\n", took, p.labels(), p.slowest.Seconds())
	}
	if !perBackend {
		return
	}
	const name = "backend_up"
	header(out, name, "gauge", "1 if the check of a backend succeeds, 0 if it fails; absent before the first result.")
	for _, p := range c.ports {
		labels := p.labels()
		for _, b := range p.backends {
			sampler{out, name, labels, b.addr}.write("", b.up)
		}
	}
}

func (p *checkedPort) labels() string {
	return fmt.Sprintf("service=%q,port=\"%d\",protocol=%q", p.service, p.port.Port, p.port.Proto)
}

const (
	connsHelp   = "Connections since the creation of the %s."
	packetsHelp = "Packets, by direction as clients see it."
	bytesHelp   = "Bytes, by direction as clients see it."
)

// frontendMetrics are those that each frontend has.
var frontendMetrics = []struct {
	name, kind, help string
	write            func(*frontend, sampler)
}{
	{
		"service_connections_total", "counter", fmt.Sprintf(connsHelp, "virtual server"),
		func(f *frontend, s sampler) { s.write("", f.counted.Connections) },
	},
	{
		"service_packets_total", "counter", packetsHelp,
		func(f *frontend, s sampler) { s.directions(f.counted.PacketsIn, f.counted.PacketsOut) },
	},
	{
		"service_bytes_total", "counter", bytesHelp,
		func(f *frontend, s sampler) { s.directions(f.counted.BytesIn, f.counted.BytesOut) },
	},
	{
		"service_open_connections", "gauge", "Connections in the kernel, by state: active or inactive.",
		func(f *frontend, s sampler) {
			s.write(`,state="active"`, f.active)
			s.write(`,state="inactive"`, f.inactive)
		},
	},
}

// backendMetrics are those that each backend has.
var backendMetrics = []struct {
	name, kind, help string
	value            func(backend) uint64
}{
	{"backend_connections_total", "counter", fmt.Sprintf(connsHelp, "real server"), func(b backend) uint64 { return b.conns }},
	{"backend_bytes_total", "counter", "Bytes in both directions.", func(b backend) uint64 { return b.bytes }},
	{"backend_open_connections", "gauge", "Active connections in the kernel.", func(b backend) uint64 { return b.active }},
}

func header(out *bufio.Writer, name, kind, help string) {
	_, _ = fmt.Fprintf(out, "# HELP weir_%s %s\n# TYPE weir_%s %s\n", name, help, name, kind)
}

// sampler writes the samples of one metric of one frontend or backend.
type sampler struct {
	out          *bufio.Writer
	name, labels string
	backend      netip.AddrPort // if it is valid, a label too
}

func (s sampler) directions(in, out uint64) {
	s.write(`,direction="in"`, in)
	s.write(`,direction="out"`, out)
}

// write writes one sample. No label needs escapes: names are checked, the rest are addresses and numbers.
func (s sampler) write(more string, v uint64) {
	s.text("weir_", s.name, "{", s.labels)
	if s.backend.IsValid() {
		s.text(`,backend="`)
		_, _ = s.out.Write(s.backend.AppendTo(s.out.AvailableBuffer()))
		s.text(`"`)
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
