package k8ssync

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/lb"
)

// tunnelled returns a Service of one family with annotation forward: tunnel.
func tunnelled() *service {
	svc := web()
	svc.ClusterIPs, svc.Ingress, svc.ExternalIPs = svc.ClusterIPs[:1], svc.Ingress[:1], nil
	svc.ExternalLocal, svc.HealthCheckNodePort = true, 30090
	svc.Annotations = map[string]string{"forward": "tunnel"}
	return svc
}

// TestTunnelsToTheNodes shows that the nodes with endpoints are the backends, by the number of
// these, whichever way an edge box has to the others.
func TestTunnelsToTheNodes(t *testing.T) {
	t.Parallel()
	for _, reach := range []Reach{Pods, NodePorts} {
		cfg := onEdge()
		cfg.Reach, cfg.Annotations = reach, Annotations()
		from := slicing(t, "web-1", "10.180.0.1@n1 ready", "10.180.0.2@n1 ready", "172.16.2.1@n2 ready", "10.180.3.1@n3 ready", "fd00::1@n1 ready")
		got, ok := translate(tunnelled(), []*slice{from}, world(cfg))
		want := []lb.Backend{
			{Addr: netip.MustParseAddrPort("192.168.0.1:80"), Weight: 2, Forward: lb.Tunnel},
			{Addr: netip.MustParseAddrPort("192.168.0.2:80"), Weight: 1, Forward: lb.Tunnel},
		}
		if !ok || !got.Keep || len(got.Notes) > 0 {
			t.Errorf("%s: keeps the client's address: %v, notes %v", reach, got.Keep, got.Notes)
		}
		if d := cmp.Diff(want, got.Ports[0].Backends, exact); d != "" {
			t.Errorf("%s: backends (-want +got):\n%s", reach, d)
		}
	}
}

// TestNodeOfTunnels shows that a node serves its own endpoints as without the annotation.
func TestNodeOfTunnels(t *testing.T) {
	t.Parallel()
	cfg, plain := onNode(), tunnelled()
	cfg.Annotations, cfg.Decapsulates, plain.Annotations = Annotations(), true, nil
	from := []*slice{slicing(t, "web-1", pods...)}
	want, _ := translate(plain, from, world(cfg))
	got, _ := translate(tunnelled(), from, world(cfg))
	if d := cmp.Diff(want, got, exact); d != "" {
		t.Errorf("(-without +with):\n%s", d)
	}
}

func TestRefusedTunnels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		cfg    func() *Config
		change func(*Config, *service)
		reason lb.Reason
		want   string
	}{
		{"no IPVS", onEdge, func(c *Config, _ *service) { c.NoIPVS = true }, lb.NeedsIPVS, "the kernel of this box has no IPVS, or kernel.mode is netfilter"},
		{"a node without IPVS", onNode, func(c *Config, _ *service) { c.NoIPVS, c.Decapsulates = true, true }, lb.NeedsIPVS, "the kernel of this node has no IPVS, or kernel.mode is netfilter, so it decapsulates no packets: those that edge boxes send to it are lost"},
		{"policy Cluster", onEdge, func(_ *Config, s *service) { s.ExternalLocal = false }, lb.AnnotationRefused, "with externalTrafficPolicy Cluster a node could"},
		{"a node without devices", onNode, func(*Config, *service) {}, lb.AnnotationRefused, "this node decapsulates no packets of edge boxes"},
		{"two families", onEdge, func(_ *Config, s *service) { s.ClusterIPs, s.Ingress = web().ClusterIPs, web().Ingress }, lb.AnnotationRefused, "nodes decapsulate IPv4 only, and 2001:db8:7::7 is IPv6"},
		{"an external address", onEdge, func(_ *Config, s *service) { s.ExternalIPs = web().ExternalIPs[:1] }, lb.AnnotationRefused, "only LoadBalancer addresses can have it, and 203.0.113.5 is served as ExternalIP"},
		{"another type", onEdge, func(_ *Config, s *service) { s.Type, s.ExternalIPs = "ClusterIP", web().ExternalIPs[:1] }, lb.AnnotationRefused, "only a Service of type LoadBalancer can have it"},
	} {
		cfg, svc := c.cfg(), tunnelled()
		cfg.Annotations = Annotations()
		c.change(cfg, svc)
		got, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
		if len(got.Notes) != 1 || got.Notes[0].Reason != c.reason || !strings.HasPrefix(got.Notes[0].Text, "weir/forward tunnel: "+c.want) {
			t.Errorf("%s: notes %v, want %s: %s", c.name, got.Notes, c.reason, c.want)
		}
		got.Notes, svc.Annotations = nil, nil
		without, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
		if d := cmp.Diff(without, got, exact); d != "" {
			t.Errorf("%s (-without +with):\n%s", c.name, d)
		}
	}
}

func TestTunnelsIgnoreMasquerade(t *testing.T) {
	t.Parallel()
	cfg, svc := onEdge(), tunnelled()
	cfg.Annotations, svc.Annotations["source-address"] = Annotations(), "masquerade"
	got, _ := translate(svc, []*slice{slicing(t, "web-1", pods...)}, world(cfg))
	if len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0].Text, "weir/source-address masquerade: with forward tunnel") || !got.Keep {
		t.Errorf("keep %v, notes %v", got.Keep, got.Notes)
	}
}
