package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// gate is an engine with n NodePort Services: how many rules it has, and how long a
// new connection takes through them.
type gate struct {
	services int
	began
	rules   int
	connect latency
}

// nodePortBench is the bench of node ports.
type nodePortBench struct{ *bench }

// nodePorts measures the rules and the first packet with few and with many NodePort
// Services: kube-proxy's iptables mode walks a rule for each, weir asks a set.
func (b nodePortBench) nodePorts(ctx context.Context) error {
	const few = 10
	weir, dnat, proxy := b.byWeir("ipvs"), b.byWeir("netfilter"), b.byKubeProxy("iptables")
	gates := map[string]map[int]gate{weir.name: {}, dnat.name: {}, proxy.name: {}}
	shown := alike(b.scale, few, b.ports)
	for _, n := range []int{few, b.ports} {
		if err := b.populate(ctx, n, "NodePort"); err != nil {
			return err
		}
		engines := []engine{weir, dnat, proxy}
		if !slices.Contains(shown, n) {
			engines = engines[:1] // whether it has as many rules
		}
		for _, e := range engines {
			g, err := b.gate(ctx, e, n)
			if err != nil {
				return fmt.Errorf("%s, %d Services: %w", e.name, n, err)
			}
			gates[e.name][n] = g
			if e.name != proxy.name {
				b.table.point(e.name+": new connection to a NodePort", "s", n, g.connect.median.Seconds())
			}
		}
	}
	for _, e := range []engine{weir, dnat} {
		for _, n := range shown {
			b.gateLines(e.name, gates[e.name][n], proxy.name, gates[proxy.name][n])
		}
	}
	if a, b2 := gates[weir.name][few].rules, gates[weir.name][b.ports].rules; a != b2 {
		b.table.miss("weir has %d rules with %d NodePort Services and %d with %s: want the same", a, few, b2, count(b.ports))
	}
	return nil
}

func (b nodePortBench) gate(ctx context.Context, e engine, n int) (g gate, err error) {
	b.report("%s: %s NodePort Services", e.name, count(n))
	r, err := b.enterWired(ctx)
	if err != nil {
		return g, err
	}
	defer func() { _ = r.leave(ctx) }()
	g.services = n
	if g.began, err = r.awaits(ctx, e, nodePortsOf(e, n)); err != nil {
		return g, err
	}
	if err := b.rest(ctx); err != nil {
		return g, err
	}
	out, err := r.sh(ctx, "iptables-save | grep -c '^-A'")
	if err != nil {
		return g, err
	}
	if g.rules, err = strconv.Atoi(out); err != nil {
		return g, fmt.Errorf("count rules: %w", err)
	}
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("%s:%d", roomAddr, firstPort+i)
	}
	g.connect, err = dataBench(b).knock(ctx, addrs)
	b.report("  %s: %s rules, %s for a connection", e.name, count(g.rules), span(g.connect.median))
	return g, err
}

// nodePortsOf is what the kernel holds of n NodePort Services.
func nodePortsOf(e engine, n int) content {
	if e.name == "weir, ipvs" {
		return content{
			script: `ipvsadm -Sn > /tmp/bench/now
echo $(grep -c '^-a -t ` + roomAddr + `:3.* -m -w 1$' /tmp/bench/now) real servers of NodePorts
echo $(ipset list KUBE-NODE-PORTS | grep -c '^` + roomAddr + `,tcp:3') members of KUBE-NODE-PORTS`,
			want: fmt.Sprintf("%d real servers of NodePorts\n%d members of KUBE-NODE-PORTS", n*perService, n),
		}
	}
	// kube-proxy has a chain for every endpoint, weir for every endpoint of a ClusterIP
	// and of a NodePort; and there is changing's.
	chains := n * perService
	if e.name == "weir, netfilter" {
		chains *= 2
	}
	return content{
		script: `echo $(iptables-save -t nat | grep -c '^:KUBE-SEP-') endpoints`,
		want:   fmt.Sprintf("%d endpoints", chains+1),
	}
}

func (b nodePortBench) gateLines(name string, ours gate, peer string, their gate) {
	b.table.counts(fmt.Sprintf("%s, %s NodePorts x %d: rules", name, count(ours.services), perService), ours.rules, peer, their.rules)
	b.table.times("  a connection to a NodePort, median", ours.connect.median, "", their.connect.median, 0)
	b.table.times("  from the start until complete", ours.all, "", their.all.Round(time.Millisecond), 0)
}
