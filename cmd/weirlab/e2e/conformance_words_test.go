package e2e

// ranged is the Service of the checks on source ranges, one of them written with
// spaces, as users do.
func ranged(f func(*kubeKit)) func(*kubeKit) {
	return func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP, lbIP2), nodePort(30001), ranges("192.168.0.0/24", " 203.0.113.0/25")), kubeEndpoints("web", "R1"))
		k.want(outside, atLB, "R1 masq") // it is there
		f(k)
	}
}

// external is a Service of all kinds with a traffic policy, with a backend on the
// node and one elsewhere.
func external(policy string, f func(*kubeKit)) func(*kubeKit) {
	return func(k *kubeKit) {
		var more []option
		if policy == "Local" {
			more = append(more, externalLocal)
		}
		k.given(everything(more...), kubeEndpoints("web", "L1 R1"))
		f(k)
	}
}

func internal(local bool, backends, outcome string) func(*kubeKit) {
	return func(k *kubeKit) {
		web := kubeService("web", clusterIP(svcIP))
		if local {
			web = kubeService("web", clusterIP(svcIP), internalLocal)
		}
		k.given(web, kubeEndpoints("web", backends))
		k.want(pod, atSvc, outcome)
	}
}

func terminating(backends, byClusterIP, byLoadBalancer string) func(*kubeKit) {
	return func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP)), kubeEndpoints("web", backends))
		k.want(pod, atSvc, byClusterIP)
		k.want(outside, atLB, byLoadBalancer)
	}
}

func terminatingLocal(backends, byClusterIP, byLoadBalancer string) func(*kubeKit) {
	return func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP), loadBalancer(lbIP), externalLocal), kubeEndpoints("web", backends))
		k.want(pod, atSvc, byClusterIP)
		k.want(outside, atLB, byLoadBalancer)
	}
}

func hinted(backends, outcome string) func(*kubeKit) {
	return func(k *kubeKit) {
		k.given(kubeService("web", clusterIP(svcIP)), kubeEndpoints("web", backends))
		k.want(pod, atSvc, outcome)
	}
}
