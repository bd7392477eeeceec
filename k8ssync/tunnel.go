package k8ssync

import (
	"fmt"
	"slices"

	"weir/lb"
)

// With annotation forward: tunnel, a box outside the cluster sends the packets of a Service
// unchanged to the nodes with endpoints, in IPIP. weir on a node decapsulates them, gives them to a
// pod of the node as those of any client outside, and sends the replies to the client itself. The
// nodes have the VIPs anyway.
//
// weir can't see whether a node decapsulates packets. By allow_annotations the operator confirms
// that all nodes of the cluster do, except those that are excluded from load balancers.

// tunnels decides whether the nodes get packets by tunnels, and notes why not if the annotation
// requests it.
func (t *translator) tunnels() {
	if !t.settings.tunnel {
		return
	}
	if reason := t.refusesTunnel(); reason != "" {
		t.note(t.tunnelReason(), "%sforward tunnel: %s", t.env.cfg.prefix(), reason)
		return
	}
	t.tunnel = !t.env.onNode()
}

// tunnelReason returns the Reason of a Note about tunnels.
func (t *translator) tunnelReason() lb.Reason {
	if t.env.cfg.NoIPVS {
		return lb.NeedsIPVS
	}
	return lb.AnnotationRefused
}

// refusesTunnel returns why the nodes can't get the packets of the Service by tunnels, with the
// solution; "" if they can.
func (t *translator) refusesTunnel() string {
	cfg := t.env.cfg
	other := slices.IndexFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Kind != lb.LoadBalancer })
	six := slices.IndexFunc(t.out.VIPs, func(v lb.VIP) bool { return v.Addr.Is6() })
	switch {
	case cfg.NoIPVS && t.env.onNode():
		return "the kernel of this node has no IPVS, or kernel.mode is netfilter, so it decapsulates no packets: those that edge boxes send to it are lost"
	case cfg.NoIPVS:
		return "the kernel of this box has no IPVS, or kernel.mode is netfilter: the Service is served without tunnels"
	case t.svc.Type != "LoadBalancer":
		return "only a Service of type LoadBalancer can have it"
	case !t.svc.ExternalLocal:
		return "with externalTrafficPolicy Cluster a node could send a connection on to another node: use Local"
	case t.env.onNode() && !cfg.Decapsulates:
		return "this node decapsulates no packets of edge boxes: let the operator set kernel.decapsulate_from"
	case t.env.onNode():
		return ""
	case other >= 0:
		return fmt.Sprintf("only LoadBalancer addresses can have it, and %s is served as %s", t.out.VIPs[other].Addr, t.out.VIPs[other].Kind)
	case six >= 0:
		return fmt.Sprintf("nodes decapsulate IPv4 only, and %s is IPv6: use ipFamilyPolicy SingleStack with IPv4", t.out.VIPs[six].Addr)
	}
	return ""
}
