package web

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/traffic"
)

// condition is the state of a frontend or a backend, the worst first.
type condition string

const (
	down     condition = "down"    // accepts no connections
	partly   condition = "partly"  // some backends accept none
	empty    condition = "empty"   // has no backend
	unknown  condition = "unknown" // no check has ended yet
	draining condition = "draining"
	shut     condition = "weight 0" // no new connections by configuration
	well     condition = "ok"
	up       condition = "up"
	free     condition = "unchecked" // has no check
	foreign  condition = "foreign"   // not made by weir
)

var conditions = []condition{down, partly, empty, unknown, draining, shut, well, up, free, foreign}

// Class returns its style.
func (c condition) Class() string {
	switch c {
	case down:
		return "bad"
	case partly, unknown, draining:
		return "warn"
	case well, up:
		return "good"
	}
	return "dim"
}

// server is a frontend with its rates and health.
type server struct {
	status.Frontend
	// At is "192.0.2.1:80/tcp", or the form of lb.Frontend for a mark.
	At       string
	Is       condition
	Up       int // backends that accept connections
	Rate     traffic.Rate
	Backends []backend
	rank     int // of Is among conditions
}

// backend is one of its backends.
type backend struct {
	status.Server
	Is   condition
	Rate traffic.Rate
	// Check is the result of its check; nil without one.
	Check *status.CheckedBackend
}

// serversOf joins the counters of the kernel with the results of checks.
func serversOf(doc status.Services, health status.Health, rates traffic.Rates) []server {
	checked := map[string][]*status.CheckedBackend{} // by service and port
	for i := range health.Backends {
		b := &health.Backends[i]
		key := b.Service + " " + b.Port
		checked[key] = append(checked[key], b)
	}
	out := make([]server, len(doc.Frontends))
	for i, f := range doc.Frontends {
		s := server{Frontend: f, At: f.Key.String(), Rate: rates.Frontends[i].Rate, Backends: make([]backend, len(f.Servers))}
		for j, x := range f.Servers {
			s.Backends[j] = backend{Server: x, Is: backendIs(x), Rate: rates.Frontends[i].Backends[j].Rate}
		}
		switch {
		case f.Given:
			s.join(checked[f.Service+" fwmark"]) // as lb.PortKey has it
		case f.Mark == 0:
			s.join(checked[f.Service+" "+s.At[strings.LastIndexByte(s.At, ':')+1:]])
		}
		s.judge()
		out[i] = s
	}
	return out
}

// join adds the results of checks to the backends, and the backends that are not in the
// kernel because they are down: those of UDP, because their flows would stay. Backends of one family
// serve the frontend.
func (s *server) join(checked []*status.CheckedBackend) {
	at := make(map[string]int, len(s.Backends))
	for i, b := range s.Backends {
		at[b.Address] = i
	}
	for _, c := range checked {
		if i, ok := at[c.Backend]; ok {
			s.Backends[i].Check = c
			continue
		}
		key, err := netip.ParseAddrPort(c.Backend)
		if err != nil || c.State != "down" || (key.Addr().Is4() != s.Key.Addr.Is4()) != s.Mixed {
			continue
		}
		s.Backends = append(s.Backends, backend{Server: status.Server{Key: key, Address: c.Backend, Health: c.State, Error: c.Error}, Is: down, Check: c})
	}
	slices.SortStableFunc(s.Backends, func(a, b backend) int { return a.Key.Compare(b.Key) })
}

func backendIs(s status.Server) condition {
	switch {
	case s.Health == "down":
		return down
	case s.Draining:
		return draining
	case s.Health == "unknown":
		return unknown
	case s.Weight == 0:
		return shut
	case s.Health == "up":
		return up
	}
	return free
}

// judge sets the condition of a frontend from its backends.
func (s *server) judge() {
	bad := false
	for _, b := range s.Backends {
		if b.Weight > 0 && b.Is != down {
			s.Up++
		}
		bad = bad || b.Is == down || b.Is == unknown
	}
	switch {
	case s.Service == "":
		s.Is = foreign
	case len(s.Backends) == 0:
		s.Is = empty
	case s.Up == 0:
		s.Is = down
	case bad:
		s.Is = partly
	default:
		s.Is = well
	}
	s.rank = slices.Index(conditions, s.Is)
}

// matches reports whether the name or address of a frontend or of one of its backends
// contains a text in lower case.
func (s *server) matches(text string) bool {
	if text == "" || strings.Contains(strings.ToLower(s.Service), text) || strings.Contains(s.At, text) {
		return true
	}
	return slices.ContainsFunc(s.Backends, func(b backend) bool { return strings.Contains(b.Address, text) })
}

// orders are the ascending sort orders of frontends; equal ones are sorted by Service and
// address.
var orders = map[string]func(a, b *server) int{
	"state": func(a, b *server) int {
		return cmp.Compare(a.rank, b.rank)
	},
	"service":  func(a, b *server) int { return cmp.Compare(a.Service, b.Service) },
	"address":  func(a, b *server) int { return a.Key.Compare(b.Key) },
	"backends": func(a, b *server) int { return cmp.Compare(a.Up, b.Up) },
	"active":   func(a, b *server) int { return cmp.Compare(a.Rate.Active, b.Rate.Active) },
	"conns":    func(a, b *server) int { return cmp.Compare(a.Rate.Connections, b.Rate.Connections) },
	"in":       func(a, b *server) int { return cmp.Compare(a.Rate.BytesIn, b.Rate.BytesIn) },
	"out":      func(a, b *server) int { return cmp.Compare(a.Rate.BytesOut, b.Rate.BytesOut) },
}
