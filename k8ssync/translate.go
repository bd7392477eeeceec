package k8ssync

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// maxNotes limits the Notes of one Service.
const maxNotes = 16

// youngest is the time of Services without a creation time, and of those with a change that the
// sharers of their address refuse: they yield to all others.
var youngest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// serviceID returns the ServiceID of a Service of a cluster.
func serviceID(cfg *Config, k key) lb.ServiceID {
	return lb.ServiceID{Source: cfg.Name, Namespace: k.Namespace, Name: k.Name}
}

// translate returns the lb.Service of a Service with its slices for this box; false is none.
// It is pure, and the order of the slices does not matter. Errors are Notes of the
// lb.Service, which has no VIPs if it is not served.
func translate(svc *service, from []*slice, env *env) (lb.Service, bool) {
	from = slices.DeleteFunc(slices.Clone(from), func(s *slice) bool { return !s.of(svc) })
	t := translator{svc: svc, from: from, env: env, settings: settings{}}
	if !t.served() {
		return lb.Service{}, false
	}
	t.out = lb.Service{ID: serviceID(env.cfg, svc.key), Created: svc.Created}
	if !svc.Created.After(time.Time{}) || svc.refusedToShare() {
		t.out.Created = youngest
	}
	t.vips()
	if len(t.out.VIPs) == 0 {
		t.out.Notes = t.allNotes()
		return t.out, len(t.out.Notes) > 0
	}
	t.settings = readAnnotations(env.cfg, svc.Annotations, t.noter(lb.AnnotationRefused))
	t.traffic()
	t.tunnels()
	t.source()
	t.permitEndpoints()
	t.ports()
	t.withinBudget()
	t.healthCheck()
	t.dropped()
	t.out.Notes = t.allNotes()
	return t.out, true
}

type translator struct {
	svc      *service
	from     []*slice
	env      *env
	settings settings

	out lb.Service
	// tunnel reports whether the backends are nodes, which get packets by tunnels.
	tunnel bool
	notes  []lb.Note
	more   int       // Notes beyond maxNotes
	rest   lb.Reason // of the first of those
}

func (t *translator) noter(r lb.Reason) func(string, ...any) {
	return func(format string, args ...any) { t.note(r, format, args...) }
}

func (t *translator) note(r lb.Reason, format string, args ...any) {
	if len(t.notes) == maxNotes {
		t.more, t.rest = t.more+1, cmp.Or(t.rest, r)
		return
	}
	t.notes = append(t.notes, lb.Note{Service: serviceID(t.env.cfg, t.svc.key), Reason: r, Text: fmt.Sprintf(format, args...)})
}

func (t *translator) allNotes() []lb.Note {
	if t.more > 0 {
		t.notes = append(t.notes, lb.Note{Service: t.out.ID, Reason: t.rest, Text: fmt.Sprintf("and %d more", t.more)})
	}
	return t.notes
}

// served reports whether weir serves the Service. The API server sends no other, but a file
// or an older watch may have one.
func (t *translator) served() bool {
	return t.svc.Type != "ExternalName" && !t.svc.OtherProxy && len(t.svc.ClusterIPs) > 0 &&
		t.env.cfg.follows(t.svc.Namespace)
}

// vips adds the served VIPs, each address once: an external IP that is also the load
// balancer's is the load balancer's, with its source ranges.
func (t *translator) vips() {
	kinds := t.env.cfg.Kinds
	near := t.svc.ExternalLocal && t.env.onNode()
	if kinds[lb.ClusterIP] {
		t.addVIPs(t.svc.ClusterIPs, lb.VIP{Kind: lb.ClusterIP, Local: t.svc.InternalLocal && t.env.onNode()})
	}
	if kinds[lb.LoadBalancer] && t.svc.Type == "LoadBalancer" && t.ofClass() {
		t.addVIPs(slices.Concat(t.svc.Ingress, t.proxied()), lb.VIP{Kind: lb.LoadBalancer, Local: near})
	}
	if kinds[lb.ExternalIP] {
		t.addVIPs(t.svc.ExternalIPs, lb.VIP{Kind: lb.ExternalIP, Local: near})
	}
	if kinds[lb.NodePort] && t.hasNodePort() {
		for _, f := range t.families() {
			t.out.VIPs = append(t.out.VIPs, lb.VIP{Addr: unspecified(f), Kind: lb.NodePort, Local: near})
		}
	}
}

// addVIPs adds the addresses that may be VIPs like one.
func (t *translator) addVIPs(addrs []netip.Addr, like lb.VIP) {
	for _, a := range addrs {
		reason := t.env.refuses(a, like.Kind, t.svc.key)
		if reason == "" && like.Kind == lb.LoadBalancer {
			reason = t.env.refusesIngress(a, t.svc)
		}
		switch {
		case slices.ContainsFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Addr == a }):
		case reason != "":
			t.note(lb.NotAllowed, "%s is not served as %s: %s", a, like.Kind, reason)
		case !slices.Contains(t.families(), lb.FamilyOf(a)):
			t.note(lb.BadObject, "%s is not served as %s: the Service has no %s", a, like.Kind, lb.FamilyOf(a))
		default:
			like.Addr, like.Foreign, like.Assigned = a, t.env.foreign(a, like.Kind), t.env.assigned(a, like.Kind, t.svc.key)
			t.out.VIPs = append(t.out.VIPs, like)
		}
	}
}

func (t *translator) ofClass() bool {
	classes := t.env.cfg.Classes
	return len(classes) == 0 || slices.Contains(classes, t.svc.LoadBalancerClass) || t.env.provided.serves(t.svc.LoadBalancerClass)
}

// proxied returns the served addresses of ipMode Proxy: those that weir has assigned.
func (t *translator) proxied() []netip.Addr {
	p := t.env.provided
	if !p.serves(t.svc.LoadBalancerClass) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.svc.Proxied), func(a netip.Addr) bool { return t.svc.Condition == (condition{}) && !p.contains(a) })
}

func (t *translator) hasNodePort() bool {
	return slices.ContainsFunc(t.svc.Ports, func(p servicePort) bool { return p.NodePort != 0 })
}

// families returns those of the Service.
func (t *translator) families() []lb.Family {
	out := make([]lb.Family, 0, 2)
	for _, a := range t.svc.ClusterIPs {
		out = append(out, lb.FamilyOf(a))
	}
	return out
}

func unspecified(f lb.Family) netip.Addr {
	if f == lb.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// traffic sets the scheduler, affinity, drain and source ranges.
func (t *translator) traffic() {
	cfg, w := t.env.cfg, &t.settings
	t.out.Scheduler = cfg.Scheduler
	if w.scheduler != "" && w.scheduler != cfg.Scheduler.Name {
		t.out.Scheduler = lb.Scheduler{Name: w.scheduler, Flags: lb.UsualFlags(w.scheduler)}
	}
	name := t.out.Scheduler.Name
	if w.flags != nil {
		if known := lb.Schedulers[name]; *w.flags&^known != 0 {
			t.note(lb.AnnotationRefused, "%sscheduler-flags: scheduler %s has none of these: use sh or mh", cfg.prefix(), name)
		} else {
			t.out.Scheduler.Flags = *w.flags
		}
	}
	if w.weights.any() && slices.Contains([]string{"rr", "lc", "dh"}, name) {
		t.note(lb.AnnotationRefused, "%sweights: scheduler %s counts no weight but 0: use wrr, wlc or mh", cfg.prefix(), name)
	}
	t.out.Affinity = time.Duration(t.svc.AffinitySeconds) * time.Second
	if w.affinity != nil {
		t.out.Affinity = *w.affinity
	}
	t.out.Drain = cfg.Drain
	if name == "dh" {
		t.out.Drain = 0 // it refuses clients that hash to a draining backend
	}
	if w.drain != nil {
		t.out.Drain = *w.drain
	}
	t.out.Labels = t.svc.Labels
	t.out.Restricted, t.out.SourceRanges = t.svc.Restricted, t.svc.SourceRanges
	if t.svc.Restricted {
		t.out.Ranges = cfg.Ranges
		t.out.Self = t.env.self()
	}
}

// source sets whether the backends see the addresses of clients.
//
// On a node externalTrafficPolicy Local keeps addresses by itself (lb.VIP.Local)
// and nothing else can: pods on other nodes would reply past this one. A box that
// is no node has no endpoint of its own. There a policy of Local means that the Service
// needs the addresses of its clients: they are kept, and all endpoints are used; their
// replies must return through the box. With node ports a node replies to this box only if
// it sees the box's address: client addresses are kept only by the annotation.
func (t *translator) source() {
	t.out.Apart = t.env.cfg.NodeName == ""
	t.out.Keep = t.tunnel || t.svc.ExternalLocal && !t.env.onNode() && t.env.cfg.Reach == Pods
	switch {
	case t.settings.source == "":
	case t.tunnel && t.settings.source == "masquerade":
		t.note(lb.AnnotationRefused, "%ssource-address masquerade: with forward tunnel the pods see the addresses of the clients", t.env.cfg.prefix())
	case !t.env.onNode():
		t.out.Keep = t.settings.source == "keep"
	case t.settings.source == "keep" && !t.svc.ExternalLocal:
		t.note(lb.AnnotationRefused, "%ssource-address keep: on a node only externalTrafficPolicy: Local can keep addresses", t.env.cfg.prefix())
	case t.settings.source == "masquerade" && t.svc.ExternalLocal:
		t.note(lb.AnnotationRefused, "%ssource-address masquerade: on a node externalTrafficPolicy: Local keeps addresses; use Cluster", t.env.cfg.prefix())
	}
}

// ports fills in the ports with their backends.
func (t *translator) ports() {
	near := slices.ContainsFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Local })
	for _, p := range t.svc.Ports {
		proto, err := lb.ParseProtocol(p.Proto)
		if err != nil {
			continue // readService admits none
		}
		port := lb.Port{Proto: proto, Port: p.Port}
		if t.env.cfg.Kinds[lb.NodePort] {
			port.NodePort = p.NodePort
		}
		all := candidates(p, t.from)
		for _, f := range t.families() {
			port.Backends = append(port.Backends, t.backends(p, ofFamily(all, f), f, near)...)
		}
		slices.SortFunc(port.Backends, func(a, b lb.Backend) int { return a.Addr.Compare(b.Addr) })
		t.out.Ports = append(t.out.Ports, port)
	}
	t.missingNodePorts()
}

// withinBudget leaves out backends of a Service that needs too many kernel objects, as many
// of each port and family. Those for traffic policy Local stay first: a node with endpoints must not drop clients. The
// Service is not served if its VIPs, ports and ranges by themselves are too many.
func (t *translator) withinBudget() {
	limit, need := t.env.cfg.budget().Service, kernelObjects(&t.out)
	if need <= limit {
		return
	}
	bare := t.out
	bare.Ports = slices.Clone(bare.Ports)
	for i := range bare.Ports {
		bare.Ports[i].Backends = nil
	}
	fixed := kernelObjects(&bare)
	most := (limit - fixed) / (len(t.out.VIPs) * len(t.out.Ports))
	if most < 1 {
		t.note(lb.OverBudget, "it is not served: its VIPs, ports and source ranges need %d kernel objects, and max_service_objects is %d", fixed, limit)
		t.out.VIPs, t.out.Ports = nil, nil
		return
	}
	t.note(lb.OverBudget, "it needs %d kernel objects, and max_service_objects is %d: the first %d backends of each port and family are used", need, limit, most)
	for i, p := range t.out.Ports {
		near, wide := [2]int{most, most}, [2]int{most, most} // of each family
		for _, be := range p.Backends {
			if be.Scope != lb.Wide {
				wide[family(be.Addr.Addr())]--
			}
		}
		t.out.Ports[i].Backends = slices.DeleteFunc(p.Backends, func(be lb.Backend) bool {
			left := &near
			if be.Scope == lb.Wide {
				left = &wide
			}
			left[family(be.Addr.Addr())]--
			return left[family(be.Addr.Addr())] < 0
		})
	}
}

// backends returns those of one port and family. The kernel has them in the order of their
// addresses; the start of rr differs between boxes.
func (t *translator) backends(p servicePort, all []candidate, f lb.Family, near bool) []lb.Backend {
	var list []weighted
	switch {
	case t.tunnel && f == lb.IPv6:
	case t.tunnel:
		list = throughNodes(p.Port, all, f, t.env, true)
	case t.env.cfg.Reach == NodePorts:
		list = throughNodes(p.NodePort, all, f, t.env, t.svc.ExternalLocal)
	default:
		chosen, scopes := scoped(all, t.place(), near)
		list = make([]weighted, 0, len(chosen))
		for i, c := range chosen {
			list = append(list, weighted{lb.Backend{Addr: c.addr, Scope: scopes[i]}, 1, c.Node, c.Zone})
		}
	}
	out := make([]lb.Backend, 0, len(list))
	for _, w := range list {
		w.Weight = uint32(min(maxWeight, uint64(t.settings.weights.of(w.node, w.zone))*uint64(w.share)))
		w.Upper, w.Lower = t.settings.limits.upper, t.settings.limits.lower
		if t.tunnel {
			w.Forward = lb.Tunnel
		}
		out = append(out, w.Backend)
	}
	return out
}

func (t *translator) place() place {
	if !t.env.onNode() {
		return place{zone: t.env.zone()}
	}
	return place{node: t.env.cfg.NodeName, zone: t.env.zone()}
}

// missingNodePorts notes ports that can't be reached by node ports.
func (t *translator) missingNodePorts() {
	if t.env.cfg.Reach != NodePorts || t.tunnel {
		return
	}
	var missing []string
	for _, p := range t.svc.Ports {
		if p.NodePort == 0 {
			missing = append(missing, fmt.Sprintf("%d/%s", p.Port, strings.ToLower(p.Proto)))
		}
	}
	if len(missing) > 0 {
		t.note(lb.NoNodePort, "%.200s: cluster %s is reached by node ports, and there is none: make the Service one of type NodePort or LoadBalancer, with allocateLoadBalancerNodePorts",
			strings.Join(missing, ", "), t.env.cfg.Name)
	}
}

// healthCheck sets the healthCheckNodePort, where the box is a node that serves the Service.
func (t *translator) healthCheck() {
	if t.svc.Type != "LoadBalancer" || !t.svc.ExternalLocal || !t.env.onNode() {
		return
	}
	if t.svc.HealthCheckNodePort != 0 && slices.ContainsFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Kind != lb.ClusterIP }) {
		t.out.HealthCheck = lb.HealthCheck{Port: t.svc.HealthCheckNodePort, Endpoints: healthy(t.from, t.place())}
	}
}

// dropped notes the values that were left out when the objects were read.
func (t *translator) dropped() {
	for _, d := range t.svc.Dropped {
		t.note(lb.BadObject, "%s", d)
	}
	for _, s := range slices.SortedFunc(slices.Values(t.from), func(a, b *slice) int { return a.compare(b.key) }) {
		for _, d := range s.Dropped {
			t.note(lb.BadObject, "EndpointSlice %s: %s", s.Name, d)
		}
	}
}
