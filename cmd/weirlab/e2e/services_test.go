package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// serviceStories are claims about Services of a real API server, on the site of the conformance checks. Kubernetes does not
// promise all of them, so they have no numbers.
var serviceStories = []claim{
	{name: "a UDP Service is deleted under a flow", run: func(k *kubeKit) {
		web := kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), ports("53/udp"))
		k.given(web, kubeEndpoints("web", "R1", ports("53/udp")))
		k.want(outside, "udp "+lbIP+":53", "R1 masq")
		flow := k.flow(outside, lbIP+":53")
		defer flow.close()
		k.eventually("the flow is answered by R1", func() bool { return flow.asks() == "R1" })
		k.without(web)
		k.eventually("nothing answers the flow", func() bool { return flow.asks() == "" })
		k.wantEverywhere("udp "+lbIP+":53", "dropped or unreachable or refused") // a UDP socket ignores that a net is unreachable
		k.eventually("conntrack has no entry of the flow", func() bool {         // it goes after the virtual server
			flow.asks() // conntrack forgets a silent flow
			return k.c.box.Must(k.t, "sh", "-c", "conntrack -L -p udp --orig-dst "+lbIP+" 2>/dev/null | grep 10.180.0.1 || true") == ""
		})
		// Another Service at the address gets the same flow.
		k.given(kubeService("other", clusterIP(svcIP), loadBalancer(lbIP), ports("53/udp")), kubeEndpoints("other", "R2", ports("53/udp")))
		k.eventually("the flow is answered by R2", func() bool { return flow.asks() == "R2" })
	}},
	{name: "a NodePort of UDP with externalTrafficPolicy Local has the local endpoints, and the client's address", run: func(k *kubeKit) {
		udp := ports("53/udp")
		k.given(kubeService("web", clusterIP(svcIP), udp, nodePort(30001), externalLocal), kubeEndpoints("web", "L1 R1 R2", udp))
		for _, addr := range []string{nodeAddr, altAddr} {
			k.want(outside, "udp "+addr+":30001", "L1 keep")
		}
		if set := k.setMembers("KUBE-NODE-PORTS-LOCAL"); strings.Count(set, "30001") < 2 {
			k.fault("KUBE-NODE-PORTS-LOCAL has %q", set)
		}
		k.given(kubeEndpoints("web", "R1 R2", udp))
		k.want(outside, "udp "+nodeAddr+":30001", "dropped")
	}},
	{name: "annotations select the scheduler and weights", run: func(k *kubeKit) {
		web := []option{clusterIP(svcIP), loadBalancer(lbIP), annotated("scheduler", "wrr")}
		endpoints := kubeEndpoints("web", "L1 R1")
		k.given(kubeService("web", append(web, annotated("weights", "node/other=3, node/"+nodeName+"=1"))...), endpoints)
		k.want(outside, atLB, "L1 R1 masq")
		k.wantSpread(outside, atLB, map[string]int{"L1": 10, "R1": 30})
		k.given(kubeService("web", append(web, annotated("weights", "node/other=0"))...))
		k.want(outside, atLB, "L1 masq")
		k.given(kubeService("web", append(web, annotated("weights", "node/other=1, node/"+nodeName+"=1"))...))
		k.want(outside, atLB, "L1 R1 masq")
		k.wantSpread(outside, atLB, map[string]int{"L1": 20, "R1": 20})
	}},
	{name: "another bit of the mark masquerades", options: &options{masqueradeBit: 20}, run: func(k *kubeKit) {
		k.given(everything(), kubeEndpoints("web", "L1 R1"))
		for _, at := range []string{atLB, atExt, atNode} {
			k.want(outside, at, "L1 R1 masq")
		}
		k.want(pod, atSvc, "L1 R1 keep")
		if rules := k.rules(); !strings.Contains(rules, "100000") || strings.Contains(rules, "0x4000") || strings.Contains(rules, "0x00004000") {
			k.fault("the rules have another mark than 0x100000:\n%s", rules)
		}
	}},
}

// setMembers lists a set of weir, by the program of its owner.
func (k *kubeKit) setMembers(name string) string {
	if inNFTables(k.engine) {
		return k.c.box.Must(k.t, "nft", "list", "set", "ip", "weir", name)
	}
	return k.c.box.Must(k.t, "ipset", "list", name)
}

func (k *kubeKit) rules() string {
	if inNFTables(k.engine) {
		return k.c.box.Must(k.t, "nft", "list", "table", "ip", "weir")
	}
	return k.c.box.Must(k.t, "iptables-save")
}

// wantSpread claims how many of the visits each server gets. Their sum is a multiple of a round.
func (k *kubeKit) wantSpread(who client, target string, want map[string]int) {
	k.t.Helper()
	network, addr, _ := strings.Cut(target, " ")
	n := 0
	for _, times := range want {
		n += times
	}
	got := map[string]int{}
	for _, v := range k.visitor(who, network, addr)(k.t.Context(), n, visitTime, network, addr) {
		got[v.Server+string(v.End)]++
	}
	if !maps.Equal(got, want) {
		k.fault("%s to %s: %d visits met %v, want %v", who, target, n, got, want)
	}
}

// TestServices puts the stories to IPVS, with each owner of the rules.
func TestServices(t *testing.T) {
	t.Parallel()
	c := newConformance(t)
	for _, mode := range []string{nftablesMode, ipvsMode} {
		e := &weirEngine{c: c, mode: mode}
		for _, s := range serviceStories {
			t.Run(fmt.Sprintf("%s: %s", mode, s.name), func(t *testing.T) {
				c.options = cmp.Or(s.options, &options{})
				e.start(t, *c.options)
				defer e.stop(t)
				faults, _ := c.putOne(t, e, s)
				for _, fault := range faults {
					t.Error(fault)
				}
			})
		}
	}
}
