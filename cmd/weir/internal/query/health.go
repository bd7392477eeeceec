package query

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// CountBackends counts the checked backends by state. The cost is that of those without a result.
func CountBackends(checks *health.Checker) status.Backends {
	n := checks.Count()
	return status.Backends{Up: n.Up, Down: n.Down, Unknown: n.Unknown, Void: n.Void, VoidError: n.VoidError}
}

// Health returns the results of all checks, and the Services without a check.
func Health(checks *health.Checker, owners *Owners) status.Health {
	doc := status.Health{Backends: []status.CheckedBackend{}, Unchecked: []status.Unchecked{}}
	verdicts := checks.Health()
	for _, x := range checks.Backends() {
		address := "backend"
		if x.AtVIPs {
			address = "vip"
		}
		doc.Backends = append(doc.Backends, status.CheckedBackend{
			Service: x.Service.String(), Port: x.Port.String(), Backend: x.Backend.String(), Address: address, State: x.State, Since: x.Since, Void: x.Void,
			Checked: x.Checked, Duration: x.Took.Seconds(), Error: x.Error, Checks: x.Checks, Failures: x.Failures, Flaps: x.Flaps,
			QuorumLost: verdicts[x.Service].Lost[lb.FamilyPort{Port: x.Port, Family: lb.FamilyOf(x.Backend.Addr())}],
		})
	}
	doc.Unchecked = append(doc.Unchecked, owners.Unchecked()...)
	return doc
}

// ShowHealth adds the states of checks and the drains of backends to the kernel's virtual servers.
func ShowHealth(doc *status.Services, owners *Owners, checked []health.Backend, draining map[lb.Drain]bool) {
	type checkedPort struct {
		service lb.ServiceID
		port    lb.PortKey
		backend netip.AddrPort
	}
	verdicts := map[checkedPort]health.Backend{}
	ofGroup := map[lb.ServiceID]map[netip.Addr]health.Backend{} // the worst of all ports
	for _, x := range checked {
		verdicts[checkedPort{x.Service, x.Port, x.Backend}] = x
		if ofGroup[x.Service] == nil {
			ofGroup[x.Service] = map[netip.Addr]health.Backend{}
		}
		if worst, ok := ofGroup[x.Service][x.Backend.Addr()]; !ok || worst.State == "up" {
			ofGroup[x.Service][x.Backend.Addr()] = x
		}
	}
	for i := range doc.Frontends {
		f := &doc.Frontends[i]
		owner, _ := owners.Of(f.Key)
		for j := range f.Servers {
			s := &f.Servers[j]
			x, ok := verdicts[checkedPort{owner.ServiceID, lb.PortKey{Port: f.Key.Port, Proto: f.Key.Proto}, s.Key}]
			if owner.group && f.Mark != 0 {
				x, ok = ofGroup[owner.ServiceID][s.Key.Addr()]
			}
			if ok {
				s.Health = x.State
				if x.State != "up" || x.Void {
					s.Error = x.Error
				}
			}
			s.Draining = draining[lb.Drain{Frontend: f.Key, Backend: s.Key}]
		}
	}
}

// ShowFailures adds the errors of failed checks to the backends of an explained packet.
func ShowFailures(doc explain.Answer, checked []health.Backend) explain.Answer {
	packet := doc.Packet
	if packet == nil {
		return doc
	}
	won := slices.IndexFunc(packet.Claims, func(c lb.Claim) bool { return c.Wins })
	if won < 0 {
		return doc
	}
	failed := map[netip.AddrPort]string{}
	for _, x := range checked {
		if x.State != "up" && x.Error != "" && x.Service.String() == packet.Claims[won].Service {
			failed[x.Backend] = cmp.Or(failed[x.Backend], x.Error)
		}
	}
	for i := range packet.Candidates {
		if c := &packet.Candidates[i]; c.Reason == lb.CheckFailed && failed[c.Addr] != "" {
			c.Reason += ": " + failed[c.Addr]
		}
	}
	return doc
}

// CountConnections adds the open connections to the drained VIPs.
func CountConnections(ctx context.Context, kernel *linux.Kernel, doc *status.Drained) error {
	index := map[netip.Addr]int{}
	for i, v := range doc.VIPs {
		index[netip.MustParseAddr(v.Address)] = i
	}
	return kernel.Connections(ctx, func(c linux.Connection) bool {
		if i, ok := index[c.VIP.Addr()]; ok && c.Open() {
			doc.VIPs[i].Connections++
		}
		return true
	})
}

// OpenConnections returns the number of connections to all drained VIPs.
func OpenConnections(d status.Drained) (n int) {
	for _, v := range d.VIPs {
		n += v.Connections
	}
	return n
}
