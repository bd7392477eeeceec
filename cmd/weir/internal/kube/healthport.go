package kube

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

	"weir/cmd/weir/internal/connlimit"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// HealthPorts answers on the healthCheckNodePorts of Services: one HTTP port for each, on the addresses of node ports. A
// cloud's balancer or a router learns there whether this node has backends of its own (KEP-27, and kube-proxy's
// service_health.go for the form of the answer). On VIPs the static rules refuse it.
//
// Set belongs to the loop; the rest is safe for concurrent use.
type HealthPorts struct {
	// Listen opens a port; tests replace it.
	Listen func(at netip.AddrPort) (net.Listener, error)

	log     *slog.Logger
	healthy func() bool // whether the box itself is
	server  *http.Server
	tasks   sync.WaitGroup // one for each listener
	ok, bad atomic.Uint64  // requests answered 200, and 503

	mu      sync.RWMutex
	ports   map[uint16]*healthPort
	notes   []lb.Note
	version uint64 // of the checks of the last Set
	checks  map[lb.ServiceID]lb.HealthCheck
	addrs   []netip.Addr // of the last Set
	stale   bool         // the next Set must check all ports
	retry   time.Time    // of the next attempt to open a port; zero: all are open
}

// healthPort is one port.
type healthPort struct {
	service   lb.ServiceID
	endpoints int
	listeners map[netip.Addr]net.Listener // those that could be opened
	err       error                       // of the last attempt
	next      time.Time                   // of the next attempt to open them
}

const (
	// maxProbes bounds the open connections of one port at one address: the oldest is closed for a new one. Each load
	// balancer probes every few seconds.
	maxProbes = 256
	// probeTimeout bounds one.
	probeTimeout = 5 * time.Second
	// portRetry is the time between two attempts to open a port.
	portRetry = 5 * time.Second
)

// NewHealthPorts returns ports that report the health of the box and of the Services.
func NewHealthPorts(log *slog.Logger, healthy func() bool) *HealthPorts {
	h := &HealthPorts{log: log, healthy: healthy, ports: map[uint16]*healthPort{}, stale: true}
	h.Listen = func(at netip.AddrPort) (net.Listener, error) { return net.Listen("tcp", at.String()) }
	h.server = &http.Server{
		Handler: h, ReadTimeout: probeTimeout, WriteTimeout: probeTimeout, MaxHeaderBytes: 1 << 13,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	// A port that is closed must not live on in an open connection.
	h.server.SetKeepAlivesEnabled(false)
	return h
}

// Set opens the ports of the given Services on the given addresses, and closes the others. Two clusters may assign the
// same port: the first Service by its ID has it. Another version means that checks may differ. While nothing differs and no
// retry is due, Set costs nothing for each port, and returns false: Open and Notes are as before.
func (h *HealthPorts) Set(version uint64, checks map[lb.ServiceID]lb.HealthCheck, addrs []netip.Addr, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := !h.retry.IsZero() && !now.Before(h.retry)
	if !h.stale && !due && slices.Equal(addrs, h.addrs) && (version == h.version || h.samePorts(checks)) {
		h.version = version
		return false
	}
	h.version, h.checks, h.addrs, h.stale, h.retry = version, maps.Clone(checks), addrs, false, time.Time{}
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
		h.retryAt(p.next)
		if p.err != nil {
			h.note(id, "healthCheckNodePort %d can't be opened: %v", port, p.err)
		}
	}
	slices.SortFunc(h.notes, func(a, b lb.Note) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Text, b.Text))
	})
	return true
}

// samePorts reports whether only endpoints differ, as after most changes, and updates them then.
func (h *HealthPorts) samePorts(checks map[lb.ServiceID]lb.HealthCheck) bool {
	if len(checks) != len(h.checks) {
		return false
	}
	for id, check := range checks {
		if had, ok := h.checks[id]; !ok || had.Port != check.Port {
			return false
		}
	}
	for id, check := range checks {
		if h.checks[id] != check {
			h.checks[id] = check
			if p := h.ports[check.Port]; p.service == id {
				p.endpoints = check.Endpoints
			}
		}
	}
	return true
}

// retryAt ensures that Retry is not later than a time; the zero time is none.
func (h *HealthPorts) retryAt(next time.Time) {
	if !next.IsZero() && (h.retry.IsZero() || next.Before(h.retry)) {
		h.retry = next
	}
}

func (h *HealthPorts) note(id lb.ServiceID, format string, args ...any) {
	h.notes = append(h.notes, lb.Note{Service: id, Reason: lb.HealthPort, Text: fmt.Sprintf(format, args...)})
}

// errNowhere is the error of a port that has no address.
var errNowhere = errors.New("node ports are served on no address of the box (kernel.node_port_addresses)")

// listenOn opens a port on the addresses where it is not open, unless a retry is not due yet.
func (h *HealthPorts) listenOn(p *healthPort, port uint16, addrs []netip.Addr, now time.Time) {
	if len(addrs) == 0 {
		p.err, p.next = errNowhere, time.Time{}
		return
	}
	if now.Before(p.next) {
		return
	}
	before := status.ErrorText(p.err)
	p.err, p.next = nil, time.Time{}
	for _, a := range addrs {
		if p.listeners[a] != nil {
			continue
		}
		l, err := h.Listen(netip.AddrPortFrom(a, port))
		if err != nil {
			p.err, p.next = err, now.Add(portRetry)
			continue
		}
		p.listeners[a] = l
		h.tasks.Go(func() { h.serve(p, port, a, l) })
	}
	if p.err != nil && status.ErrorText(p.err) != before {
		h.log.Warn("healthCheckNodePort not opened", "service", p.service, "port", port, "error", p.err)
	}
}

// serve answers on one address of a port until it is closed. A listener that fails is opened again.
func (h *HealthPorts) serve(p *healthPort, port uint16, a netip.Addr, l net.Listener) {
	err := h.server.Serve(connlimit.Wrap(l, maxProbes))
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log.Warn("healthCheckNodePort failed", "service", p.service, "port", port, "error", err)
	if p.listeners[a] == l {
		delete(p.listeners, a)
		p.err, p.next, h.stale = err, time.Now().Add(portRetry), true
		h.retryAt(p.next)
	}
}

// close closes the port on all addresses but the given ones.
func (p *healthPort) close(but []netip.Addr) {
	for a, l := range p.listeners {
		if !slices.Contains(but, a) {
			_ = l.Close() // an error changes nothing
			delete(p.listeners, a)
		}
	}
}

// Retry returns the time of the next attempt to open a port; the zero time if all are open.
func (h *HealthPorts) Retry() time.Time {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.retry
}

// Open returns the ports that are open on at least one address.
func (h *HealthPorts) Open() map[uint16]bool {
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

// Notes returns the Notes about ports that are not open. They do not change.
func (h *HealthPorts) Notes() []lb.Note {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.notes
}

// Close closes all ports for good, and waits for their goroutines.
func (h *HealthPorts) Close() {
	_ = h.server.Close()
	h.tasks.Wait()
}

// Answered returns how many requests were answered with 200, and with 503.
func (h *HealthPorts) Answered() (ok, unavailable uint64) { return h.ok.Load(), h.bad.Load() }

// nodeHealth is the answer of a port.
type nodeHealth struct {
	Service   nodeService `json:"service"`
	Endpoints int         `json:"localEndpoints"`
	Healthy   bool        `json:"serviceProxyHealthy"`
}

type nodeService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ServeHTTP gives every path the same answer, as kube-proxy does.
func (h *HealthPorts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// find returns the answer of the port at addr.
func (h *HealthPorts) find(addr *net.TCPAddr) (nodeHealth, bool) {
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
