package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The requests of the churn to the API server, and its waits for effects.

// until waits until do returns nil, or the end of ctx. It asks less often than traffic.Eventually: the
// processors are for the boxes.
func until(ctx context.Context, what string, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		if traffic.Pause(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("not in time: %s: %w", what, err)
		}
	}
}

// nextHops are the boxes to which the router sends packets for the victim.
func (c *churn) nextHops(ctx context.Context) (out []int, err error) {
	route, err := c.Host("router").KernelRoute(ctx, c.victim+"/32")
	for _, via := range route.Via {
		for n := range c.boxes {
			if via.String() == boxAddr(n+1) {
				out = append(out, n)
			}
		}
	}
	return out, err
}

// routed waits until the router's next hops for the victim are such as ok wants.
func (c *churn) routed(ctx context.Context, what string, ok func([]int) bool) error {
	return until(ctx, what, func() error {
		now, err := c.nextHops(ctx)
		if err == nil && !ok(now) {
			err = fmt.Errorf("the router sends to the boxes of index %v", now)
		}
		return err
	})
}

func (c *churn) bothServe(ctx context.Context) error {
	return c.routed(ctx, "both boxes serve", func(now []int) bool { return len(now) == 2 })
}

// ask repeats a request until the API server, which may be down, has processed it.
func (c *churn) ask(ctx context.Context, method, path, body string) (status int, text string, err error) {
	err = until(ctx, method+" "+path, func() error {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		status, text, err = c.prod.Do(one, lab.KubeAdmin, method, path, body)
		// An API server that ends answers, but reaches itself no longer.
		ending := status == http.StatusUnprocessableEntity && strings.Contains(text, "failed to allocate")
		if err == nil && (status >= 500 || status == http.StatusTooManyRequests || ending) {
			err = fmt.Errorf("status %d: %s", status, text)
		}
		return err
	})
	return status, text, err
}

// put is a request that must succeed. A repeated one may find its own work.
func (c *churn) put(ctx context.Context, method, path string, o fields) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if o == nil {
		body = nil
	}
	status, text, err := c.ask(ctx, method, path, string(body))
	done := map[string]int{http.MethodPost: http.StatusConflict, http.MethodDelete: http.StatusNotFound}[method]
	if err == nil && status/100 != 2 && status != done {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, text)
	}
	return err
}

func servicesIn(namespace string) string { return "/api/v1/namespaces/" + namespace + "/services" }
func slicesIn(namespace string) string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"
}

// churnService is a Service that wants an address.
func churnService(name string, annotations fields, ports []fields, more fields) fields {
	spec := fields{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports}
	for k, v := range more {
		spec[k] = v
	}
	return fields{"apiVersion": "v1", "kind": "Service", "metadata": fields{"name": name, "annotations": annotations}, "spec": spec}
}

// churnSlice is the slice of a Service; ports have the names of the Service's.
func churnSlice(name string, ports []fields, addrs ...string) fields {
	endpoints := []fields{}
	for _, a := range addrs {
		endpoints = append(endpoints, fields{"addresses": []string{a}, "conditions": fields{"ready": true}, "nodeName": "elsewhere"})
	}
	return fields{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": fields{"name": name, "labels": fields{"kubernetes.io/service-name": name}}, "ports": ports, "endpoints": endpoints}
}

func port(name, protocol string, number, target int) fields {
	return fields{"name": name, "protocol": protocol, "port": number, "targetPort": target}
}

func webAddr(i int) string { return fmt.Sprintf("10.2.0.%d", 11+i) }

// owned gives a slice an owner, as Kubernetes does.
func owned(slice fields, service, uid string) fields {
	meta := slice["metadata"].(fields) //nolint:forcetypeassert // of churnSlice
	meta["ownerReferences"] = []fields{{"apiVersion": "v1", "kind": "Service", "name": service, "uid": uid}}
	return slice
}

// addressOf waits until a Service has an address, and returns its UID, too.
func (c *churn) addressOf(ctx context.Context, namespace, name string) (addr, uid string, err error) {
	err = until(ctx, namespace+"/"+name+" has an address", func() error {
		_, text, err := c.ask(ctx, http.MethodGet, servicesIn(namespace)+"/"+name, "")
		var doc serviceDoc
		if err == nil {
			err = json.Unmarshal([]byte(text), &doc)
		}
		g := doc.given()
		if addr, uid = g.addrs, doc.Metadata.UID; err == nil && addr == "" {
			err = fmt.Errorf("%+v", g)
		}
		return err
	})
	return addr, uid, err
}

// programmed waits until both boxes send packets for a VIP, and for no other one, to these hosts at a
// port, and to no other host.
func (c *churn) programmed(ctx context.Context, port int, vip string, hosts ...string) error {
	var want []string
	for _, h := range hosts {
		want = append(want, vip+" "+h)
	}
	slices.Sort(want)
	for _, b := range c.boxes {
		err := until(ctx, b.box.Name()+" serves so", func() error {
			text, err := b.virtualServers(ctx)
			if got := realServers(text, port); err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%s has %q at port %d, want %q", b.box.Name(), got, port, want)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// realServers are the VIPs and hosts of a port in the kernel's list of virtual servers that get new connections.
func realServers(text string, port int) (out []string) {
	var vip netip.AddrPort
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && (f[0] == "TCP" || f[0] == "UDP"):
			vip = hexAddr(f[1])
		case len(f) > 3 && f[0] == "->" && f[3] != "0" && inPools(vip.Addr()):
			if host := hexAddr(f[1]); int(host.Port()) == port {
				out = append(out, vip.Addr().String()+" "+host.Addr().String())
			}
		case len(f) > 0 && f[0] != "->":
			vip = netip.AddrPort{} // that of a mark
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func inPools(a netip.Addr) bool {
	return strings.HasPrefix(a.String(), "192.0.2.") || strings.HasPrefix(a.String(), "198.51.100.")
}

// hexAddr reads C0000242:0050. Addresses of IPv6, which the churn does not check, give none.
func hexAddr(text string) netip.AddrPort {
	var addr uint32
	var port uint16
	if n, err := fmt.Sscanf(text, "%08X:%04X", &addr, &port); n < 2 || err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, addr))), port)
}
