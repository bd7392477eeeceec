package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// A tenant who may write Services and EndpointSlices in his own namespace wants
// what is others'. The box has daemons, one of them behind a firewall.
//
// The box is a node, and then one before the cluster; the objects come while weir
// runs, and are there when it starts.
func TestClusterHostile(t *testing.T) {
	t.Parallel()
	s := newLand(t, 1, lab.KubeOptions{})
	webs := s.serveAll(t, 8080)
	s.greetOnBox(t, "tcp4", "0.0.0.0:2222", "tcp6", "[::]:2222", "tcp4", "0.0.0.0:9999")
	s.box.Must(t, "sh", "-ec", "iptables -A INPUT -i front -p tcp --dport 2222 -j DROP && ip6tables -A INPUT -i front -p tcp --dport 2222 -j DROP")
	must(t, s.prod.AddNode(within(t, 30*time.Second), s.box))
	do(t, s.prod, "POST", "/api/v1/nodes", `{"metadata": {"name": "elsewhere"}, "spec": {"podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]},
		"status": {"addresses": [{"type": "InternalIP", "address": "10.9.0.7"}, {"type": "ExternalIP", "address": "10.96.0.77"}]}}`) // its kubelet lists a ClusterIP, too
	do(t, s.prod, "POST", "/api/v1/namespaces", `{"metadata": {"name": "tenant"}}`)
	own := s.addresses(t)
	s.balance(t, s.prod, "calm", calmVIP, `, "clusterIP": "10.96.0.77"`, "10.2.0.11")

	s.run(t, hostileConfig("ipvs", `node_name = "box"`))
	s.answers(t, calmVIP+":80", "web1")
	greet(t, s.client2, "tcp4", bystander+":2222")
	s.keepsTable(t)
	visitor := startStream(t, s.client2, calmVIP+":80")
	wave := hostileObjects()
	accepted := s.attack(t, wave)
	figure(t, "hostile objects: all, and those that the API server itself accepts", fmt.Sprintf("%d, %d", len(wave), accepted))
	s.balance(t, s.prod, "last", "192.0.2.99", "", "10.2.0.12")
	s.answers(t, "192.0.2.99:80", "web2")        // all the others have been seen
	eventually(t, 20*time.Second, func() error { // the kernel has a Service before the status has the notes of its pass
		if n := s.noted(t, "prod/tenant/product", "over-budget"); !strings.Contains(n, "max_service_objects") {
			return fmt.Errorf("1,000 ports x 1,000 ranges: notes %q", n)
		}
		return nil
	})
	// The addresses of a node are those of pods in its own network, too: who may write
	// slices reaches those, as with kube-proxy. A box before the cluster has no pods.
	onNode := servedBy(wave, own)
	if of := netip.MustParseAddr("10.96.0.77"); !slices.ContainsFunc(s.virtual(t), func(v netip.AddrPort) bool { return v.Addr() == of }) {
		t.Errorf("ClusterIP %s is not served, since a Node lists it", of)
	}
	s.unharmed(t, "a node, IPVS", own, onNode)
	for _, as := range []struct {
		mode, node string
		mayReach   map[string]bool
	}{{"netfilter", `node_name = "box"`, onNode}, {"netfilter", "", nil}, {"ipvs", "", nil}} {
		s.stop(t, syscall.SIGTERM)
		s.configure(t, hostileConfig(as.mode, as.node))
		s.start(t)
		s.answers(t, "192.0.2.99:80", "web2")
		s.unharmed(t, as.mode+" "+as.node, own, as.mayReach)
	}
	mustHaveLostNothing(t, visitor)
	if n := webs[2].served.Load(); n != 0 {
		t.Errorf("web3, the tenant's own, was visited %d times by who meant somebody else", n)
	}
	for _, path := range []string{"/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices", "/api/v1/namespaces/tenant/services"} {
		do(t, s.prod, http.MethodDelete, path, "")
	}
	eventually(t, time.Minute, func() error {
		for _, line := range s.virtual(t) {
			if addr := line.Addr(); addr.String() != calmVIP && addr.String() != "192.0.2.99" && !anchors[addr] {
				return fmt.Errorf("the tenant has left, %s is still there", line)
			}
		}
		return nil
	})
	// By itself, so that its Event does not wait for those of the others.
	s.attack(t, slices.DeleteFunc(wave, func(o fields) bool { return o["metadata"].(fields)["name"] != "product" }))
	eventually(t, time.Minute, func() error {
		if all := s.eventsOn(t, "product"); !slices.ContainsFunc(all, func(e kubeEvent) bool { return e.Reason == "OverBudget" }) {
			return fmt.Errorf("no Event about the budget of product: %+v", all)
		}
		return nil
	})
}

func hostileConfig(mode, more string) string {
	return fmt.Sprintf("[kernel]\nsync_period = \"2s\"\nmode = %q\ncluster_cidrs = [\"10.244.0.0/16\"]\n[defaults]\ndrain_timeout = \"0s\"\n", mode) +
		follows(more+"\nexternal_ip_ranges = [\"0.0.0.0/0\", \"::/0\"]\npod_cidrs = [\"10.2.0.0/24\"]\nguard_threshold = \"100%\"", "prod")
}

// wanted are addresses that no tenant may take, nor send packets to.
var wanted = []string{
	"10.1.0.1", "10.2.0.1", "fd01::1", "::ffff:10.1.0.1", // the box's own
	"10.2.0.11", "10.2.0.101", // a backend of others, the API server
	"10.9.0.7", "10.244.7.7", "10.96.0.77", // a Node, a pod, a ClusterIP
	calmVIP,
	"192.0.0.8", "100::8", // that weir uses itself
	"127.0.0.1", "127.0.0.5", "::1", "0.0.0.0", "::", "169.254.1.1", "169.254.169.254", "fe80::1",
	"224.0.0.5", "239.1.1.1", "ff02::1", "255.255.255.255",
	"010.1.0.1", "10.1.0.1/32", "not-an-address", "",
}

// bystander is the address of client2, a host that is no pod.
const bystander = "10.1.0.3"

// anchors are addresses that weir binds for itself.
var anchors = map[netip.Addr]bool{netip.MustParseAddr("192.0.0.8"): true, netip.MustParseAddr("100::8"): true}

// tenantVIP is one that a tenant may have.
func tenantVIP(n int) string { return fmt.Sprintf("192.0.2.%d", 100+n) }

type fields = map[string]any

// hostileObjects are what the tenant makes.
func hostileObjects() (out []fields) {
	add := func(objects ...fields) { out = append(out, objects...) }
	for i, addr := range wanted {
		// Take the address, with the port of web servers and that of the daemon behind
		// the firewall ...
		name := fmt.Sprintf("external-%d", i)
		add(hostileService(name, fields{"externalIPs": []string{addr}}), hostileSlice(name, "10.2.0.13", 8080))
		name = fmt.Sprintf("status-%d", i)
		add(hostileService(name, fields{"type": "LoadBalancer"}, addr), hostileSlice(name, "10.2.0.13", 8080))
		// ... or send what comes to a VIP there.
		name = fmt.Sprintf("endpoint-%d", i)
		add(hostileService(name, fields{"type": "LoadBalancer"}, tenantVIP(i)), hostileSlice(name, addr, 2222))
	}
	for i, addr := range []string{"127.0.0.1", "10.1.0.1", "169.254.1.1", "nonsense"} {
		name := fmt.Sprintf("cluster-%d", i)
		add(hostileService(name, fields{"clusterIP": addr, "clusterIPs": []string{addr}}), hostileSlice(name, "10.2.0.13", 8080))
	}
	vip := len(wanted)
	more := func(name string, spec fields, slices ...fields) {
		add(hostileService(name, spec, tenantVIP(vip)))
		add(slices...)
		vip++
	}
	balanced := fields{"type": "LoadBalancer"}
	more("itself", balanced, hostileSlice("itself", tenantVIP(vip), 2222))
	more("another", balanced, hostileSlice("another", "192.0.2.99", 2222))
	more("nobody", balanced)
	more(strings.Repeat("n", 63), balanced, hostileSlice(strings.Repeat("n", 63), "10.2.0.1", 2222))
	more("type", fields{"type": "Nonsense"})
	more("affinity", fields{"type": "LoadBalancer", "sessionAffinity": "ClientIP", "sessionAffinityConfig": fields{"clientIP": fields{"timeoutSeconds": -5}}})
	more("ranges", fields{"type": "LoadBalancer", "loadBalancerSourceRanges": []string{"nonsense", "10.1.0.2", "::/0", "1.2.3.4/99"}}, hostileSlice("ranges", "10.1.0.1", 2222))
	more("health", fields{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 10266}, hostileSlice("health", "10.2.0.1", 2222))
	more("policy", fields{"type": "LoadBalancer", "externalTrafficPolicy": "Sometimes", "internalTrafficPolicy": ""})
	var many []any
	for n := range 400 {
		many = append(many, fields{"name": fmt.Sprintf("p%d", n), "port": 20000 + n, "protocol": []string{"TCP", "UDP"}[n%2], "targetPort": "p" + fmt.Sprint(n%7)})
	}
	more("ports", fields{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": many})
	// A million members of sets, and a host that is no pod.
	var ranges []string
	for n := range 1000 {
		ranges = append(ranges, fmt.Sprintf("10.%d.%d.0/24", 128+n/250, n%250))
	}
	var thousand []any
	for n := range 1000 {
		thousand = append(thousand, fields{"name": fmt.Sprintf("p%d", n), "port": 1 + n, "protocol": "TCP", "targetPort": 8080})
	}
	more("product", fields{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": thousand, "loadBalancerSourceRanges": ranges})
	more("outside", balanced, hostileSlice("outside", bystander, 2222))
	more("twice", fields{"type": "LoadBalancer", "ports": []any{
		fields{"name": "a", "port": 80, "protocol": "TCP"}, fields{"name": "a", "port": 80, "protocol": "TCP"}, fields{"port": 0}, fields{"port": 70000, "protocol": "XYZ"}, fields{"port": -1},
	}})
	for n := range 20 {
		s := hostileSlice("itself", fmt.Sprintf("10.2.0.%d", 50+n), 2222+n)
		s["metadata"].(fields)["name"] = fmt.Sprintf("itself-%d", n)
		add(s)
	}
	odd := hostileSlice("itself", "10.2.0.1", 2222)
	odd["metadata"].(fields)["name"] = "odd"
	odd["ports"] = []any{fields{"port": nil}, fields{"name": "http", "port": 0}, fields{"name": "http", "port": -1}, fields{"name": "http", "port": 70000}}
	odd["endpoints"] = []any{fields{"addresses": []string{}}, fields{"addresses": []string{"10.2.0.51", "10.2.0.1"}, "conditions": fields{"serving": true}, "nodeName": strings.Repeat("x", 300)}}
	notHis := hostileSlice("calm", "10.2.0.13", 8080) // this name is in another namespace
	dns := hostileSlice("itself", "localhost", 2222)
	dns["metadata"].(fields)["name"], dns["addressType"] = "dns", "FQDN"
	add(odd, notHis, dns)
	return out
}

// hostileService has ports 80, 8080 and 2222, unless spec has others; ingress are
// its load balancer's addresses.
func hostileService(name string, spec fields, ingress ...string) fields {
	whole := fields{"ports": []any{
		fields{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
		fields{"name": "web", "port": 8080, "targetPort": 8080, "protocol": "TCP"},
		fields{"name": "ssh", "port": 2222, "targetPort": 2222, "protocol": "TCP"},
	}}
	for k, v := range spec {
		whole[k] = v
	}
	var list []any
	for _, ip := range ingress {
		list = append(list, fields{"ip": ip})
	}
	notes := fields{}
	for _, a := range []string{"scheduler", "scheduler-flags", "weights", "affinity-timeout", "drain-timeout", "source-address", "max-connections", "nonsense"} {
		notes["weir/"+a] = strings.Repeat(`'; ipvsadm -C "$(reboot)" -1,=\u0000 99999999999999999999 `, 20)
	}
	return fields{"apiVersion": "v1", "kind": "Service", "spec": whole, "status": fields{"loadBalancer": fields{"ingress": list}},
		"metadata": fields{"name": name, "namespace": "tenant", "annotations": notes}}
}

// hostileSlice is a slice of a Service with one endpoint, for all its ports.
func hostileSlice(service, addr string, port int) fields {
	family := "IPv4"
	if strings.Contains(addr, ":") {
		family = "IPv6"
	}
	var ports []any
	for _, name := range []string{"http", "web", "ssh"} {
		ports = append(ports, fields{"name": name, "port": port, "protocol": "TCP"})
	}
	return fields{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family, "ports": ports,
		"metadata":  fields{"name": service, "namespace": "tenant", "labels": fields{"kubernetes.io/service-name": service}},
		"endpoints": []any{fields{"addresses": []string{addr}, "nodeName": "box"}},
	}
}

// servedBy are the load balancers' addresses of those that have one of addrs as an
// endpoint.
func servedBy(objects []fields, addrs []netip.Addr) map[string]bool {
	names, out := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		if o["kind"] == "Service" {
			continue
		}
		for _, e := range o["endpoints"].([]any) {
			for _, text := range e.(fields)["addresses"].([]string) {
				if a, err := netip.ParseAddr(text); err == nil && slices.Contains(addrs, a) {
					names[o["metadata"].(fields)["name"].(string)] = true
				}
			}
		}
	}
	for _, o := range objects {
		if status, ok := o["status"].(fields); ok && names[o["metadata"].(fields)["name"].(string)] {
			for _, i := range status["loadBalancer"].(fields)["ingress"].([]any) {
				out[i.(fields)["ip"].(string)] = true
			}
		}
	}
	return out
}

// attack makes the objects through the API server, and puts those that it refuses
// past it. It gives how many it accepted.
func (s *land) attack(t testing.TB, objects []fields) (accepted int) {
	t.Helper()
	past := map[string]string{}
	for i, o := range objects {
		meta := o["metadata"].(fields)
		path, key := "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices", "/registry/endpointslices/tenant/"
		if o["kind"] == "Service" {
			path, key = "/api/v1/namespaces/tenant/services", "/registry/services/specs/tenant/"
		}
		name := meta["name"].(string)
		if s.asks(t, "POST", path, o) && (o["kind"] != "Service" || s.asks(t, "PATCH", path+"/"+name+"/status", fields{"status": o["status"]})) {
			accepted++
			continue
		}
		meta["uid"], meta["creationTimestamp"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", i), time.Now().UTC().Format(time.RFC3339)
		if spec, ok := o["spec"].(fields); ok && spec["clusterIP"] == nil {
			ip := fmt.Sprintf("10.96.200.%d", i%256)
			spec["clusterIP"], spec["clusterIPs"], spec["ipFamilies"] = ip, []string{ip}, []string{"IPv4"}
		}
		text, err := json.Marshal(o)
		must(t, err)
		past[key+name] = string(text)
	}
	must(t, s.prod.Load(within(t, time.Minute), past))
	return accepted
}

// asks reports whether the API server did what it was asked.
func (s *land) asks(t testing.TB, method, path string, o fields) bool {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	status, _, err := s.prod.Do(within(t, 30*time.Second), lab.KubeAdmin, method, path, string(text))
	must(t, err)
	return status/100 == 2
}

// addresses are those of all interfaces of the box.
func (s *land) addresses(t testing.TB) (out []netip.Addr) {
	t.Helper()
	for line := range strings.Lines(s.box.Must(t, "ip", "-o", "addr")) {
		if f := strings.Fields(line); len(f) > 3 {
			out = append(out, netip.MustParsePrefix(f[3]).Addr())
		}
	}
	return out
}

// virtual are the addresses and ports in IPVS.
func (s *land) virtual(t testing.TB) (out []netip.AddrPort) {
	t.Helper()
	for line := range strings.Lines(s.box.Must(t, "ipvsadm", "-Sn")) {
		if f := strings.Fields(line); f[0] == "-A" && f[1] != "-f" {
			out = append(out, netip.MustParseAddrPort(f[2]))
		}
	}
	return out
}

// tenants are the addresses that are Services' to have.
var tenants = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}

func isTenants(a netip.Addr) bool {
	return slices.ContainsFunc(tenants, func(p netip.Prefix) bool { return p.Contains(a) })
}

// unharmed claims that only the tenant is worse off.
func (s *land) unharmed(t *testing.T, as string, own []netip.Addr, mayReach map[string]bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			out, _ := s.box.Run(t.Context(), s.weir, "status")
			t.Log(out.Stdout)
		}
	}()
	for _, a := range s.addresses(t) {
		if !slices.Contains(own, a) && !isTenants(a) && !anchors[a] && !a.IsLinkLocalUnicast() {
			t.Errorf("%s: %s is bound, which is nobody's to have", as, a)
		}
	}
	for _, v := range s.virtual(t) {
		// NodePorts are at the box's own addresses.
		if a := v.Addr(); !isTenants(a) && !anchors[a] && (!slices.Contains(own, a) || a.IsLoopback() || v.Port() < 30000) {
			t.Errorf("%s: %s is served, which is nobody's to have", as, v)
		}
	}
	var wg sync.WaitGroup
	room := make(chan struct{}, 128)
	reached := func(addr string) {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			c, err := attempt(t.Context(), dialerOf(s.client1), visitTime, "tcp", addr)
			if err != nil {
				return
			}
			_ = c.Close()
			if c.server == "box" || c.server == "client2" && mayReach == nil {
				t.Errorf("%s: a daemon of %s is reached at %s", as, c.server, addr)
			}
		})
	}
	for i := range 45 {
		for _, port := range []int{80, 2222, 9999} {
			if vip := tenantVIP(i); !mayReach[vip] {
				reached(fmt.Sprintf("%s:%d", vip, port))
			}
		}
	}
	for _, addr := range []string{"10.1.0.1:2222", "10.2.0.1:2222", "[fd01::1]:2222", calmVIP + ":2222", "192.0.2.99:9999"} {
		reached(addr)
	}
	wg.Wait()
	// Who has what a tenant wants is still there.
	if a, err := get(t.Context(), s.client1, "10.2.0.11:8080"); err != nil || a.server != "web1" {
		t.Errorf("%s: web1 itself: %v, %v", as, a, err)
	}
	// A start serves what weir knows before it is connected.
	s.statusIs(t, as, func(doc statusDoc) bool {
		return (doc.State == "ok" || doc.State == "degraded") && len(doc.Clusters) == 1 && doc.Clusters[0].State == "connected" && doc.Clusters[0].Error == ""
	})
	for _, m := range []string{`weir_kubernetes_panics_total{cluster="prod"}`, "weir_sync_failures_total", "weir_ops_pending"} {
		eventually(t, 20*time.Second, func() error { // an operation may wait for another one
			if v := s.metric(t, m); v != 0 {
				return fmt.Errorf("%s: %s is %v", as, m, v)
			}
			return nil
		})
	}
}
