package k8ssync

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weir/k8ssync/ipam"
	"weir/lb"
)

// BenchmarkAddresses prints how long Services wait for their addresses, and its ratio to
// the two writes of each, one after the other, by the same client at the same server.
func BenchmarkAddresses(b *testing.B) {
	const services = 2000
	for b.Loop() {
		s := newAPIServer(b)
		s.put(testNode("n1", "10.0.0.1"))
		for i := range services {
			s.put(testBalancer(fmt.Sprintf("s%04d", i), fmt.Sprintf("10.97.%d.%d", i>>8, i&0xff), "", nil))
		}
		begin := time.Now()
		p := newBox(b, providerConfig("box1", pool("public", "198.18.0.0/16")), map[string]*apiServer{"prod": s})
		for assigned := uint64(0); assigned < services; time.Sleep(5 * time.Millisecond) {
			p.locked(func() { assigned = p.counters.Assigned }) // Status lists all Services
		}
		took := time.Since(begin)
		p.stop()
		floor := writesAlone(b, services)
		b.ReportMetric(took.Seconds()*1e6/services, "us/address")
		b.ReportMetric(floor.Seconds()*1e6/services, "us/two-writes")
		b.ReportMetric(took.Seconds()/floor.Seconds(), "ratio")
	}
}

// writesAlone returns the time of n claims and statuses, one after the other.
func writesAlone(b *testing.B, n int) time.Duration {
	b.Helper()
	s := newAPIServer(b)
	s.put(testNode("n1", "10.0.0.1"))
	for i := range n {
		s.put(testBalancer(fmt.Sprintf("s%04d", i), fmt.Sprintf("10.97.%d.%d", i>>8, i&0xff), "", nil))
	}
	a, err := readAccess(testCluster(b, s).cfg)
	if err != nil {
		b.Fatal(err)
	}
	with, err := newClient(a, "v", defaultTimeouts)
	if err != nil {
		b.Fatal(err)
	}
	defer with.close()
	home := &Cluster{conn: &connection{session: newSession(with, DefaultAnnotationPrefix)}}
	in := leases{with.claims, "weir-system"}
	begin := time.Now()
	for i := range n {
		addr := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		k := key{"shop", fmt.Sprintf("s%04d", i)}
		holder := ipam.Holder{Service: lb.ServiceID{Source: "prod", Namespace: k.Namespace, Name: k.Name}, UID: "u"}
		lease, err := leaseOf(ipam.Claim{Addr: addr, Holders: []ipam.Holder{holder}}, "weir-system", DefaultAnnotationPrefix)
		if err == nil {
			err = in.put(context.Background(), lease)
		}
		if err != nil {
			b.Fatal(err)
		}
		svc := s.objects["services"][k.Namespace+"/"+k.Name].(*corev1.Service) // only this goroutine writes it
		body := &applied{
			APIVersion: "v1", Kind: "Service", Metadata: appliedMeta{k.Name, k.Namespace, string(svc.UID), svc.ResourceVersion},
			Status: appliedStatus{
				LoadBalancer: &appliedIngress{Ingress: []corev1.LoadBalancerIngress{{IP: addr.String()}}},
				Conditions:   []metav1.Condition{{Type: DefaultAnnotationPrefix + conditionName, Status: "True", Reason: reasonAssigned, Message: addr.String()}},
			},
		}
		if _, err := home.applyStatus(context.Background(), k, body, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}
