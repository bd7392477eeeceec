package k8ssync

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/lb"
)

// These bound what one Service may take of the box.
const (
	maxNotes = 16
	// maxReal bounds the real servers of a Service, over all its VIPs and ports.
	maxReal = 1 << 18
)

// youngest is for Services of which nobody knows when they were made: they yield
// to all others.
var youngest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// serviceID is what lb calls a Service of a cluster.
func serviceID(cfg *Config, k key) lb.ServiceID {
	return lb.ServiceID{Source: cfg.Name, Namespace: k.Namespace, Name: k.Name}
}

// translate says what a Service with its slices means for this box; false is
// nothing. It is pure, and the order of the slices does not matter. What can't be
// done is in the Notes of the lb.Service, which has no VIPs if it has nothing else.
func translate(svc *service, from []*slice, env *env) (lb.Service, bool) {
	t := translator{svc: svc, from: from, env: env, wishes: wishes{}}
	if !t.ours() {
		return lb.Service{}, false
	}
	t.out = lb.Service{ID: serviceID(env.cfg, svc.key), Created: svc.Created}
	if !svc.Created.After(time.Time{}) {
		t.out.Created = youngest
	}
	t.vips()
	if len(t.out.VIPs) == 0 {
		t.out.Notes = t.told()
		return t.out, len(t.out.Notes) > 0
	}
	t.wishes = readAnnotations(env.cfg, svc.Annotations, t.noter(lb.AnnotationRefused))
	t.traffic()
	t.source()
	t.ports()
	t.healthCheck()
	t.nonsense()
	t.out.Notes = t.told()
	return t.out, true
}

type translator struct {
	svc    *service
	from   []*slice
	env    *env
	wishes wishes

	out   lb.Service
	notes []lb.Note
	more  int
}

func (t *translator) noter(r lb.Reason) func(string, ...any) {
	return func(format string, args ...any) { t.note(r, format, args...) }
}

func (t *translator) note(r lb.Reason, format string, args ...any) {
	if len(t.notes) == maxNotes {
		t.more++
		return
	}
	t.notes = append(t.notes, lb.Note{Service: serviceID(t.env.cfg, t.svc.key), Reason: r, Text: fmt.Sprintf(format, args...)})
}

func (t *translator) told() []lb.Note {
	if t.more > 0 {
		t.notes = append(t.notes, lb.Note{Service: t.out.ID, Reason: lb.BadObject, Text: fmt.Sprintf("and %d more", t.more)})
	}
	return t.notes
}

// ours tells whether the Service is one that weir serves. The API server sends
// no other, but a file or an older watch may hold one.
func (t *translator) ours() bool {
	return t.svc.Type != "ExternalName" && !t.svc.OtherProxy && len(t.svc.ClusterIPs) > 0 &&
		t.env.cfg.follows(t.svc.Namespace)
}

// vips finds the VIPs that are served, each address once: an external IP that is
// also the load balancer's is the load balancer's, whose source ranges hold.
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
		switch why := t.env.refuses(a, like.Kind, t.svc.key); {
		case slices.ContainsFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Addr == a }):
		case why != "":
			t.note(lb.NotAllowed, "%s is not served as %s: %s", a, like.Kind, why)
		case !slices.Contains(t.families(), lb.FamilyOf(a)):
			t.note(lb.BadObject, "%s is not served as %s: the Service has no %s", a, like.Kind, lb.FamilyOf(a))
		default:
			like.Addr, like.Foreign = a, t.env.foreign(a, like.Kind)
			t.out.VIPs = append(t.out.VIPs, like)
		}
	}
}

func (t *translator) ofClass() bool {
	classes := t.env.cfg.Classes
	return len(classes) == 0 || slices.Contains(classes, t.svc.LoadBalancerClass) || t.env.provided.serves(t.svc.LoadBalancerClass)
}

// proxied are the addresses of ipMode Proxy that are served: those that weir gave.
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

// families are those of the Service.
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

// traffic says how connections are spread, kept together, drained and admitted.
func (t *translator) traffic() {
	cfg, w := t.env.cfg, &t.wishes
	t.out.Scheduler = cfg.Scheduler
	if w.scheduler != "" && w.scheduler != cfg.Scheduler.Name {
		t.out.Scheduler = lb.Scheduler{Name: w.scheduler, Flags: lb.UsualFlags(w.scheduler)}
	}
	name := t.out.Scheduler.Name
	if w.flags != nil {
		if known := lb.Schedulers[name]; *w.flags&^known != 0 {
			t.note(lb.AnnotationRefused, "weir/scheduler-flags: scheduler %s has none of these: use sh or mh", name)
		} else {
			t.out.Scheduler.Flags = *w.flags
		}
	}
	if w.weights.any() && slices.Contains([]string{"rr", "lc", "dh"}, name) {
		t.note(lb.AnnotationRefused, "weir/weights: scheduler %s counts no weight but 0: use wrr, wlc or mh", name)
	}
	t.out.Affinity = time.Duration(t.svc.AffinitySeconds) * time.Second
	if w.affinity != nil {
		t.out.Affinity = *w.affinity
	}
	t.out.Drain = cfg.Drain
	if name == "dh" {
		t.out.Drain = 0 // it refuses who hashes to a backend that drains
	}
	if w.drain != nil {
		t.out.Drain = *w.drain
	}
	t.out.Labels = t.svc.Labels
	t.out.Restricted, t.out.SourceRanges = t.svc.Restricted, t.svc.SourceRanges
	if t.svc.Restricted {
		t.out.Ranges = cfg.Ranges
	}
}

// source says whether the backends see their clients.
//
// On a node externalTrafficPolicy Local keeps addresses by itself (lb.VIP.Local)
// and nothing else can: pods on other nodes would reply past this one. A box that
// is no node has no endpoint of its own; there a policy of Local means that the
// Service wants to see its clients, so that they are kept and all endpoints are
// used, whose replies must come back through the box. Through node ports it is the
// node that sees somebody, and replies come back here only if it sees this box:
// addresses are kept only where the annotation says so.
func (t *translator) source() {
	t.out.Apart = t.env.cfg.NodeName == ""
	t.out.Keep = t.svc.ExternalLocal && !t.env.onNode() && t.env.cfg.Reach == Pods
	switch {
	case t.wishes.source == "":
	case !t.env.onNode():
		t.out.Keep = t.wishes.source == "keep"
	case t.wishes.source == "keep" && !t.svc.ExternalLocal:
		t.note(lb.AnnotationRefused, "weir/source-address keep: on a node only externalTrafficPolicy: Local can keep addresses")
	case t.wishes.source == "masquerade" && t.svc.ExternalLocal:
		t.note(lb.AnnotationRefused, "weir/source-address masquerade: on a node externalTrafficPolicy: Local keeps addresses; use Cluster")
	}
}

// ports fills in the ports with their backends.
func (t *translator) ports() {
	near := slices.ContainsFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Local })
	most := maxReal / max(1, len(t.out.VIPs)*len(t.svc.Ports))
	for _, p := range t.svc.Ports {
		proto, err := lb.ParseProtocol(p.Proto)
		if err != nil {
			continue // readService lets none through
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
		if len(port.Backends) > most {
			t.note(lb.BadObject, "port %s has %d backends: the first %d are used, because one Service has at most %d over all its VIPs and ports",
				port.Key(), len(port.Backends), most, maxReal)
			port.Backends = port.Backends[:most:most]
		}
		t.out.Ports = append(t.out.Ports, port)
	}
	t.missingNodePorts()
}

// weighted is a backend before it has its weight.
type weighted struct {
	lb.Backend
	share      int
	node, zone string
}

// backends gives those of one port and family. The kernel has them in the order
// of their addresses: where rr begins is its own affair and differs from box to
// box by what has come before.
func (t *translator) backends(p servicePort, all []candidate, f lb.Family, near bool) []lb.Backend {
	var list []weighted
	if t.env.cfg.Reach == NodePorts {
		list = throughNodes(p, all, f, t.env, t.svc.ExternalLocal)
	} else {
		chosen, scopes := scoped(all, t.place(), near)
		for i, c := range chosen {
			list = append(list, weighted{lb.Backend{Addr: c.addr, Scope: scopes[i]}, 1, c.Node, c.Zone})
		}
	}
	out := make([]lb.Backend, 0, len(list))
	for _, w := range list {
		w.Weight = uint32(min(maxWeight, uint64(t.wishes.weights.of(w.node, w.zone))*uint64(w.share)))
		w.Upper, w.Lower = t.wishes.limits.upper, t.wishes.limits.lower
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

// missingNodePorts tells of ports that can't be reached by node ports.
func (t *translator) missingNodePorts() {
	if t.env.cfg.Reach != NodePorts {
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

// healthCheck tells of the healthCheckNodePort, where the box is a node that
// serves what the probe is for.
func (t *translator) healthCheck() {
	if t.svc.Type != "LoadBalancer" || !t.svc.ExternalLocal || !t.env.onNode() {
		return
	}
	if t.svc.HealthCheckNodePort != 0 && slices.ContainsFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Kind != lb.ClusterIP }) {
		t.out.HealthCheck = lb.HealthCheck{Port: t.svc.HealthCheckNodePort, Endpoints: healthy(t.from, t.place())}
	}
}

// nonsense tells what was left out when the objects were read.
func (t *translator) nonsense() {
	for _, d := range t.svc.Dropped {
		t.note(lb.BadObject, "%s", d)
	}
	for _, s := range slices.SortedFunc(slices.Values(t.from), func(a, b *slice) int { return a.compare(b.key) }) {
		for _, d := range s.Dropped {
			t.note(lb.BadObject, "EndpointSlice %s: %s", s.Name, d)
		}
	}
}
