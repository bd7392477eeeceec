package serving

import (
	"net/netip"
	"strconv"

	"weir/cmd/weir/internal/config/parse"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
	"weir/lb/health"
)

// Service is a table [[service]] with the positions of its parts.
type Service struct {
	schema.Section
	LB       lb.Service
	Ports    []parse.ServicePort
	VIPs     []Located
	Backends []Backend
	Fallback []Located
	Check    *health.Group

	quorum, hysteresis int
	tunnelPort         uint16
}

// Located is an address with its position and the key in messages. The port may be 0.
type Located struct {
	Addr netip.AddrPort
	At   source.Place
	Name string // of the key within Shown
}

// Backend is a backend; its LB.Addr is not set.
type Backend struct {
	Located
	LB lb.Backend
}

// Called returns the name of the service in messages about another one.
func (s *Service) Called() string {
	if name := s.LB.ID.Name; name != "" {
		return "service " + strconv.Quote(name)
	}
	return "another service"
}

// backendPort returns the backend port of all ports, 0 if they differ.
func (s *Service) backendPort() uint16 {
	var port uint16
	for _, p := range s.Ports {
		if port != 0 && port != p.Backend {
			return 0
		}
		port = p.Backend
	}
	return port
}
