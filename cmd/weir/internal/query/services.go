package query

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/traffic"
	"weir/lb"
	"weir/lb/linux"
)

// Services reads all virtual servers of a kernel, as EachService does.
func Services(ctx context.Context, kernel *linux.Kernel, owners *Owners) (status.Services, error) {
	doc := status.Services{Frontends: []status.Frontend{}}
	err := EachService(ctx, kernel, owners, func(f status.Frontend) { doc.Frontends = append(doc.Frontends, f) })
	return doc, err
}

// EachService reads all virtual servers of a kernel, also foreign ones, and calls each for one after the other. It names
// the owners that are known; nil knows none.
func EachService(ctx context.Context, kernel *linux.Kernel, owners *Owners, each func(status.Frontend)) error {
	return kernel.EachTraffic(ctx, func(s linux.ServerTraffic) {
		vs := s.Server
		if lb.IsAnchor(vs.Frontend) {
			return
		}
		f := status.Frontend{
			Key: vs.Frontend, Address: vs.Frontend.Addr.String(), Port: vs.Frontend.Port, Protocol: vs.Frontend.Proto.String(),
			Mark: vs.Frontend.Mark, Given: vs.Frontend.Given, Scheduler: vs.Scheduler.String(), Affinity: vs.Affinity, Traffic: countersOf(s.Stats),
			Servers: make([]status.Server, 0, len(s.Backends)),
		}
		if w, ok := owners.Of(vs.Frontend); ok {
			f.Service, f.Source, f.Namespace, f.Name, f.Group, f.Check = w.String(), w.Source, w.Namespace, w.Name, w.group, w.check
			if f.Mark == 0 {
				f.Kind, f.Local, f.Mixed = w.kind.String(), w.local, w.mixed
				f.HealthCheckNodePort = w.healthCheckNodePort
			}
		}
		for _, b := range s.Backends {
			f.Servers = append(f.Servers, status.Server{
				Key: b.Server.Addr, Address: b.Server.Addr.String(), Weight: b.Server.Weight,
				Upper: b.Server.Upper, Lower: b.Server.Lower, Forward: forwardOf(b.Server.Forward), Tunnel: tunnelOf(b.Server),
				Active: b.Conns.Active, Inactive: b.Conns.Inactive, Traffic: countersOf(b.Stats),
			})
		}
		each(f)
	})
}

// forwardOf returns the word of ipvsadm for a forwarding method.
func forwardOf(f lb.Forwarding) string {
	return [...]string{lb.Masquerading: "Masq", lb.LocalNode: "Local", lb.Tunnel: "Tunnel", lb.DirectRouting: "Route"}[f]
}

// tunnelOf describes the tunnel to a real server, if it is reached by one.
func tunnelOf(rs lb.RealServer) string {
	if rs.Forward != lb.Tunnel {
		return ""
	}
	return rs.Encap.String()
}

func countersOf(s linux.Stats) *traffic.Counters {
	return &traffic.Counters{
		Connections: s.Conns, PacketsIn: s.PacketsIn, PacketsOut: s.PacketsOut, BytesIn: s.BytesIn, BytesOut: s.BytesOut,
	}
}

// match selects entries of the connection table by address, and by port if it is not 0. The zero match selects all.
type match struct {
	addr netip.Addr
	port uint16
}

func parseMatch(s string) (match, error) {
	if s == "" {
		return match{}, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return match{ap.Addr().Unmap(), ap.Port()}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return match{a.Unmap(), 0}, nil
	}
	return match{}, badAddress(s)
}

func badAddress(s string) error {
	return fmt.Errorf("%q is neither an address (192.0.2.1, 2001:db8::1) nor one with a port (192.0.2.1:80, [2001:db8::1]:80)", s)
}

// ValidMatch returns an error if Conns can't parse a match.
func ValidMatch(s string) error {
	_, err := parseMatch(s)
	return err
}

func (m match) selects(addrs ...netip.AddrPort) bool {
	return slices.ContainsFunc(addrs, func(a netip.AddrPort) bool {
		return !m.addr.IsValid() || a.Addr() == m.addr && (m.port == 0 || a.Port() == m.port)
	})
}

// Conns reads at most limit entries of the kernel's connection table with an address (or address and port) as client,
// virtual server or backend.
func Conns(ctx context.Context, kernel *linux.Kernel, want string, limit int) (status.Conns, error) {
	doc := status.Conns{Conns: []status.Conn{}}
	m, err := parseMatch(want)
	if err != nil {
		return doc, err
	}
	err = kernel.Connections(ctx, func(c linux.Connection) bool {
		if !m.selects(c.Client, c.VIP, c.Backend) {
			return true
		}
		if len(doc.Conns) == limit {
			doc.More = true
			return false
		}
		doc.Conns = append(doc.Conns, status.Conn{
			Protocol: c.Proto.String(), Client: c.Client.String(), Frontend: c.VIP.String(), Backend: c.Backend.String(),
			State: c.State, Expires: uint32(c.Expires.Seconds()),
		})
		return true
	})
	return doc, err
}
