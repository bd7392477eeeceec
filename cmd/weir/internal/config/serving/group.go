package serving

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/source"
	"weir/lb"
)

// groupCheck checks a service with one virtual server for all ports (lb.Service.Group).
type groupCheck struct{ *Service }

// checkGroup reports combinations that a group can't serve. Its scheduler hashes the port only on
// request.
func (s groupCheck) checkGroup(k config.Kernel) {
	if !s.LB.Group || s.LB.FWMark != 0 {
		return
	}
	if s.Text("type") == lb.ClusterIP.String() {
		s.Fail("group", "a group can't be of type ClusterIP", `use type = "LoadBalancer", or remove this`)
	}
	if k.Mode == config.ModeNetfilter {
		s.Fail("group", `a group needs IPVS, and kernel.mode is "netfilter"`, "use another mode there, or remove this")
	}
	if len(s.Ports) == 1 && s.perFamily() < 2 {
		s.Fail("group", "has no effect with one port and one VIP of each family", "add a port to ports, or remove this")
	}
	s.checkOwnPorts()
	s.checkSpread()
}

// perFamily returns the number of VIPs of the family that has more.
func (s groupCheck) perFamily() int {
	n := map[lb.Family]int{}
	for _, v := range s.VIPs {
		n[lb.FamilyOf(v.Addr.Addr())]++
	}
	return max(n[lb.IPv4], n[lb.IPv6])
}

// checkOwnPorts reports backends of another port than the service's: a virtual server by mark has one
// port for all clients, or keeps that of each client.
func (s groupCheck) checkOwnPorts() {
	const text, fix = "a group keeps the client's port", "use the port of the service, or remove group"
	for _, p := range s.Ports {
		if p.Backend != p.Port {
			s.Add(source.Error, p.At, source.Join(s.Shown, "ports"),
				fmt.Sprintf("%q is to become port %d of the backends, and %s", p.PortKey, p.Backend, text), fix)
		}
	}
	for _, b := range s.Backends {
		if port := b.Addr.Port(); port != 0 && (len(s.Ports) != 1 || port != s.Ports[0].Port) {
			s.Add(source.Error, b.At, source.Join(s.Shown, b.Name), fmt.Sprintf("%q has a port of its own, and %s", b.Addr, text), fix)
		}
	}
}

// badFallback reports a fallback that a group can't have.
func (s groupCheck) badFallback(a netip.AddrPort) *source.Fault {
	switch {
	case a.Port() != 0:
		return source.Faultf(fmt.Sprintf("write %q", a.Addr()), "%q has a port of its own, and a group keeps the client's port", a)
	case slices.Contains(s.LB.Fallback, a):
		return source.Faultf("remove one", "%q is in the list twice", a.Addr())
	case slices.ContainsFunc(s.Backends, func(b Backend) bool { return b.Addr.Addr() == a.Addr() }):
		return source.Faultf("choose another address", "%q is also a backend of the service", a.Addr())
	}
	return nil
}

// checkSpread reports a group with clients that do not keep their backend.
func (s groupCheck) checkSpread() {
	sched := &s.LB.Scheduler
	if s.LB.Affinity != 0 || s.Bad("scheduler") {
		return
	}
	switch {
	case lb.Schedulers[sched.Name]&lb.WithPort == 0:
		s.Warn(source.Warning, "group", "scheduler "+strconv.Quote(sched.Name)+" selects a backend for each connection, so a client has several",
			`add affinity_timeout = "5m", or scheduler = "mh"`)
	case !s.Has("scheduler_flags"):
		sched.Flags &^= lb.WithPort
	case sched.Flags&lb.WithPort != 0:
		s.Fail("scheduler_flags", `"port" spreads the connections of a client over the backends of the group`, `use scheduler_flags = ["fallback"]`)
	}
}
