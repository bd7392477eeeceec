package e2e

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// All kinds and properties of Services occur, in objects that an API server accepts.
func TestRandomServices(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(50) {
		all, again := randomServices(seed, 30), randomServices(seed, 30)
		ports := map[int32]bool{}
		for i, s := range all {
			if s.String() != again[i].String() {
				t.Fatalf("seed %d makes two different Services:\n%s\n%s", seed, s, again[i])
			}
			spec := s.spec()
			for _, p := range spec.Ports {
				if p.NodePort != 0 && (ports[p.NodePort] || p.NodePort > 30085) {
					t.Errorf("seed %d: node port %d is in use or not for Services that choose it", seed, p.NodePort)
				}
				ports[p.NodePort] = true
			}
			countProperties(seen, s)
		}
	}
	for _, want := range []string{
		"ClusterIP", "NodePort", "LoadBalancer", "external IPs", "external Local", "internal Local", "affinity", "ranges", "IPv4", "IPv6", "both families",
		"other target port", "two ports", "TCP", "UDP", "Proxy", "no endpoints", "no slice", "unready", "terminating", "hints of zones", "hints of nodes",
	} {
		if seen[want] < 20 {
			t.Errorf("%s: %d times in 1,500 Services", want, seen[want])
		}
	}
}

// countProperties counts the properties of a Service.
func countProperties(seen map[string]int, s *randomService) {
	spec, text := s.spec(), s.String()
	has := map[string]bool{
		string(spec.Type):   true,
		"external IPs":      len(spec.ExternalIPs) > 0,
		"external Local":    spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		"internal Local":    spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		"affinity":          spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		"ranges":            len(spec.LoadBalancerSourceRanges) > 0,
		"IPv4":              spec.IPFamilies[0] == corev1.IPv4Protocol,
		"IPv6":              spec.IPFamilies[0] == corev1.IPv6Protocol,
		"both families":     len(spec.IPFamilies) == 2,
		"two ports":         len(spec.Ports) == 2,
		"Proxy":             strings.Contains(text, "ipMode: Proxy"),
		"no slice":          len(s.objects) == 1,
		"no endpoints":      s.endpoints[false]+s.endpoints[true] == 0,
		"unready":           strings.Contains(text, "ready: false"),
		"terminating":       strings.Contains(text, "terminating: true"),
		"hints of zones":    strings.Contains(text, "forZones"),
		"hints of nodes":    strings.Contains(text, "forNodes"),
		"TCP":               spec.Ports[0].Protocol == corev1.ProtocolTCP,
		"UDP":               spec.Ports[0].Protocol == corev1.ProtocolUDP,
		"other target port": spec.Ports[0].Port != spec.Ports[0].TargetPort.IntVal,
	}
	for property, there := range has {
		if there {
			seen[property]++
		}
	}
}

func TestDifferentialSeeds(t *testing.T) {
	for text, want := range map[string]seedRange{
		"17": {17, 17, 30}, "1-50": {1, 50, 30}, "4/10": {4, 4, 10},
	} {
		if got, err := parseSeeds(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	if _, err := parseSeeds("all"); err == nil {
		t.Error("\"all\" is accepted")
	}
}

func TestDifferentialGoesOnAfterPassedSeeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soak", "seeds.txt")
	record, err := readSeeds(path)
	if err != nil || len(record.passed) > 0 {
		t.Fatalf("without a file: %+v, %v", record, err)
	}
	for name, passed := range map[string]bool{"seed 1, 30 Services": true, "seed 2, 30 Services": false, "seed 3, 10 Services": true} {
		if err := record.add(name, passed); err != nil {
			t.Fatal(err)
		}
	}
	record, err = readSeeds(path)
	if want := map[string]bool{"seed 1, 30 Services": true, "seed 3, 10 Services": true}; err != nil || !maps.Equal(record.passed, want) {
		t.Errorf("%v, %v, want %v", record.passed, err, want)
	}
	if want := map[string]bool{"seed 2, 30 Services": true}; !maps.Equal(record.failed, want) {
		t.Errorf("failed: %v, want %v", record.failed, want)
	}
}

// The comparison ignores the choice of affinity among the backends of the Service, and nothing else.
func TestResultsAgree(t *testing.T) {
	plain := &randomService{}
	sticky := &randomService{twin: plain}
	result := func(answers, ends string) probed {
		r := probed{map[string]bool{}, map[string]bool{}}
		for a := range strings.SplitSeq(answers, ",") {
			if a != "" {
				r.answers[a] = true
			}
		}
		if ends != "" {
			r.ends[ends] = true
		}
		return r
	}
	for _, tt := range []struct {
		name              string
		service           *randomService
		a, b, twins, ends string
		want              bool
	}{
		{name: "the same set", service: plain, a: "L1 keep,R1 keep", b: "R1 keep,L1 keep", want: true},
		{name: "a smaller set", service: plain, a: "L1 keep", b: "R1 keep,L1 keep"},
		{name: "another source", service: plain, a: "L1 keep", b: "L1 masq"},
		{name: "an end more", service: plain, a: "L1 keep", b: "L1 keep", ends: "dropped"},
		{name: "another choice", service: sticky, a: "L1 keep", b: "R1 keep", twins: "L1 keep,R1 keep", want: true},
		{name: "a choice that the other set lacks", service: sticky, a: "L1 keep", b: "R1 keep", twins: "R1 keep"},
		{name: "two choices", service: sticky, a: "L1 keep,R1 keep", b: "R1 keep", twins: "L1 keep,R1 keep"},
	} {
		p := probe{service: tt.service, from: pod}
		a := engineResults{"weir", map[probe]probed{p: result(tt.a, ""), {plain, 0, pod}: {}}}
		b := engineResults{"kube-proxy", map[probe]probed{p: result(tt.b, tt.ends), {plain, 0, pod}: result(tt.twins, "")}}
		if !tt.service.sticky() {
			a.of[p], b.of[p] = result(tt.a, ""), result(tt.b, tt.ends)
		}
		if got := agrees(p, a, b); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// visitsWithout is large enough for the stated probability, and not larger than it must be.
func TestVisitsWithout(t *testing.T) {
	for n, want := range map[int]int{1: 24, 2: 40, 3: 57} {
		if got := visitsWithout(n); got != want {
			t.Errorf("%d backends: %d visits, want %d", n, got, want)
		}
	}
}
