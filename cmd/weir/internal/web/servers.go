package web

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"weir/cmd/weir/internal/status"
)

// condition is how a frontend or a backend is, in a word; the worst first.
type condition string

const (
	down     condition = "down"    // it takes no connection
	partly   condition = "partly"  // some of the backends don't
	empty    condition = "empty"   // there is no backend
	unknown  condition = "unknown" // no check has answered yet
	draining condition = "draining"
	shut     condition = "weight 0" // somebody wants no new connections there
	well     condition = "ok"
	up       condition = "up"
	free     condition = "unchecked" // nobody looks whether it works
	foreign  condition = "foreign"   // a stranger's, not weir's
)

var conditions = []condition{down, partly, empty, unknown, draining, shut, well, up, free, foreign}

// Class is what it looks like.
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

// server is a frontend with all that is known of it.
type server struct {
	status.Frontend
	// At is "192.0.2.1:80/tcp", or as lb.Frontend says it of a mark.
	At       string
	Is       condition
	Up       int // backends that take connections
	Rate     status.Rate
	Backends []backend
	rank     int // of Is among conditions
}

// backend is one of its backends.
type backend struct {
	status.Server
	Is   condition
	Rate status.Rate
}

// serversOf puts together what the kernel counts and what the checks say.
func serversOf(doc status.Services, health status.Health, rates status.Rates) []server {
	checked := map[string][]status.CheckedBackend{} // by service and port
	for _, b := range health.Backends {
		key := b.Service + " " + b.Port
		checked[key] = append(checked[key], b)
	}
	out := make([]server, len(doc.Frontends))
	for i, f := range doc.Frontends {
		s := server{Frontend: f, At: f.Key.String(), Rate: rates.Frontends[i].Rate, Backends: make([]backend, len(f.Servers))}
		for j, x := range f.Servers {
			s.Backends[j] = backend{x, backendIs(x), rates.Frontends[i].Backends[j].Rate}
		}
		if f.Mark == 0 {
			s.gone(checked[f.Service+" "+s.At[strings.LastIndexByte(s.At, ':')+1:]])
		}
		s.judge()
		out[i] = s
	}
	return out
}

// gone adds the backends that the kernel does not have because their check says down: of
// UDP, whose flows would stick to them.
func (s *server) gone(checked []status.CheckedBackend) {
	for _, c := range checked {
		at, err := netip.ParseAddrPort(c.Backend)
		if err != nil || c.Verdict != "down" || at.Addr().Is4() != s.Key.Addr.Is4() ||
			slices.ContainsFunc(s.Backends, func(b backend) bool { return b.Address == c.Backend }) {
			continue
		}
		s.Backends = append(s.Backends, backend{Server: status.Server{Key: at, Address: c.Backend, Health: c.Verdict, Error: c.Error}, Is: down})
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

// judge says how a frontend is by how its backends are.
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

// matches tells whether a frontend or one of its backends has a text in its name or
// address. The text is in lower case.
func (s *server) matches(text string) bool {
	if text == "" || strings.Contains(strings.ToLower(s.Service), text) || strings.Contains(s.At, text) {
		return true
	}
	return slices.ContainsFunc(s.Backends, func(b backend) bool { return strings.Contains(b.Address, text) })
}

// orders are the ways to sort frontends, all of them ascending; those that are equal stay
// in the order of their Services' names and addresses.
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

// selection are the frontends that a query asks for.
type selection struct {
	Shown []*server
	// Matching is how many there are on all pages, by condition and together, of those
	// with the text that is looked for.
	Matching int
	By       map[condition]int
}

// choose gives the frontends of a page; q.Page is one that there is then.
func choose(all []server, q *query, perPage int) selection {
	out := selection{By: map[condition]int{}}
	var found []*server
	text := strings.ToLower(q.Text)
	for i := range all {
		s := &all[i]
		if q.At != "" && s.At != q.At || q.At == "" && !s.matches(text) {
			continue
		}
		out.By[s.Is]++
		if q.State == "" || string(s.Is) == q.State {
			found = append(found, s)
		}
	}
	order, descends := strings.CutPrefix(q.Sort, "-")
	slices.SortFunc(found, func(a, b *server) int {
		c := orders[order](a, b)
		if descends {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.Service, b.Service), a.Key.Compare(b.Key))
	})
	out.Matching = len(found)
	from, to := q.span(len(found), perPage)
	out.Shown = found[from:to]
	return out
}
