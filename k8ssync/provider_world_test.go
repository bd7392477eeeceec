package k8ssync

import (
	corev1 "k8s.io/api/core/v1"
)

// testBalancer is a Service of type LoadBalancer, with an address in its status
// unless that is empty.
func testBalancer(name, clusterIP, ip string, mode *string) *corev1.Service {
	s := testService(name, clusterIP)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports[0].NodePort = 30080
	if ip != "" {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: (*corev1.LoadBalancerIPMode)(mode)}}
	}
	return s
}
