package lb

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	webID, apiID = ServiceID{"prod", "shop", "web"}, ServiceID{"test", "shop", "api"}
	six          = netip.MustParseAddrPort("[fd00::1]:8080")
	eth0         = netip.MustParseAddr("10.9.9.1")
	atEth0       = Frontend{Addr: eth0, Port: 30080, Proto: TCP}
	// node has two addresses of IPv4, one of IPv6, and some that no NodePort is on.
	node = map[netip.Addr]string{
		eth0: "eth0", netip.MustParseAddr("172.16.0.1"): "docker0", netip.MustParseAddr("fd00:9::1"): "eth0",
		netip.MustParseAddr("127.0.0.1"): "lo", netip.MustParseAddr("::1"): "lo",
		netip.MustParseAddr("fe80::1"): "eth0", netip.MustParseAddr("169.254.1.1"): "eth0",
	}
	onEth0 = Facts{HostAddrs: node, NodePortNets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}

	all4, all6 = VIP{Addr: unspecified(IPv4), Kind: NodePort}, VIP{Addr: unspecified(IPv6), Kind: NodePort}
	near, far  = Backend{Addr: be1, Weight: 1, Scope: Both}, Backend{Addr: be2, Weight: 1}
)

// kube makes a Service of one port, 80/tcp, with two backends.
func kube(change func(s *Service, p *Port), vips ...VIP) Service {
	s := Service{ID: webID, Scheduler: Scheduler{Name: "rr"}, VIPs: vips}
	p := Port{Proto: TCP, Port: 80, NodePort: 30080, Backends: []Backend{{Addr: be1, Weight: 1}, {Addr: be2, Weight: 1}}}
	if change != nil {
		change(&s, &p)
	}
	s.Ports = []Port{p}
	return s
}

func backends(list ...Backend) func(*Service, *Port) {
	return func(_ *Service, p *Port) { p.Backends = list }
}

func local(v VIP) VIP {
	v.Local = true
	return v
}

// restrictedTo makes a Service with one backend and source ranges of a scope.
func restrictedTo(ranges ...string) func(scope RangeScope, vips ...VIP) Service {
	return func(scope RangeScope, vips ...VIP) Service {
		return kube(func(s *Service, p *Port) {
			s.Restricted, s.Ranges, p.Backends = true, scope, []Backend{{Addr: be1, Weight: 1}, {Addr: six, Weight: 1}}
			for _, r := range ranges {
				s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(r))
			}
		}, vips...)
	}
}

// marked are facts with a mark for port 80/tcp of the Service.
func marked(mark uint32) Facts {
	return Facts{HostAddrs: node, Marks: map[MarkKey]uint32{{Service: webID, FamilyPort: FamilyPort{PortKey{80, TCP}, IPv4}}: mark}}
}

// planned is what a Plan gives, one line for an object and for a note.
func planned(svc Service, facts Facts) string {
	objects, notes := Plan(svc, &facts)
	var b strings.Builder
	for _, o := range objects {
		b.WriteString(o.String() + "\n")
	}
	for _, n := range notes {
		b.WriteString("note " + string(n.Reason) + ": " + n.Text + "\n")
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name  string
		svc   Service
		facts Facts
		want  string
	}{
		{"a LoadBalancer is masqueraded", kube(nil, VIP{Addr: vip}), Facts{}, `
member IPVS-IPS 192.0.2.1
member LOAD-BALANCER 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"a ClusterIP may loop", kube(nil, VIP{Addr: vip, Kind: ClusterIP}), Facts{}, `
member IPVS-IPS 192.0.2.1
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2
member CLUSTER-IP 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"an ExternalIP that keeps sources", kube(func(s *Service, _ *Port) { s.Keep = true }, VIP{Addr: vip, Kind: ExternalIP}), Facts{}, `
member IPVS-IPS 192.0.2.1
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2
member EXTERNAL-IP 192.0.2.1,tcp:80
member EXTERNAL-IP-LOCAL 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
real server 10.0.0.2:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"a NodePort is on every address of its families", kube(nil, all4, all6), Facts{HostAddrs: node}, `
member NODE-PORTS 10.9.9.1,tcp:30080
member NODE-PORTS 172.16.0.1,tcp:30080
member NODE-PORTS fd00:9::1,tcp:30080
member IPVS-PORTS 10.9.9.1,tcp:30080
member IPVS-PORTS 172.16.0.1,tcp:30080
member IPVS-PORTS fd00:9::1,tcp:30080
virtual server 10.9.9.1:30080/tcp rr
virtual server 172.16.0.1:30080/tcp rr
virtual server [fd00:9::1]:30080/tcp rr
real server 10.0.0.1:8080 of 10.9.9.1:30080/tcp weight 1
real server 10.0.0.2:8080 of 10.9.9.1:30080/tcp weight 1
real server 10.0.0.1:8080 of 172.16.0.1:30080/tcp weight 1
real server 10.0.0.2:8080 of 172.16.0.1:30080/tcp weight 1
note no-backends: [fd00:9::1]:30080/tcp has no IPv6 backend: clients are refused
`},
		{"a NodePort only within its nets, which say nothing of IPv6", kube(backends(near, Backend{Addr: six, Weight: 1}), all4, all6), onEth0, `
member NODE-PORTS 10.9.9.1,tcp:30080
member NODE-PORTS fd00:9::1,tcp:30080
member IPVS-PORTS 10.9.9.1,tcp:30080
member IPVS-PORTS fd00:9::1,tcp:30080
virtual server 10.9.9.1:30080/tcp rr
virtual server [fd00:9::1]:30080/tcp rr
real server 10.0.0.1:8080 of 10.9.9.1:30080/tcp weight 1
real server [fd00::1]:8080 of [fd00:9::1]:30080/tcp weight 1
`},
		{"a NodePort of UDP", kube(func(_ *Service, p *Port) { p.Proto, p.Backends = UDP, nil }, all4), onEth0, `
member NODE-PORTS 10.9.9.1,udp:30080
member IPVS-PORTS 10.9.9.1,udp:30080
virtual server 10.9.9.1:30080/udp rr
note no-backends: 10.9.9.1:30080/udp has no IPv4 backend: clients are refused
`},
		{"a NodePort of SCTP that keeps sources", kube(func(s *Service, p *Port) { s.Keep, p.Proto, p.Backends = true, SCTP, p.Backends[:1] }, all4), onEth0, `
member LOOP-BACK 10.0.0.1,sctp:8080,10.0.0.1
member NODE-PORTS 10.9.9.1,sctp:30080
member NODE-PORTS-LOCAL 10.9.9.1,sctp:30080
member IPVS-PORTS 10.9.9.1,sctp:30080
virtual server 10.9.9.1:30080/sctp rr
real server 10.0.0.1:8080 of 10.9.9.1:30080/sctp weight 1
`},
		{"a NodePort of a port that has none", kube(func(_ *Service, p *Port) { p.NodePort = 0 }, all4), Facts{HostAddrs: node}, `
`},
		{"a NodePort gives way to who wants one of its addresses", kube(backends(near), all4), Facts{HostAddrs: node, claims: map[Frontend][]ServiceID{atEth0: {apiID}}}, `
member NODE-PORTS 172.16.0.1,tcp:30080
member IPVS-PORTS 172.16.0.1,tcp:30080
virtual server 172.16.0.1:30080/tcp rr
real server 10.0.0.1:8080 of 172.16.0.1:30080/tcp weight 1
note conflict: 10.9.9.1:30080/tcp belongs to test/shop/api
`},
		{"a NodePort gives way to a VIP of its own Service", kube(func(_ *Service, p *Port) { p.NodePort, p.Backends = 80, nil }, all4, VIP{Addr: eth0}), Facts{HostAddrs: node, claims: map[Frontend][]ServiceID{{Addr: eth0, Port: 80, Proto: TCP}: {webID}}}, `
member LOAD-BALANCER 10.9.9.1,tcp:80
member NODE-PORTS 172.16.0.1,tcp:80
member IPVS-PORTS 10.9.9.1,tcp:80
member IPVS-PORTS 172.16.0.1,tcp:80
virtual server 10.9.9.1:80/tcp rr
virtual server 172.16.0.1:80/tcp rr
note host-address: 10.9.9.1 is an address of this box on eth0: only the service ports are served
note no-backends: 10.9.9.1:80/tcp has no IPv4 backend: clients are refused
note no-backends: 172.16.0.1:80/tcp has no IPv4 backend: clients are refused
`},
		{"a NodePort leaves a foreign frontend unchanged", kube(backends(near), all4), Facts{HostAddrs: node, Foreign: map[Frontend]bool{atEth0: true}}, `
member NODE-PORTS 172.16.0.1,tcp:30080
member IPVS-PORTS 172.16.0.1,tcp:30080
virtual server 172.16.0.1:30080/tcp rr
real server 10.0.0.1:8080 of 172.16.0.1:30080/tcp weight 1
note foreign: 10.9.9.1:30080/tcp is a virtual server that weir did not make; remove it (ipvsadm -D) or choose another VIP or port
`},
		{"another cluster has the frontend", kube(nil, VIP{Addr: vip, Kind: ClusterIP}), Facts{Taken: map[Frontend]ServiceID{front: apiID}}, `
note conflict: 192.0.2.1:80/tcp belongs to test/shop/api
`},
		{"Local with a backend of this node has two faces", kube(backends(near, far), local(VIP{Addr: vip})), marked(3), `
member IPVS-IPS 192.0.2.1
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2
member LOAD-BALANCER 192.0.2.1,tcp:80
member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80
member IPVS-MARKS 0.0.0.3
member INTERNAL 192.0.2.1,tcp:80 mark 3
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server IPv4 mark 3 rr
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of IPv4 mark 3 weight 1
real server 10.0.0.2:8080 of IPv4 mark 3 weight 1
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"Local without one of this node drops who is outside", kube(backends(far), local(VIP{Addr: vip})), marked(3), `
member IPVS-IPS 192.0.2.1
member NO-LOCAL 192.0.2.1,tcp:80
member LOOP-BACK 10.0.0.2,tcp:8080,10.0.0.2
member LOAD-BALANCER 192.0.2.1,tcp:80
member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80
member IPVS-MARKS 0.0.0.3
member INTERNAL 192.0.2.1,tcp:80 mark 3
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server IPv4 mark 3 rr
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.2:8080 of IPv4 mark 3 weight 1
address 192.0.2.1
note no-local: 192.0.2.1:80/tcp has no backend on this node, and its traffic policy is Local: clients are dropped
`},
		{"Local without any refuses", kube(backends(), local(VIP{Addr: vip})), marked(3), `
member IPVS-IPS 192.0.2.1
member LOAD-BALANCER 192.0.2.1,tcp:80
member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80
member IPVS-MARKS 0.0.0.3
member INTERNAL 192.0.2.1,tcp:80 mark 3
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server IPv4 mark 3 rr
virtual server 192.0.2.1:80/tcp rr
address 192.0.2.1
note no-backends: 192.0.2.1:80/tcp has no IPv4 backend: clients are refused
`},
		{"Local VIPs of a Service share the mark", kube(backends(near), local(VIP{Addr: vip, Kind: ExternalIP}), local(all4)), marked(3), `
member IPVS-IPS 192.0.2.1
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member EXTERNAL-IP 192.0.2.1,tcp:80
member EXTERNAL-IP-LOCAL 192.0.2.1,tcp:80
member NODE-PORTS 10.9.9.1,tcp:30080
member NODE-PORTS 172.16.0.1,tcp:30080
member NODE-PORTS-LOCAL 10.9.9.1,tcp:30080
member NODE-PORTS-LOCAL 172.16.0.1,tcp:30080
member IPVS-MARKS 0.0.0.3
member INTERNAL 10.9.9.1,tcp:30080 mark 3
member INTERNAL 172.16.0.1,tcp:30080 mark 3
member INTERNAL 192.0.2.1,tcp:80 mark 3
member IPVS-PORTS 10.9.9.1,tcp:30080
member IPVS-PORTS 172.16.0.1,tcp:30080
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server IPv4 mark 3 rr
virtual server 10.9.9.1:30080/tcp rr
virtual server 172.16.0.1:30080/tcp rr
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of IPv4 mark 3 weight 1
real server 10.0.0.1:8080 of 10.9.9.1:30080/tcp weight 1
real server 10.0.0.1:8080 of 172.16.0.1:30080/tcp weight 1
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"a Local ClusterIP has one face", kube(backends(near, far), local(VIP{Addr: vip, Kind: ClusterIP})), marked(3), `
member IPVS-IPS 192.0.2.1
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member CLUSTER-IP 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"a Local ClusterIP without a backend of this node drops", kube(backends(far), local(VIP{Addr: vip, Kind: ClusterIP})), marked(3), `
member IPVS-IPS 192.0.2.1
member NO-LOCAL 192.0.2.1,tcp:80
member CLUSTER-IP 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
address 192.0.2.1
note no-local: 192.0.2.1:80/tcp has no backend on this node, and its traffic policy is Local: clients are dropped
`},
		{"Local without a mark", kube(backends(near, far), local(VIP{Addr: vip})), Facts{}, `
member IPVS-IPS 192.0.2.1
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member LOAD-BALANCER 192.0.2.1,tcp:80
member LOAD-BALANCER-LOCAL 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
note failed: 192.0.2.1:80/tcp: all marks are in use, so clients inside are served as those outside are
`},
		{"a health check port on which the box does not answer", kube(func(s *Service, p *Port) { s.HealthCheck.Port, p.Backends = 32000, nil }, VIP{Addr: netip.MustParseAddr("2001:db8::1")}), Facts{HealthPorts: map[uint16]bool{32001: true}}, `
member IPVS-IPS 2001:db8::1
member LOAD-BALANCER 2001:db8::1,tcp:80
member IPVS-PORTS 2001:db8::1,tcp:80
virtual server [2001:db8::1]:80/tcp rr
address 2001:db8::1
note no-backends: [2001:db8::1]:80/tcp has no IPv6 backend: clients are refused
`},
		{"a health check port of the families that there are", kube(func(s *Service, p *Port) { s.HealthCheck.Port, p.Backends = 32000, nil }, VIP{Addr: netip.MustParseAddr("2001:db8::1")}), Facts{}, `
member IPVS-IPS 2001:db8::1
member LOAD-BALANCER 2001:db8::1,tcp:80
member HEALTH-CHECK-NODE-PORT IPv6 32000
member IPVS-PORTS 2001:db8::1,tcp:80
virtual server [2001:db8::1]:80/tcp rr
address 2001:db8::1
note no-backends: [2001:db8::1]:80/tcp has no IPv6 backend: clients are refused
`},
		{"source ranges are for LoadBalancers, and the box is in one", restrictedTo("203.0.113.0/24", "10.9.0.0/16")(RangesLoadBalancer, VIP{Addr: vip}, VIP{Addr: netip.MustParseAddr("192.0.2.2"), Kind: ClusterIP}), Facts{HostAddrs: node}, `
member IPVS-IPS 192.0.2.1
member IPVS-IPS 192.0.2.2
member LOAD-BALANCER-SOURCE-CIDR 192.0.2.1,tcp:80,10.9.0.0/16
member LOAD-BALANCER-SOURCE-CIDR 192.0.2.1,tcp:80,203.0.113.0/24
member LOAD-BALANCER-SOURCE-IP 192.0.2.1,tcp:80,192.0.2.1
member LOAD-BALANCER-FW 192.0.2.1,tcp:80
member LOOP-BACK 10.0.0.1,tcp:8080,10.0.0.1
member LOAD-BALANCER 192.0.2.1,tcp:80
member CLUSTER-IP 192.0.2.2,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.2,tcp:80
virtual server 192.0.2.1:80/tcp rr
virtual server 192.0.2.2:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
real server 10.0.0.1:8080 of 192.0.2.2:80/tcp weight 1
address 192.0.2.1
address 192.0.2.2
`},
		{"source ranges of the other family close it", restrictedTo("203.0.113.0/24")(RangesLoadBalancer, VIP{Addr: netip.MustParseAddr("2001:db8::1")}), Facts{}, `
member IPVS-IPS 2001:db8::1
member LOAD-BALANCER-FW 2001:db8::1,tcp:80
member LOAD-BALANCER 2001:db8::1,tcp:80
member IPVS-PORTS 2001:db8::1,tcp:80
virtual server [2001:db8::1]:80/tcp rr
real server [fd00::1]:8080 of [2001:db8::1]:80/tcp weight 1
address 2001:db8::1
note closed-family: no source range is IPv6, so no client may connect to [2001:db8::1]:80/tcp
`},
		{"source ranges for all kinds", restrictedTo("203.0.113.0/24")(RangesOutside, VIP{Addr: vip, Kind: ExternalIP}, all4), onEth0, `
member IPVS-IPS 192.0.2.1
member LOAD-BALANCER-SOURCE-CIDR 10.9.9.1,tcp:30080,203.0.113.0/24
member LOAD-BALANCER-SOURCE-CIDR 192.0.2.1,tcp:80,203.0.113.0/24
member LOAD-BALANCER-FW 10.9.9.1,tcp:30080
member LOAD-BALANCER-FW 192.0.2.1,tcp:80
member EXTERNAL-IP 192.0.2.1,tcp:80
member NODE-PORTS 10.9.9.1,tcp:30080
member IPVS-PORTS 10.9.9.1,tcp:30080
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 10.9.9.1:30080/tcp rr
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 10.9.9.1:30080/tcp weight 1
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
		{"a source range of everybody restricts nobody", restrictedTo("203.0.113.0/24", "0.0.0.0/0")(RangesLoadBalancer, VIP{Addr: vip}), Facts{}, `
member IPVS-IPS 192.0.2.1
member LOAD-BALANCER 192.0.2.1,tcp:80
member IPVS-PORTS 192.0.2.1,tcp:80
virtual server 192.0.2.1:80/tcp rr
real server 10.0.0.1:8080 of 192.0.2.1:80/tcp weight 1
address 192.0.2.1
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), planned(tt.svc, tt.facts)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestSourceRangesMatchGivenAddressesOfTheBox(t *testing.T) {
	box := map[netip.Addr]string{netip.MustParseAddr("10.9.0.1"): "cni0", netip.MustParseAddr("192.168.0.2"): "eth0"}
	for _, tt := range []struct {
		ranges, self string
		admitted     bool
	}{
		{"10.9.0.0/16", "192.168.0.2", false},
		{"192.168.0.0/24", "192.168.0.2", true},
		{"10.9.0.0/16", "fd00::2", true}, // none of the family is given
	} {
		svc := restrictedTo(tt.ranges)(RangesLoadBalancer, VIP{Addr: vip})
		svc.Self = []netip.Addr{netip.MustParseAddr(tt.self)}
		if got := strings.Contains(planned(svc, Facts{HostAddrs: box}), "LOAD-BALANCER-SOURCE-IP"); got != tt.admitted {
			t.Errorf("ranges %s, the box is %s: admitted %v", tt.ranges, tt.self, got)
		}
	}
}
