package k8ssync

import (
	"fmt"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// sliced makes slices of 100 endpoints each, as the controller does.
func sliced(n int) []*slice {
	var out []*slice
	for i := range n {
		if i%100 == 0 {
			out = append(out, &slice{key: key{"shop", fmt.Sprintf("web-%d", i)}, Service: "web", Ports: []slicePort{{"http", "TCP", 8080}}})
		}
		s := out[len(out)-1]
		s.Endpoints = append(s.Endpoints, endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 180, byte(i * 7 >> 8), byte(i * 7)}), Node: fmt.Sprintf("n%d", i%50), Zone: "a",
			Ready: true, Serving: true, Hints: &hints{ForZones: []string{"a"}},
		})
	}
	return out
}

func BenchmarkTranslate(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			svc, from, env := web(), sliced(n), world(onNode())
			svc.ExternalLocal = true
			b.ReportAllocs()
			for b.Loop() {
				if got, ok := translate(svc, from, env); !ok || len(got.Ports[0].Backends) != n {
					b.Fatal(shown(got))
				}
			}
		})
	}
}

func BenchmarkReadSlice(b *testing.B) {
	in := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 100 {
		node, yes := fmt.Sprintf("n%d", i%50), true
		in.Endpoints = append(in.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.180.0.%d", i)}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		if s := readSlice(in); len(s.Endpoints) != 100 {
			b.Fatal(s.Dropped)
		}
	}
}
