package daemon

import (
	"context"
	"fmt"
	"net/netip"

	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/linux"
)

// Services reads the virtual servers of a kernel, strangers' too, and names the
// Services of those that owners knows; nil knows none.
func Services(ctx context.Context, kernel *linux.Kernel, owners *Owners) (status.Services, error) {
	doc := status.Services{Frontends: []status.Frontend{}}
	servers, err := kernel.Traffic(ctx)
	for _, s := range servers {
		vs := s.Server
		if lb.IsAnchor(vs.Frontend) {
			continue
		}
		f := status.Frontend{
			Key: vs.Frontend, Address: vs.Frontend.Addr.String(), Port: vs.Frontend.Port, Protocol: vs.Frontend.Proto.String(),
			Mark: vs.Frontend.Mark, Scheduler: vs.Scheduler.String(), Affinity: vs.Affinity, Servers: []status.Server{}, Traffic: traffic(s.Stats),
		}
		if w, ok := owners.of(vs.Frontend); ok {
			f.Service, f.Source, f.Namespace, f.Name = w.String(), w.Source, w.Namespace, w.Name
			if f.Mark == 0 {
				f.Kind, f.Local = w.kind.String(), w.local
			}
		}
		for _, b := range s.Backends {
			f.Servers = append(f.Servers, status.Server{
				Key: b.Server.Addr, Address: b.Server.Addr.String(), Weight: b.Server.Weight,
				Upper: b.Server.Upper, Lower: b.Server.Lower,
				Active: b.Conns.Active, Inactive: b.Conns.Inactive, Traffic: traffic(b.Stats),
			})
		}
		doc.Frontends = append(doc.Frontends, f)
	}
	return doc, err
}

func traffic(s linux.Stats) *status.Counters {
	return &status.Counters{
		Connections: s.Conns, PacketsIn: s.PacketsIn, PacketsOut: s.PacketsOut, BytesIn: s.BytesIn, BytesOut: s.BytesOut,
	}
}

// match is what an entry of the connection table is looked for by: an address,
// and a port if not 0. The zero match takes all.
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
	return match{}, fmt.Errorf("%q is neither an address (192.0.2.1, 2001:db8::1) nor one with a port (192.0.2.1:80, [2001:db8::1]:80)", s)
}

// ValidMatch tells what is wrong with what Conns is asked for.
func ValidMatch(s string) error {
	_, err := parseMatch(s)
	return err
}

func (m match) takes(addrs ...netip.AddrPort) bool {
	for _, a := range addrs {
		if !m.addr.IsValid() || a.Addr() == m.addr && (m.port == 0 || a.Port() == m.port) {
			return true
		}
	}
	return false
}

// Conns reads the kernel's connection table for entries that have an address (or
// address and port) as client, virtual server or backend; at most limit.
func Conns(ctx context.Context, kernel *linux.Kernel, want string, limit int) (status.Conns, error) {
	doc := status.Conns{Conns: []status.Conn{}}
	m, err := parseMatch(want)
	if err != nil {
		return doc, err
	}
	err = kernel.Connections(ctx, func(c linux.Connection) bool {
		if !m.takes(c.Client, c.VIP, c.Backend) {
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
