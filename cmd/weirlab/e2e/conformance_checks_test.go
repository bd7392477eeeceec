package e2e

// The checks, in the order of their numbers. A name states the expected behaviour.

// The VIPs and ports that most checks use.
const (
	svcIP   = "172.30.0.41"
	freshIP = "172.30.0.45" // that of an earlier check would refuse too, while its connections drain
	svcIP6  = "fd00:172:30::41"
	extIP   = "50.60.70.81"
	lbIP    = "1.2.3.4"
	lbIP2   = "5.6.7.8"
	lbIP6   = "2001:db8:1::4"
	atSvc   = "tcp " + svcIP + ":80"
	atFresh = "tcp " + freshIP + ":80"
	atExt   = "tcp " + extIP + ":80"
	atLB    = "tcp " + lbIP + ":80"
	atLB2   = "tcp " + lbIP2 + ":80"
	atNode  = "tcp " + nodeAddr + ":30001"
	atAlt   = "tcp " + altAddr + ":30001"
	atNode6 = "tcp [" + nodeAddr6 + "]:30001"
)

// everything is a Service with all four kinds of VIPs.
func everything(more ...option) object {
	return kubeService("web", append([]option{clusterIP(svcIP), externalIPs(extIP), loadBalancer(lbIP), nodePort(30001)}, more...)...)
}

// noWeights is the reason why check 63 is not put to rules.
const noWeights = "rules have no weights"

// othersDrop is the reason why checks 82 and 83 are not put to nftables.
const othersDrop = "in nf_tables a packet needs the consent of every table; weir doctor names the chain that drops it"

var claims = []claim{
	{number: 1, name: "a pod reaches a ClusterIP", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
		k.want(pod, atSvc, "R1 keep")
	}},
	{number: 2, name: "a backend reaches itself through its own ClusterIP", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "L1"))
		k.want("L1", atSvc, "L1 masq")
	}},
	{number: 3, name: "a ClusterIP has all its backends", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "L1 R1"))
		k.want(pod, atSvc, "L1 R1 keep")
	}},
	{number: 4, name: "a port has another target port", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), ports("443:8443/tcp")), kubeEndpoints("web", "L1 R1", ports("443:8443/tcp")))
		k.want(pod, "tcp "+svcIP+":443", "L1 R1 keep")
	}},
	{number: 5, name: "one port number, three protocols, three targets", run: func(k *kubeKit) {
		all := ports("53:5353/tcp", "53:53/udp", "53:53/sctp")
		k.given(kubeService("dns", clusterIP(svcIP), all), kubeEndpoints("dns", "R1", ports("53:5353/tcp", "53:53/udp")), kubeSlice("more", "dns", "S1", ports("53:53/sctp")))
		k.want(pod, "tcp "+svcIP+":53", "R1 keep")
		k.want(pod, "udp "+svcIP+":53", "R1 keep")
		k.want(sctpPod, "sctp "+svcIP+":53", "S1 keep")
	}},
	{number: 6, name: "another protocol than the Service's is refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
		k.want(pod, atSvc, "R1 keep")
		k.wantEverywhere("udp "+svcIP+":80", "refused")
	}},
	{number: 7, name: "another port than the Service's is refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"),
			kubeService("other", clusterIP("172.30.0.42"), ports("443:8443/tcp")), kubeEndpoints("other", "R1", ports("443:8443/tcp")))
		k.want(pod, "tcp 172.30.0.42:443", "R1 keep")
		k.wantEverywhere("tcp "+svcIP+":443", "refused")
	}},
	{number: 8, name: "without endpoints every client is refused at once", run: func(k *kubeKit) {
		// A daemon on the port of the NodePort would answer if nothing refused.
		defer k.c.daemonOnNode(k.t, 30001)()
		k.wantServer(outside, atNode, "daemon")
		k.given(everything(), kubeEndpoints("web", "R1"))
		k.want(outside, atNode, "R1 masq")
		k.without(kubeEndpoints("web", "R1"))
		k.wantAll(everywhere, []string{atSvc, atExt, atLB, atNode}, "refused")
	}},
	{number: 9, name: "source ranges don't apply to a ClusterIP", run: ranged(func(k *kubeKit) { k.want(pod, atSvc, "R1 keep") })},
	{number: 10, name: "with source ranges, an admitted client reaches the NodePort", run: ranged(func(k *kubeKit) { k.want(outside, atNode, "R1 masq") })},
	{number: 11, name: "source ranges don't apply to NodePorts", run: ranged(func(k *kubeKit) { k.want(blocked, atNode, "R1 masq") })},
	{number: 12, name: "source ranges admit clients in them", run: ranged(func(k *kubeKit) {
		k.want(outside, atLB, "R1 masq")
		k.want(outside, atLB2, "R1 masq")
	})},
	{number: 13, name: "source ranges drop clients outside them", run: ranged(func(k *kubeKit) {
		k.wantAll([]client{blocked}, []string{atLB, atLB2}, "dropped")
	})},
	{number: 14, name: "source ranges drop pods outside them", run: ranged(func(k *kubeKit) {
		k.wantAll([]client{pod, "L4"}, []string{atLB, atLB2}, "dropped")
	})},
	{number: 15, name: "source ranges admit the node if it is in them", run: ranged(func(k *kubeKit) {
		k.want(itself, atLB, "R1 masq")
		k.want(itself, atLB2, "R1 masq")
	})},
	{number: 16, name: "a process of the node that is bound to the VIP is the node", run: ranged(func(k *kubeKit) {
		k.wantFrom(k.c.relay.visitor("", lbIP), itself, atLB, "R1 masq", nil)
	})},
	{number: 17, name: "source ranges without the node drop it, on that port only", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), ranges(outsider+"/32")), kubeEndpoints("web", "R1"),
			kubeService("open", clusterIP("172.30.0.42"), loadBalancer(lbIP), ports("443:8443/tcp")), kubeEndpoints("open", "R1", ports("443:8443/tcp")))
		k.want(outside, atLB, "R1 masq")
		k.want(itself, atLB, "dropped")
		k.want(itself, "tcp "+lbIP+":443", "R1 masq")
	}},
	{number: 18, name: "a NodePort has all backends, IPv4 and IPv6", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP, svcIP6), nodePort(30001)), kubeEndpoints("web", "L1 R1"), kubeEndpoints6("web", "L1 R1"))
		for _, who := range []client{outside, itself} {
			k.want(who, atNode, "L1 R1 masq")
			k.want(who, atNode6, "L1 R1 masq")
		}
		k.want(pod, atSvc, "L1 R1 keep")
		k.want(pod, "tcp ["+svcIP6+"]:80", "L1 R1 keep")
	}},
	{number: 19, name: "a NodePort is on every address of the node", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), nodePort(30001)), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atAlt, "L1 R1 masq")
	}},
	{number: 20, name: "nodePortAddresses are the only ones with NodePorts", options: &options{nodePortAddresses: []string{"192.168.0.0/24"}}, run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), nodePort(30001)), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atNode, "L1 R1 masq")
		k.wantEverywhere(atAlt, "refused")
	}},
	{number: 21, name: "no NodePort on localhost", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP, svcIP6), nodePort(30001)), kubeEndpoints("web", "L1 R1"), kubeEndpoints6("web", "L1 R1"))
		k.want(itself, atNode, "L1 R1 masq")
		k.wantAll([]client{itself}, []string{"tcp 127.0.0.1:30001", "tcp [::1]:30001"}, "refused")
	}},
	{number: 22, name: "no NodePort on VIPs, whatever nodePortAddresses cover", options: &options{nodePortAddresses: []string{"192.168.0.0/24", "172.30.0.0/16", "1.2.3.0/24"}}, run: func(k *kubeKit) {
		k.given(everything(), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atNode, "L1 R1 masq")
		k.wantAll(everywhere, []string{"tcp " + svcIP + ":30001", "tcp " + lbIP + ":30001"}, "refused")
	}},
	{number: 23, name: "externalTrafficPolicy Local: a pod reaches all by the ClusterIP", run: external("Local", func(k *kubeKit) { k.want(pod, atSvc, "L1 R1 keep") })},
	{number: 24, name: "externalTrafficPolicy Local: a pod reaches all by the external IP", run: external("Local", func(k *kubeKit) { k.want(pod, atExt, "L1 R1 keep") })},
	{number: 25, name: "externalTrafficPolicy Local: a client outside reaches local ones by the external IP", run: external("Local", func(k *kubeKit) { k.want(outside, atExt, "L1 keep") })},
	{number: 26, name: "externalTrafficPolicy Local: a pod reaches all by the LoadBalancer's", run: external("Local", func(k *kubeKit) { k.want(pod, atLB, "L1 R1 keep") })},
	{number: 27, name: "externalTrafficPolicy Local: a client outside reaches local ones by the LoadBalancer's", run: external("Local", func(k *kubeKit) { k.want(outside, atLB, "L1 keep") })},
	{number: 28, name: "externalTrafficPolicy Local: a pod reaches all by the NodePort", run: external("Local", func(k *kubeKit) { k.want(pod, atNode, "L1 R1 keep") })},
	{number: 29, name: "externalTrafficPolicy Local: a client outside reaches local ones by the NodePort", run: external("Local", func(k *kubeKit) { k.want(outside, atNode, "L1 keep") })},
	{number: 30, name: "externalTrafficPolicy Cluster: every client reaches all, masqueraded", run: external("Cluster", func(k *kubeKit) {
		k.want(pod, atSvc, "L1 R1 keep")
		for _, at := range []string{atExt, atLB, atNode} {
			k.want(pod, at, "L1 R1 masq")
			k.want(outside, at, "L1 R1 masq")
		}
	})},
	{number: 31, name: "clients that are no pods are masqueraded to a ClusterIP", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "L1 R1"))
		k.want(pod, atSvc, "L1 R1 keep")
		k.want(itself, atSvc, "L1 R1 masq")
		k.want(outside, atSvc, "L1 R1 masq")
	}},
	{number: 32, name: "externalTrafficPolicy Local: the node reaches all", run: external("Local", func(k *kubeKit) {
		k.want(itself, atSvc, "L1 R1 masq")
		k.want(itself, atLB, "L1 R1 masq")
		k.want(outside, atSvc, "L1 R1 masq")
	})},
	{number: 33, name: "internalTrafficPolicy Local applies to the ClusterIP only", run: func(k *kubeKit) {
		k.given(everything(internalLocal), kubeEndpoints("web", "L1 R1"))
		k.want(pod, atSvc, "L1 keep")
		k.want(itself, atSvc, "L1 masq")
		k.want(outside, atSvc, "L1 masq")
		for _, who := range []client{pod, itself, outside} {
			k.want(who, atNode, "L1 R1 masq")
			k.want(who, atLB, "L1 R1 masq")
		}
	}},
	{number: 34, name: "without a detector of local traffic a ClusterIP masquerades only the node", options: &options{noDetector: true}, run: external("Local", func(k *kubeKit) {
		k.wantAll([]client{pod, outside, blocked}, []string{atSvc}, "L1 R1 keep")
		k.want(itself, atSvc, "L1 R1 masq")
		k.wantAll([]client{pod, outside}, []string{atLB, atNode, atExt}, "L1 keep")
	})},
	{number: 35, name: "masqueradeAll masquerades pods to ClusterIPs", options: &options{masqueradeAll: true}, run: func(k *kubeKit) {
		k.given(everything(), kubeEndpoints("web", "L1 R1"))
		k.want(pod, atSvc, "L1 R1 masq")
		k.given(everything(externalLocal))
		k.want(pod, atSvc, "L1 R1 masq")
		k.given(everything(internalLocal))
		k.want(pod, atSvc, "L1 masq")
	}},
	{number: 36, name: "internalTrafficPolicy Cluster: all", run: internal(false, "L1 R1 R2", "L1 R1 R2 keep")},
	{number: 37, name: "internalTrafficPolicy Local: the local one", run: internal(true, "L1 R1 R2", "L1 keep")},
	{number: 38, name: "internalTrafficPolicy Local: both local ones", run: internal(true, "L1 L2 R1", "L1 L2 keep")},
	{number: 39, name: "internalTrafficPolicy Local without a local one: dropped", run: internal(true, "R1 R2", "dropped")},
	{number: 40, name: "internalTrafficPolicy Local without any: refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), internalLocal), kubeEndpoints("web", "R1"))
		k.want(pod, atSvc, "dropped")
		k.without(kubeEndpoints("web", "R1"))
		k.wantEverywhere(atSvc, "refused")
	}},
	{number: 41, name: "terminating endpoints get nothing while others are ready", run: terminating("L1 L2 R5 L3:terminating L4:gone", "L1 L2 R5 keep", "L1 L2 R5 masq")},
	{number: 42, name: "only terminating endpoints: those that still serve", run: terminating("L2:terminating L3:terminating R5:terminating L4:gone", "L2 L3 R5 keep", "L2 L3 R5 masq")},
	{number: 43, name: "only a terminating endpoint elsewhere: it serves", run: terminating("R5:terminating L4:gone", "R5 keep", "R5 masq")},
	{number: 44, name: "only endpoints that don't serve: refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(freshIP), loadBalancer(lbIP)), kubeEndpoints("web", "L4:gone R4:unready"))
		k.want(pod, atFresh, "refused")
		k.want(outside, atLB, "refused")
	}},
	{number: 45, name: "endpoints are gone: refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "L1:terminating"))
		k.want(pod, atSvc, "L1 keep")
		k.without(kubeEndpoints("web", "L1"))
		k.wantAll(everywhere, []string{atSvc, atLB}, "refused")
	}},
	{number: 46, name: "externalTrafficPolicy Local: ready local endpoints before terminating ones", run: terminatingLocal("L1 L2 L3:terminating R5", "L1 L2 R5 keep", "L1 L2 keep")},
	{number: 47, name: "externalTrafficPolicy Local: terminating local endpoints before remote ones", run: terminatingLocal("L2:terminating L3:terminating R5", "R5 keep", "L2 L3 keep")},
	{number: 48, name: "externalTrafficPolicy Local: only a terminating remote endpoint: clients outside are dropped", run: terminatingLocal("L4:gone R5:terminating", "R5 keep", "dropped")},
	{number: 49, name: "externalTrafficPolicy Local: none serves: refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(freshIP), loadBalancer(lbIP), externalLocal), kubeEndpoints("web", "L4:gone R4:unready"))
		k.wantAll(everywhere, []string{atFresh, atLB}, "refused")
		k.without(kubeEndpoints("web", "L4"))
		k.wantAll(everywhere, []string{atFresh, atLB}, "refused")
	}},
	{number: 50, name: "the health check port answers 200 with the number of local endpoints, and closes with the Service", run: func(k *kubeKit) {
		web := kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), externalLocal, healthCheckPort(30010))
		at := []string{nodeAddr + ":30010", altAddr + ":30010", "[" + nodeAddr6 + "]:30010"}
		for n, endpoints := range []string{"R1 R2", "L1 R1", "L1 L2 R1", "L1 L2 L3 R1"} {
			k.given(web, kubeEndpoints("web", endpoints))
			for _, addr := range at {
				k.wantHealth(outside, addr, map[bool]int{true: 503, false: 200}[n == 0], n)
			}
		}
		k.wantHealth(pod, at[0], 200, 3)
		k.without(web)
		for _, addr := range at[:2] {
			k.wantEverywhere("tcp "+addr, "refused")
		}
		k.wantAll([]client{outside, pod, itself}, []string{"tcp " + at[2]}, "refused")
	}},
	{number: 51, name: "the health check port answers 503 while local endpoints terminate, and traffic still gets through", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), externalLocal, healthCheckPort(30010)), kubeEndpoints("web", "L1:terminating L2:terminating"))
		k.wantHealth(outside, nodeAddr+":30010", 503, 0)
		k.want(outside, atLB, "L1 L2 keep")
	}},
	{number: 52, name: "the health check port answers 503 without local endpoints, and is not open on VIPs", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), externalLocal, healthCheckPort(30010)), kubeEndpoints("web", "R1"))
		k.wantHealth(outside, nodeAddr+":30010", 503, 0)
		k.wantEverywhere("tcp "+lbIP+":30010", "refused")
	}},
	{number: 53, name: "ipMode Proxy leaves the LoadBalancer's address to others; VIP and none don't", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "R1"))
		k.want(outside, atLB, "R1 masq")
		k.given(kubeService("web", clusterIP(svcIP), loadBalancerMode(lbIP, "VIP")))
		k.want(outside, atLB, "R1 masq")
		k.given(kubeService("web", clusterIP(svcIP), loadBalancerMode(lbIP, "Proxy")))
		k.want(outside, atLB, "unreachable")
	}},
	{number: 54, name: "of external IPs those of the Service's family are served", run: func(k *kubeKit) {
		const extIP6 = "2001:db8:50::81"
		at := []string{atExt, "tcp [" + extIP6 + "]:80"}
		four, six := []client{outside, blocked, pod, itself, "L4"}, []client{outside, blocked, pod, itself, "L4"}
		k.given(kubeService("web", clusterIP(svcIP), externalIPs(extIP, extIP6)), kubeEndpoints("web", "R1"), kubeEndpoints6("web", "R1"))
		k.want(outside, at[0], "R1 masq")
		k.wantAll(six, at[1:], "unreachable")
		k.without(kubeService("web", clusterIP(svcIP)))
		k.given(kubeService("six", clusterIP(svcIP6), externalIPs(extIP, extIP6)), kubeEndpoints6("six", "R1"))
		k.want(outside, at[1], "R1 masq")
		k.wantAll(four, at[:1], "unreachable")
		k.without(kubeService("six", clusterIP(svcIP6)))
		// Both are served where the Service has both families.
		k.given(kubeService("web", clusterIP(svcIP, svcIP6), externalIPs(extIP, extIP6)))
		k.want(outside, at[0], "R1 masq")
		k.want(outside, at[1], "R1 masq")
	}},
	{number: 55, name: "an external IP without endpoints is refused", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), externalIPs(extIP)))
		k.wantEverywhere(atExt, "refused")
	}},
	{number: 56, name: "externalTrafficPolicy Local: exactly the local endpoint, and the client's address", run: func(k *kubeKit) {
		k.given(everything(externalLocal), kubeEndpoints("web", "L1 R1 R2 R3"))
		for _, at := range []string{atExt, atNode, atLB} {
			k.want(outside, at, "L1 keep")
		}
	}},
	{number: 57, name: "NodePorts of one family are not on the other's addresses; SCTP has them on all", run: func(k *kubeKit) {
		k.given(kubeService("four", clusterIP(svcIP), nodePort(30001)), kubeEndpoints("four", "R1"),
			kubeService("six", clusterIP(svcIP6), nodePort(30002)), kubeEndpoints6("six", "R1"),
			kubeService("sctp", clusterIP("172.30.0.43"), ports("53/sctp"), nodePort(30003)), kubeEndpoints("sctp", "S1", ports("53/sctp")),
			kubeService("local", clusterIP("172.30.0.44"), ports("53/sctp"), nodePort(30004), externalLocal), kubeEndpoints("local", "S1 S2", ports("53/sctp")))
		k.want(outside, atNode, "R1 masq")
		k.wantAll([]client{outside, pod, itself}, []string{atNode6}, "refused")
		k.want(outside, "tcp ["+nodeAddr6+"]:30002", "R1 masq")
		k.wantEverywhere("tcp "+nodeAddr+":30002", "refused")
		k.want(sctpOutside, "sctp "+nodeAddr+":30003", "S1 masq")
		k.want(sctpOutside, "sctp "+altAddr+":30003", "S1 masq")
		k.want(sctpOutside, "sctp "+nodeAddr+":30004", "S2 keep")
	}},
	{number: 58, name: "a foreign DNAT rule for the same port does not catch a Service's packets", run: func(k *kubeKit) {
		k.given(everything(), kubeEndpoints("web", "R1"))
		k.want(outside, atLB, "R1 masq")
		undo := k.c.onNode(k.t, "iptables -t nat -A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.180.2.4:80", "iptables -t nat -D PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.180.2.4:80")
		defer undo()
		k.want(outside, atLB, "R1 masq")
		k.want(outside, atExt, "R1 masq")
		k.want(pod, atSvc, "R1 keep")
	}},
	{number: 59, name: "a client with affinity stays, moves when its endpoint goes, and spreads without", run: checkAffinity},
	{number: 60, name: "foreign virtual servers stay, and so do excluded ones that a Service wants", options: &options{excludeCIDRs: []string{"10.250.0.0/16"}}, run: checkForeign},
	{number: 61, name: "a Service that loses a port keeps the VIP, and one that loses all does not", run: checkPorts},
	{number: 62, name: "a TCP connection outlives the removal of its endpoint, new ones go elsewhere", run: checkGraceful},
	{number: 63, name: "a weight that was removed by hand comes back", lacks: map[string]string{iptablesMode: noWeights, netfilterMode: noWeights}, run: checkWeight},
	{number: 64, name: "packets from localhost are never marked", run: checkLocalhost},
	{number: 65, name: "topology hints: the own zone's endpoints", run: hinted("L1:zone=zone-a R1:zone=zone-b R2:zone=zone-a", "L1 R2 keep")},
	{number: 66, name: "topology hints: one endpoint without a hint disables them", run: hinted("L1:zone=zone-a R1:zone=zone-b R2", "L1 R1 R2 keep")},
	{number: 67, name: "topology hints: a node without a zone has all", options: &options{noZone: true}, run: hinted("L1:zone=zone-a R1:zone=zone-b", "L1 R1 keep")},
	{number: 68, name: "topology hints: no endpoint for the own zone: all", run: hinted("R1:zone=zone-b R2:zone=zone-c", "R1 R2 keep")},
	{number: 69, name: "topology hints: only unready ones for the own zone: all", run: hinted("L1:unready,zone=zone-a R1:zone=zone-b R2:zone=zone-b", "R1 R2 keep")},
	{number: 70, name: "topology hints: the own node's endpoints, else the zone's, else all", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "L1:node=node,zone=zone-a R1:node=other,zone=zone-a R2:node=other,zone=zone-b"))
		k.want(pod, atSvc, "L1 keep")
		k.given(kubeEndpoints("web", "R1:node=other,zone=zone-a R2:node=other,zone=zone-b"))
		k.want(pod, atSvc, "R1 keep")
		k.given(kubeEndpoints("web", "L1:node=node,zone=zone-a R2:zone=zone-b R3"))
		k.want(pod, atSvc, "L1 R2 R3 keep")
	}},
	{number: 71, name: "topology hints don't count where the traffic policy is Local", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), externalLocal), kubeEndpoints("web", "L1:zone=zone-b R1:zone=zone-a"))
		k.want(outside, atLB, "L1 keep")
		k.want(pod, atSvc, "R1 keep")
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), internalLocal))
		k.want(pod, atSvc, "L1 keep")
	}},
	{number: 72, name: "topology hints don't count when all endpoints terminate", run: hinted("L1:terminating,zone=zone-a R1:terminating,zone=zone-b", "L1 R1 keep")},
	{number: 73, name: "a UDP client with a fixed port is served on when backends change", run: checkDatagrams},
	{number: 74, name: "a packet out of its window does not reset the client", run: checkInvalid},
	{number: 75, name: "a Service changes its type", run: func(k *kubeKit) {
		k.given(kubeService("web", externalName("example.org")))
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
		k.want(pod, atSvc, "R1 keep")
		k.given(kubeService("web", clusterIP(svcIP), nodePort(30001)))
		k.want(outside, atNode, "R1 masq")
		k.given(kubeService("web", clusterIP(svcIP)))
		k.wantEverywhere(atNode, "refused")
		k.given(kubeService("web", externalName("example.org")))
		k.wantEverywhere(atSvc, "refused or unreachable")
	}},
	{number: 76, name: "labels exclude a Service and include it", run: func(k *kubeKit) {
		for _, label := range []string{"service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"} {
			if label == "service.kubernetes.io/headless" {
				k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1", labelled(label)))
				k.wantEverywhere(atSvc, "refused")
				k.given(kubeEndpoints("web", "R1"))
				k.want(pod, atSvc, "R1 keep")
				continue
			}
			k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "R1"))
			k.want(pod, atSvc, "R1 keep")
			k.given(kubeService("web", clusterIP(svcIP), labelled(label)))
			k.wantEverywhere(atSvc, "refused or unreachable")
			k.given(kubeService("web", clusterIP(svcIP)))
			k.want(pod, atSvc, "R1 keep")
		}
	}},
	{number: 77, name: "a Service deleted and created with the same ClusterIP is served", run: func(k *kubeKit) {
		web := kubeService("web", clusterIP(svcIP))
		k.given(web, kubeEndpoints("web", "R1"))
		k.want(pod, atSvc, "R1 keep")
		k.without(web)
		k.given(web) // at once
		k.endsAs(pod, atSvc, "R1 keep")
		k.without(web)
		k.wantEverywhere(atSvc, "refused or unreachable")
		k.given(web)
		k.want(pod, atSvc, "R1 keep")
	}},
	{number: 78, name: "externalTrafficPolicy turns from Cluster to Local and back", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atLB, "L1 R1 masq")
		held := k.holds(pod, atSvc)
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), externalLocal, healthCheckPort(30010)))
		k.want(outside, atLB, "L1 keep")
		k.wantHealth(outside, nodeAddr+":30010", 200, 1)
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)))
		k.want(outside, atLB, "L1 R1 masq")
		k.want(outside, "tcp "+nodeAddr+":30010", "refused")
		held.alive(k)
	}},
	{number: 79, name: "a named target port is another number on each endpoint", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "L1", ports("80:8443/tcp")), kubeSlice("more", "web", "R1", ports("80:80/tcp")))
		k.want(pod, atSvc, "L1 R1 keep")
	}},
	{number: 80, name: "published though not ready, an endpoint is served; otherwise it is not", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), publishNotReady), kubeEndpoints("web", "L1:published R1:published"))
		k.want(pod, atSvc, "L1 R1 keep")
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", "L1:unready R1"))
		k.want(pod, atSvc, "R1 keep")
	}},
	{number: 81, name: "a daemon of the node does not answer on VIPs", run: func(k *kubeKit) {
		defer k.c.daemonOnNode(k.t, 2222)()
		k.given(everything(), kubeEndpoints("web", "R1"))
		k.want(outside, atLB, "R1 masq")
		k.wantAll(everywhere, []string{"tcp " + lbIP + ":2222", "tcp " + svcIP + ":2222", "tcp " + extIP + ":2222"}, "refused")
		k.wantServer(outside, "tcp "+nodeAddr+":2222", "daemon")
	}},
	{number: 82, name: "INPUT has policy DROP", lacks: map[string]string{nftablesMode: othersDrop, netfilterMode: othersDrop}, run: func(k *kubeKit) {
		defer k.c.onNode(k.t, admitManagement+" && iptables -P INPUT DROP", "iptables -P INPUT ACCEPT && "+readmitManagement)()
		k.given(everything(), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atLB, "L1 R1 masq")
		k.want(pod, atSvc, "L1 R1 keep")
		k.want(outside, atNode, "L1 R1 masq")
	}},
	{number: 83, name: "FORWARD has policy DROP", lacks: map[string]string{nftablesMode: othersDrop, netfilterMode: othersDrop}, run: func(k *kubeKit) {
		defer k.c.onNode(k.t, "iptables -P FORWARD DROP", "iptables -P FORWARD ACCEPT")()
		k.given(everything(), kubeEndpoints("web", "L1 R1"))
		k.want(outside, atLB, "L1 R1 masq")
		k.want(pod, atSvc, "L1 R1 keep")
		k.want(outside, atNode, "L1 R1 masq")
	}},
	{number: 84, name: "a VIP answers ping", run: func(k *kubeKit) {
		k.given(everything(), kubeEndpoints("web", "R1"))
		k.want(outside, atLB, "R1 masq")
		k.wantPong(outside, lbIP)
		k.wantPong(pod, svcIP)
	}},
	{number: 85, name: "source ranges of one family close the other", run: func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP, svcIP6), loadBalancer(lbIP, lbIP6), ranges("203.0.113.0/25")), kubeEndpoints("web", "R1"), kubeEndpoints6("web", "R1"))
		k.want(outside, atLB, "R1 masq")
		k.wantAll([]client{outside, blocked, pod, itself}, []string{"tcp [" + lbIP6 + "]:80"}, "dropped")
	}},
	{number: 86, name: "of two Services with one VIP and port the older one has it, and nothing flaps", run: checkConflict},
	{number: 87, name: "with mh, no client is refused while an endpoint drains", options: &options{scheduler: "mh"}, run: checkMaglev},
	{number: 88, name: "a connection outlives the deletion of its Service", run: func(k *kubeKit) {
		web := kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), drains("30s"))
		k.given(web, kubeEndpoints("web", "R1"))
		k.want(outside, atLB, "R1 masq")
		held := k.holds(outside, atLB)
		k.without(web, kubeEndpoints("web", "R1"))
		k.wantEverywhere(atLB, "refused or unreachable")
		held.alive(k)
	}},
	{number: 89, name: "at the start with 2,000 Services no packet slips past its source ranges or masquerading", run: checkStart},
	{number: 90, name: "faults of netlink, flushed rules and a lost device: nothing is lost, and all is back within a second", run: checkFaults},
}
