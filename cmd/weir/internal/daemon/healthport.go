package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"weir/lb"
)

// healthPorts answers on the healthCheckNodePorts of Services: an HTTP port of
// its own for each, on the addresses that node ports are served on, by which a
// cloud's balancer or a router learns whether this node has backends of its own
// (KEP-27, and kube-proxy's service_health.go for the form of the answer). On VIPs
// the static rules refuse it.
//
// set belongs to the loop; the rest is safe for concurrent use.
type healthPorts struct {
	log     *slog.Logger
	listen  func(at netip.AddrPort) (net.Listener, error)
	healthy func() bool // whether the box itself is
	server  *http.Server
	ok, bad atomic.Uint64 // requests answered 200, and 503

	mu    sync.RWMutex
	ports map[uint16]*healthPort
	notes []lb.Note
}

// healthPort is one port.
type healthPort struct {
	service   lb.ServiceID
	endpoints int
	listeners map[netip.Addr]net.Listener // those that could be opened
	err       error                       // why not all are open
	next      time.Time                   // of the next attempt to open them
}

const (
	// maxProbes bounds the open connections of all ports together. A probe asks
	// once and goes; there is one of each balancer every few seconds.
	maxProbes = 256
	// probeTimeout bounds one.
	probeTimeout = 5 * time.Second
	// portRetry is how often a port that can't be opened is tried again.
	portRetry = 5 * time.Second
)

func newHealthPorts(log *slog.Logger, healthy func() bool) *healthPorts {
	h := &healthPorts{log: log, healthy: healthy, ports: map[uint16]*healthPort{}}
	h.listen = func(at netip.AddrPort) (net.Listener, error) { return net.Listen("tcp", at.String()) }
	h.server = &http.Server{
		Handler: h, ReadTimeout: probeTimeout, WriteTimeout: probeTimeout, MaxHeaderBytes: 1 << 13,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), ConnState: newConnLimit(maxProbes, maxProbes).state,
	}
	// A port that is closed must not live on in an open connection.
	h.server.SetKeepAlivesEnabled(false)
	return h
}

// set makes the ports those of the given Services, on the given addresses. Two
// clusters may give out the same number: the first Service by its ID has it.
func (h *healthPorts) set(checks map[lb.ServiceID]lb.HealthCheck, addrs []netip.Addr, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = h.notes[:0:0]
	wanted := map[uint16]lb.ServiceID{}
	for _, id := range slices.SortedFunc(maps.Keys(checks), lb.ServiceID.Compare) {
		port := checks[id].Port
		if first, taken := wanted[port]; taken {
			h.note(id, "healthCheckNodePort %d belongs to %s", port, first)
			continue
		}
		wanted[port] = id
	}
	for port, p := range h.ports {
		if id, ok := wanted[port]; !ok || id != p.service {
			p.close(nil)
			delete(h.ports, port)
		}
	}
	for port, id := range wanted {
		p := h.ports[port]
		if p == nil {
			p = &healthPort{service: id, listeners: map[netip.Addr]net.Listener{}}
			h.ports[port] = p
		}
		p.endpoints = checks[id].Endpoints
		p.close(addrs)
		h.listenOn(p, port, addrs, now)
		if p.err != nil {
			h.note(id, "healthCheckNodePort %d can't be opened: %v", port, p.err)
		}
	}
	slices.SortFunc(h.notes, func(a, b lb.Note) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Text, b.Text))
	})
}

func (h *healthPorts) note(id lb.ServiceID, format string, args ...any) {
	h.notes = append(h.notes, lb.Note{Service: id, Reason: lb.HealthPort, Text: fmt.Sprintf(format, args...)})
}

// errNowhere is why a port is open on no address.
var errNowhere = errors.New("node ports are served on no address of the box (kernel.node_port_addresses)")

// listenOn opens a port on the addresses where it is not open, if it is time to
// try.
func (h *healthPorts) listenOn(p *healthPort, port uint16, addrs []netip.Addr, now time.Time) {
	if len(addrs) == 0 {
		p.err, p.next = errNowhere, time.Time{}
		return
	}
	if now.Before(p.next) {
		return
	}
	before := errorText(p.err)
	p.err, p.next = nil, time.Time{}
	for _, a := range addrs {
		if p.listeners[a] != nil {
			continue
		}
		l, err := h.listen(netip.AddrPortFrom(a, port))
		if err != nil {
			p.err, p.next = err, now.Add(portRetry)
			continue
		}
		p.listeners[a] = l
		go h.serve(p, port, a, l)
	}
	if p.err != nil && errorText(p.err) != before {
		h.log.Warn("a healthCheckNodePort can't be opened", "service", p.service, "port", port, "error", p.err)
	}
}

// serve answers on one address of a port until it is closed. One that fails by
// itself is opened again.
func (h *healthPorts) serve(p *healthPort, port uint16, a netip.Addr, l net.Listener) {
	err := h.server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log.Warn("a healthCheckNodePort has failed", "service", p.service, "port", port, "error", err)
	if p.listeners[a] == l {
		delete(p.listeners, a)
		p.err, p.next = err, time.Now().Add(portRetry)
	}
}

// close closes the port on all addresses but those that it stays open on.
func (p *healthPort) close(but []netip.Addr) {
	for a, l := range p.listeners {
		if !slices.Contains(but, a) {
			_ = l.Close() // nobody hears of it, whatever it says
			delete(p.listeners, a)
		}
	}
}

// retry is when a port that could not be opened is tried again; the zero time if
// there is nothing to try.
func (h *healthPorts) retry() (next time.Time) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, p := range h.ports {
		if !p.next.IsZero() && (next.IsZero() || p.next.Before(next)) {
			next = p.next
		}
	}
	return next
}

// open gives the ports that are open, on one address at least.
func (h *healthPorts) open() map[uint16]bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := map[uint16]bool{}
	for port, p := range h.ports {
		if len(p.listeners) > 0 {
			out[port] = true
		}
	}
	return out
}

// Notes are about the ports that can't be had.
func (h *healthPorts) Notes() []lb.Note {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.notes
}

// closeAll closes all ports for good.
func (h *healthPorts) closeAll() { _ = h.server.Close() }

// nodeHealth is what a port answers.
type nodeHealth struct {
	Service   nodeService `json:"service"`
	Endpoints int         `json:"localEndpoints"`
	Healthy   bool        `json:"serviceProxyHealthy"`
}

type nodeService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ServeHTTP answers every path alike, as kube-proxy does.
func (h *healthPorts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	doc, ok := h.find(addr)
	if !ok {
		http.NotFound(w, r) // closed a moment ago
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(doc.Endpoints))
	if doc.Endpoints > 0 && doc.Healthy {
		h.ok.Add(1)
	} else {
		h.bad.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(doc) // the probe may have gone
}

// find gives what the port at addr is to answer.
func (h *healthPorts) find(addr *net.TCPAddr) (nodeHealth, bool) {
	if addr == nil {
		return nodeHealth{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	p, ok := h.ports[uint16(addr.Port)]
	if !ok {
		return nodeHealth{}, false
	}
	return nodeHealth{nodeService{p.service.Namespace, p.service.Name}, p.endpoints, h.healthy()}, true
}
