package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Protocol is an IANA protocol number. Only the three that IPVS balances are
// valid.
type Protocol uint8

// The protocols of a Service port.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String gives the name that ipset and /etc/protocols use.
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
	return 0, fmt.Errorf("protocol %q is none of tcp, udp, sctp", s)
}

// Connections tells whether the protocol has connections that are worth
// draining. UDP has none: its flows move at once.
func (p Protocol) Connections() bool { return p != UDP }

// ServiceID names a Service: its source, and what it is called there. Namespace
// is empty for static Services.
type ServiceID struct {
	Source    string
	Namespace string
	Name      string
}

// String gives "static/web" or "cluster/namespace/web"; the zero ServiceID is
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

// Service is what clients want, as a plain value. Whoever makes one has checked
// it (config, k8ssync): addresses are valid and unmapped, ports are not zero.
type Service struct {
	ID ServiceID
	// Created decides between two Services that claim the same Frontend: the
	// older one wins. The zero time (static Services) is older than any other.
	Created time.Time

	VIPs  []VIP
	Ports []Port

	Scheduler Scheduler
	// Affinity keeps a client on its backend for so long after its last
	// connection (IPVS persistence, whole seconds); 0 is off.
	Affinity time.Duration
	// Keep lets the backends see the client's address. Their replies must then
	// come back through this box. Otherwise connections are masqueraded.
	Keep bool
	// Restricted admits only SourceRanges. A family without a range is closed.
	Restricted   bool
	SourceRanges []netip.Prefix

	// Drain is how long connections of a removed backend, or of the removed
	// Service, may live on; 0 cuts them at once.
	Drain time.Duration
	// WhenDown says what to do when the checks leave too few backends.
	WhenDown WhenDown
	// Fallback answers while WhenDown is UseFallback and the quorum is lost.
	Fallback []netip.AddrPort
}

// VIPKind says how traffic to a VIP is filtered and masqueraded. The kinds are
// those of a Kubernetes Service, and choose the sets its tuples go into.
type VIPKind uint8

// The kinds of VIPs.
const (
	// LoadBalancer is an address for clients outside.
	LoadBalancer VIPKind = iota
	// ClusterIP is an address for clients inside: only what does not come from
	// cluster_cidrs is masqueraded, or everything with masquerade_all.
	ClusterIP
)

func (k VIPKind) String() string {
	if k == ClusterIP {
		return "ClusterIP"
	}
	return "LoadBalancer"
}

// VIP is one virtual address of a Service.
type VIP struct {
	Addr netip.Addr
	Kind VIPKind
}

// Port is one port of a Service with the backends that answer for it, of any
// family: each VIP uses those of its own.
type Port struct {
	Proto    Protocol
	Port     uint16
	Backends []Backend
}

// Key names the port within its Service: "80/tcp".
func (p Port) Key() PortKey { return PortKey{p.Port, p.Proto} }

// PortKey is a port number and protocol.
type PortKey struct {
	Port  uint16
	Proto Protocol
}

func (k PortKey) String() string { return fmt.Sprintf("%d/%s", k.Port, k.Proto) }

// Backend is one address and port that answers for a Service.
type Backend struct {
	Addr netip.AddrPort
	// Weight is its share of new connections, 0 to 65535; 0 takes none.
	Weight uint32
	// Upper stops new connections when so many are open, until fewer than Lower
	// are; 0 is no limit.
	Upper, Lower uint32
}

// Scheduler is an IPVS scheduler and its three flag bits, whose meaning is the
// scheduler's own (SchedulerFlags).
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

// The flags that sh and mh know. Fallback takes another backend when the hashed
// one has weight 0; WithPort hashes the client's port as well as its address.
const (
	Fallback SchedulerFlag = 0x08
	WithPort SchedulerFlag = 0x10
)

func (f SchedulerFlag) names(scheduler string) []string {
	var out []string
	if f&Fallback != 0 {
		out = append(out, scheduler+"-fallback")
	}
	if f&WithPort != 0 {
		out = append(out, scheduler+"-port")
	}
	return out
}

// Schedulers are the schedulers of the Linux kernel (net/netfilter/ipvs), with
// the flags that each of them reads.
var Schedulers = map[string]SchedulerFlag{
	"rr": 0, "wrr": 0, "lc": 0, "wlc": 0, "fo": 0, "ovf": 0, "lblc": 0, "lblcr": 0,
	"dh": 0, "sh": Fallback | WithPort, "mh": Fallback | WithPort, "sed": 0, "nq": 0, "twos": 0,
}

// WhenDown is what a Service does when its checks leave fewer backends than its
// quorum.
type WhenDown uint8

// What to do when too few backends are up.
const (
	// KeepAll sends traffic to all backends as if all were up: checks that all
	// fail at once are more often wrong than right.
	KeepAll WhenDown = iota
	// Refuse refuses new connections.
	Refuse
	// UseFallback sends new connections to the fallback backends.
	UseFallback
)

func (w WhenDown) String() string {
	return [...]string{"keep", "refuse", "fallback"}[w]
}

// Frontend is one VIP, port and protocol: what a client connects to, and what
// the kernel calls a virtual server.
type Frontend struct {
	Addr  netip.Addr
	Port  uint16
	Proto Protocol
}

func (f Frontend) String() string {
	return netip.AddrPortFrom(f.Addr, f.Port).String() + "/" + f.Proto.String()
}

// Compare orders by address, port and protocol.
func (f Frontend) Compare(other Frontend) int {
	if c := f.Addr.Compare(other.Addr); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(f.Port, other.Port),
		cmp.Compare(f.Proto, other.Proto))
}

// Frontends gives every Frontend that s claims, in the order of its VIPs.
func (s Service) Frontends() []Frontend {
	out := make([]Frontend, 0, len(s.VIPs)*len(s.Ports))
	for _, vip := range s.VIPs {
		for _, port := range s.Ports {
			out = append(out, Frontend{vip.Addr, port.Port, port.Proto})
		}
	}
	return out
}
