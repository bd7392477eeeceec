package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Protocol is an IANA protocol number. Only the three that IPVS balances are valid.
type Protocol uint8

// The protocols of a Service port.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the name that ipset and /etc/protocols use.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// ParseProtocol reads "tcp", "udp" or "sctp", in any case.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("unknown protocol %q; use tcp, udp or sctp", s)
}

// Connections reports whether connections of the protocol are worth draining. UDP has none: its
// flows move immediately.
func (p Protocol) Connections() bool { return p != UDP }

// ServiceID names a Service: its source, and its name there. Namespace is empty for static
// Services.
type ServiceID struct {
	Source    string
	Namespace string
	Name      string
}

// String returns "static/web" or "cluster/namespace/web"; the zero ServiceID is
// weir itself.
func (id ServiceID) String() string {
	if id == (ServiceID{}) {
		return "weir"
	}
	if id.Namespace == "" {
		return id.Source + "/" + id.Name
	}
	return id.Source + "/" + id.Namespace + "/" + id.Name
}

// Compare orders by source, namespace and name.
func (id ServiceID) Compare(other ServiceID) int {
	return cmp.Or(cmp.Compare(id.Source, other.Source),
		cmp.Compare(id.Namespace, other.Namespace),
		cmp.Compare(id.Name, other.Name))
}

// Service is a plain value. Its maker (config, k8ssync) has checked it: addresses are valid and
// unmapped, ports are not zero.
type Service struct {
	ID ServiceID
	// Created decides between two Services that claim the same Frontend in the same way: the
	// older one wins (Catalog). The zero time is that of static Services, which win over all others.
	Created time.Time

	VIPs  []VIP
	Ports []Port

	Scheduler Scheduler
	// Affinity keeps a client on its backend for so long after its last
	// connection (IPVS persistence, whole seconds); 0 is off.
	Affinity time.Duration
	// OnePacket schedules each datagram of UDP ports by itself. Its backends are direct.
	OnePacket bool
	// Group makes one virtual server of all VIPs and ports of a family, so that with Affinity a
	// client has one backend on all of them. The backends of each port have the same addresses,
	// and the port of their frontend.
	Group bool
	// FWMark is a firewall mark that rules of the administrator set: it selects the packets of the
	// Service, in place of VIPs and ports. Its VIPs are made local, and nothing else. Its only Port
	// has the number 0. It has Keep, as its packets have no mark for masquerading.
	FWMark uint32
	// CheckVIPs makes a virtual server by mark for each direct backend (checks.go), so that checks
	// of this box reach the VIPs at that backend.
	CheckVIPs bool
	// Keep lets the backends see the client's address, as direct ones (Forwarding) always do. The
	// replies of the others must then come back through this box.
	Keep bool
	// Restricted admits only SourceRanges to its LoadBalancer VIPs, as
	// loadBalancerSourceRanges does. A family without a range is closed.
	Restricted   bool
	SourceRanges []netip.Prefix
	// Self are the addresses by which SourceRanges admit the box as its own client. Of a family
	// that Self lacks, each address of the box counts.
	Self []netip.Addr
	// Ranges selects the VIPs that SourceRanges apply to.
	Ranges RangeScope
	// HealthCheck is the answer to a probe of this node by a cloud or router.
	HealthCheck HealthCheck
	// Apart requires that the backends are other hosts. The box itself is refused as a backend:
	// through a VIP its ports would be open past its own firewall.
	Apart bool

	// Drain limits the life of connections of a removed backend, or of the removed Service; 0
	// ends them immediately.
	Drain time.Duration
	// WhenDown selects the action if too few backends are up.
	WhenDown WhenDown
	// Fallback answers while WhenDown is UseFallback and the quorum is lost.
	Fallback []netip.AddrPort
	// Forward and Encap are the forwarding method to Fallback.
	Forward Forwarding
	Encap   Encap

	// Labels are the labels of its source that the configuration refers to: they select how its
	// VIPs are announced. The map belongs to the Service.
	Labels map[string]string

	// Notes are the source's own ones: parts that it did not understand, or refused.
	Notes []Note
}

// RangeScope selects the VIPs of a Service that its source ranges apply to.
type RangeScope uint8

// The scopes of source ranges.
const (
	// RangesLoadBalancer is LoadBalancer VIPs, as in Kubernetes.
	RangesLoadBalancer RangeScope = iota
	// RangesOutside is VIPs for clients outside: also ExternalIPs and NodePorts.
	RangesOutside
	// RangesEverywhere is all VIPs, also ClusterIPs.
	RangesEverywhere
)

// covers reports whether source ranges of this scope apply to a kind of VIP.
func (r RangeScope) covers(k VIPKind) bool {
	switch r {
	case RangesEverywhere:
		return true
	case RangesOutside:
		return k != ClusterIP
	}
	return k == LoadBalancer
}

// VIPKind selects how traffic to a VIP is filtered and masqueraded. The kinds are those of a
// Kubernetes Service, and select the sets of its tuples.
type VIPKind uint8

// The kinds of VIPs.
const (
	// LoadBalancer is an address for clients outside.
	LoadBalancer VIPKind = iota
	// ClusterIP is an address for clients inside: packets from outside cluster_cidrs are
	// masqueraded, or all with masquerade_all.
	ClusterIP
	// ExternalIP is an address that the Service's author writes (spec.externalIPs).
	ExternalIP
	// NodePort stands for every address of the node that Facts allow, at
	// Port.NodePort. Its Addr is the unspecified address of a family.
	NodePort
)

func (k VIPKind) String() string {
	return [...]string{"LoadBalancer", "ClusterIP", "ExternalIP", "NodePort"}[k]
}

// VIP is one virtual address of a Service.
type VIP struct {
	Addr netip.Addr
	Kind VIPKind
	// Local is a traffic policy of Local. A ClusterIP is then served by backends of this node
	// only. So are the clients outside of the other kinds, and they keep their address. Clients
	// inside (pods, and the node itself) have all backends (KEP-1669, and kube-proxy's iptables
	// mode).
	Local bool
	// Foreign is an address that the operator did not choose: it is not served if it is the
	// box's own.
	Foreign bool
	// Assigned is an address that weir has assigned to the Service: another one can't get it by a
	// false age.
	Assigned bool
}

// HealthCheck is a healthCheckNodePort: an HTTP port of the node that answers 200
// while the node has ready backends of its own. The zero value is none.
type HealthCheck struct {
	Port uint16
	// Endpoints is the number of those backends.
	Endpoints int
}

// Port is one port of a Service with its backends of both families. Each VIP uses those of its
// family.
type Port struct {
	Proto Protocol
	Port  uint16
	// NodePort is the port of the Service's NodePort VIPs, unique within the Service; 0 is
	// none.
	NodePort uint16
	Backends []Backend
}

// Key names the port within its Service: "80/tcp".
func (p Port) Key() PortKey { return PortKey{p.Port, p.Proto} }

// PortKey is a port number and protocol.
type PortKey struct {
	Port  uint16
	Proto Protocol
}

// String returns "80/tcp", and "fwmark" for the port of Service.FWMark.
func (k PortKey) String() string {
	if k.Port == 0 {
		return "fwmark"
	}
	return fmt.Sprintf("%d/%s", k.Port, k.Proto)
}

// Backend is one address and port that answers for a Service.
type Backend struct {
	Addr netip.AddrPort
	// Weight is its share of new connections, 0 to 65535; 0 takes none.
	Weight uint32
	// Upper stops new connections when so many are open, until fewer than Lower are open; 0 is
	// no limit.
	Upper, Lower uint32
	// Forward is the forwarding method. With a direct one the port is that of the frontend.
	Forward Forwarding
	Encap   Encap // of Tunnel
	// Scope selects the traffic policies that use the backend.
	Scope Scope
}

// Scope selects the traffic policies that use a backend. Traffic policy Local has a list of
// backends of its own, which is no part of the other one: topology hints narrow only the wide
// list, and each falls back to terminating endpoints by itself (KEP-1669, KEP-2433).
type Scope uint8

// The scopes.
const (
	// Wide is for traffic policy Cluster.
	Wide Scope = iota
	// Near is for traffic policy Local.
	Near
	// Both is for either.
	Both
)

func (s Scope) String() string { return [...]string{"wide", "near", "both"}[s] }

// In reports whether a traffic policy uses a backend of this scope.
func (s Scope) In(local bool) bool {
	return s == Both || (s == Near) == local
}

// Scheduler is an IPVS scheduler and its three flag bits, which each scheduler defines for
// itself (SchedulerFlag).
type Scheduler struct {
	Name  string
	Flags SchedulerFlag
}

func (s Scheduler) String() string {
	if s.Flags == 0 {
		return s.Name
	}
	return s.Name + " (" + strings.Join(s.Flags.names(s.Name), ",") + ")"
}

// SchedulerFlag has the values of IP_VS_SVC_F_SCHED1..3 in
// include/uapi/linux/ip_vs.h.
type SchedulerFlag uint32

// The flags of sh and mh. Fallback takes another backend when the hashed one has weight 0;
// WithPort hashes the client's port as well as its address.
const (
	Fallback SchedulerFlag = 0x08
	WithPort SchedulerFlag = 0x10
	// OnePacket schedules each UDP datagram by itself (IP_VS_SVC_F_ONEPACKET). Any scheduler has
	// it, and Service.OnePacket sets it.
	OnePacket SchedulerFlag = 0x04
)

func (f SchedulerFlag) names(scheduler string) []string {
	var out []string
	if f&Fallback != 0 {
		out = append(out, scheduler+"-fallback")
	}
	if f&WithPort != 0 {
		out = append(out, scheduler+"-port")
	}
	if f&OnePacket != 0 {
		out = append(out, "one-packet")
	}
	return out
}

// Schedulers are the schedulers of the Linux kernel (net/netfilter/ipvs), with
// the flags that each of them reads.
var Schedulers = map[string]SchedulerFlag{
	"rr": 0, "wrr": 0, "lc": 0, "wlc": 0, "fo": 0, "ovf": 0, "lblc": 0, "lblcr": 0,
	"dh": 0, "sh": Fallback | WithPort, "mh": Fallback | WithPort, "sed": 0, "nq": 0, "twos": 0,
}

// UsualFlags are the flags of a scheduler without a configured value. Without Fallback, sh and
// mh refuse the clients of a backend that is down or drains. By common use, mh hashes the port
// and sh does not.
func UsualFlags(scheduler string) SchedulerFlag {
	switch scheduler {
	case "mh":
		return Fallback | WithPort
	case "sh":
		return Fallback
	}
	return 0
}

// WhenDown is the action of a Service if its checks leave fewer backends than its quorum.
type WhenDown uint8

// The actions if too few backends are up.
const (
	// KeepAll sends traffic to all backends as if all were up: if all checks fail at once, the
	// checks are more often wrong than right.
	KeepAll WhenDown = iota
	// Refuse refuses new connections.
	Refuse
	// UseFallback sends new connections to the fallback backends.
	UseFallback
)

func (w WhenDown) String() string {
	return [...]string{"keep", "refuse", "fallback"}[w]
}

// Frontends returns every Frontend that s claims, in the order of its VIPs. A NodePort has the
// unspecified address.
func (s Service) Frontends() []Frontend {
	if s.FWMark != 0 {
		return s.givenFrontends()
	}
	out := make([]Frontend, 0, len(s.VIPs)*len(s.Ports))
	for _, vip := range s.VIPs {
		for _, port := range s.Ports {
			if f, ok := vip.frontend(port); ok {
				out = append(out, f)
			}
		}
	}
	return out
}

// frontend returns the frontend of v for a port, if there is one.
func (v VIP) frontend(port Port) (Frontend, bool) {
	if v.Kind == NodePort {
		return Frontend{Addr: v.Addr, Port: port.NodePort, Proto: port.Proto}, port.NodePort != 0
	}
	return Frontend{Addr: v.Addr, Port: port.Port, Proto: port.Proto}, true
}

// givenFrontends returns the frontend of each family with backends.
func (s Service) givenFrontends() (out []Frontend) {
	has := map[Family]bool{}
	for a := range s.backendAddrs() {
		has[FamilyOf(a)] = true
	}
	for _, family := range []Family{IPv4, IPv6} {
		if has[family] {
			out = append(out, GivenFrontend(family, s.FWMark))
		}
	}
	return out
}
