package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

const (
	// sharedServices have three frontends each, and all have the same backends.
	sharedServices = 8
	// sharedClients connect at the same time.
	sharedClients = 16
	// sharedPorts are the source ports of the client, from firstShared on. The number is prime, so that each
	// port meets each frontend before it meets one for the second time.
	sharedPorts, firstShared = 2087, 10000
	// late is the time after which the first packet of a connection was sent again: after a second.
	late = 900 * time.Millisecond
)

// TestSharedBackends makes many new connections from one client to 24 frontends with the same
// backends. Each source port is used again for other frontends, after the connection before has ended,
// so that the packets of the two differ only before their destination is rewritten. No connection of weir may
// fail.
//
// In the full size the kernel of the client chooses the ports, too. At times it gives one port to two
// connections at once. That has a limit in IPVS, which oneSourcePort shows with kube-proxy. weir has none with
// nftables (also TestOneClientPort).
func TestSharedBackends(t *testing.T) {
	c := newConformance(t)
	var targets []string
	for i := range sharedServices {
		name, vip, node := fmt.Sprintf("shared%d", i), fmt.Sprintf("172.30.2.%d", i+1), int32(30001+i)
		lb := fmt.Sprintf("1.2.4.%d", i+1)
		c.each(t, []object{
			kubeService(name, clusterIP(vip), loadBalancer(lb), nodePort(node)), kubeEndpoints(name, "L1 L2 R1 R2"),
		}, c.put)
		targets = append(targets, at(vip, 80), at(lb, 80), at(nodeAddr, int(node)))
	}
	c.each(t, []object{kubeService("one", clusterIP("172.30.3.1")), kubeEndpoints("one", "L1"),
		kubeService("two", clusterIP("172.30.3.2")), kubeEndpoints("two", "L1")}, c.put)
	engines := []engine{&weirEngine{c: c, mode: nftablesMode}}
	if soaking() {
		engines = append(engines, &weirEngine{c: c, mode: netfilterMode}, &weirEngine{c: c, mode: ipvsMode}, &kubeProxyEngine{c: c, mode: "iptables"},
			&kubeProxyEngine{c: c, mode: "nftables"}, &kubeProxyEngine{c: c, mode: "ipvs"})
	}
	for i, e := range engines {
		t.Run(e.name(), func(t *testing.T) {
			c.options = &options{}
			e.start(t, *c.options)
			confused := e.name() == peerMode || e.name() == ipvsMode // the rules of iptables can't set the source
			c.oneSourcePort(t, e, firstShared-1-i, confused)
			_, weir := e.(*weirEngine)
			if n := 5000; !soaking() {
				c.connectToAll(t, e, n, targets, true, weir)
			} else {
				c.connectToAll(t, e, 10*n, targets, true, weir)
				c.connectToAll(t, e, 10*n, targets, false, weir && !confused)
			}
			e.stop(t)
			if left := c.cleanKernel(t); weir && left != "" {
				t.Errorf("weir left this in the kernel:\n%s", left)
			}
		})
	}
}

// oneSourcePort opens two connections from one port of a client to two frontends with one backend. IPVS
// finds the connection of a reply by the addresses and ports of the client and of the backend, which are
// those of both connections, and takes one of the two, mostly the newer. The table of conntrack, by which the other
// engines and weir's rules find it, has two entries, and gave the second connection another port.
func (c *conformance) oneSourcePort(t *testing.T, e engine, port int, dead bool) {
	t.Helper()
	dial := fromPort(c.Host(string(pod)), port)
	var conns []*conn
	for _, vip := range []string{"172.30.3.1", "172.30.3.2"} {
		one, err := attempt(t.Context(), dial, visitTime, "tcp", at(vip, 80))
		if err != nil {
			t.Fatalf("%s, from the port of another connection to %s: %v", e.name(), vip, err)
		}
		defer func() { _ = one.Close() }()
		conns = append(conns, one)
	}
	first, second := echoed(conns[0]), echoed(conns[1])
	figure(t, e.name()+": older and newer connection of one source port to one backend", fmt.Sprintf("%s, %s", traffic.OutcomeOf(first), traffic.OutcomeOf(second)))
	if (first != nil || second != nil) != dead {
		t.Errorf("%s: the older connection ends with %v, the newer with %v", e.name(), first, second)
	}
}

// fromPort connects from one port, also if another connection has it or had it a moment ago.
func fromPort(m *lab.Machine, port int) dialer {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		return lab.DialShared(ctx, m, network, &net.TCPAddr{Port: port}, addr)
	}
}

// connectToAll makes n connections to targets by turns, from ports of its own choice or of the kernel's.
func (c *conformance) connectToAll(t *testing.T, e engine, n int, targets []string, ownPorts, all bool) {
	t.Helper()
	before, begin := c.counters(t), time.Now()
	outcomes, slow := c.connectMany(t, n, targets, ownPorts)
	took := time.Since(begin)
	after := c.counters(t)
	for name, value := range before {
		if after[name] -= value; after[name] == 0 {
			delete(after, name)
		}
	}
	ports := "source ports of the kernel"
	if ownPorts {
		ports = "distinct source ports"
	}
	failed := n - outcomes[traffic.Answered]
	figure(t, fmt.Sprintf("%s: failed and late of %d connections to %d frontends that share backends, %s", e.name(), n, len(targets), ports), fmt.Sprintf("%d, %d", failed, slow))
	t.Logf("%.0f connections a second; %s; counters: %s", float64(n)/took.Seconds(), outcomes, listed(after))
	if all && failed > 0 {
		t.Errorf("%d of %d connections failed: %s", failed, n, outcomes)
	}
}

// connectMany returns the outcomes of n connections, and the number of those that were late.
func (c *conformance) connectMany(t testing.TB, n int, targets []string, ownPorts bool) (traffic.Outcomes, int) {
	t.Helper()
	outcomes, slow := traffic.Outcomes{}, 0
	client := c.Host(string(pod))
	var next atomic.Int64
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range sharedClients {
		clients.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				dial := dialer(client.DialContext)
				if ownPorts {
					dial = fromPort(client, firstShared+i%sharedPorts)
				}
				begin := time.Now()
				conn, err := attempt(t.Context(), dial, traffic.DefaultPatience, "tcp", targets[i%len(targets)])
				took := time.Since(begin)
				if err == nil {
					_ = conn.Close()
				}
				mu.Lock()
				outcomes[traffic.OutcomeOf(err)]++
				if took > late {
					slow++
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return outcomes, slow
}

// counters are those of the node's kernel that explain a lost packet, and the repetitions of the client.
func (c *conformance) counters(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	add := func(prefix, name, value string) {
		if n, err := strconv.Atoi(value); err == nil {
			out[prefix+name] += n
		}
	}
	for _, m := range counter.FindAllStringSubmatch(c.box.Must(t, "conntrack", "-S"), -1) {
		add("conntrack ", m[1], m[2])
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := c.Host(string(pod)).Run(ctx, "cat", "/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(text.Stdout) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != "Tcp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if slices.Contains([]string{"RetransSegs", "OutRsts", "InErrs"}, name) {
					add("client ", name, fields[i])
				}
			}
		}
	}
	return out
}

var counter = regexp.MustCompile(`(\w+)=(\d+)`)

func listed(counters map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		words = append(words, fmt.Sprintf("%s %d", name, counters[name]))
	}
	return strings.Join(words, ", ")
}
