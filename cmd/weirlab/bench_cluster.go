package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

const kubeProxy = "kube-proxy, ipvs"

// clusterBench is the bench of a node of a cluster.
type clusterBench struct{ *bench }

// cluster measures weir and kube-proxy in IPVS mode as nodes of a cluster: each in
// a room of its own, with the configuration that it has by default.
func (b clusterBench) cluster(ctx context.Context) error {
	few, many, most := 10, b.sizes[0], b.sizes[len(b.sizes)-1]
	weir, proxy := b.byWeir("ipvs"), b.byKubeProxy("ipvs")
	ours, theirs := map[int]stay{}, map[int]stay{}
	for _, n := range slices.Compact([]int{few, many, most}) {
		if err := b.populate(ctx, n, "ClusterIP"); err != nil {
			return err
		}
		var err error
		if ours[n], err = b.visit(ctx, weir, n, b.changesOfWeir, n >= many); err != nil {
			return err
		}
		b.growth(ours[n], n >= many)
		changes := b.changesOfKubeProxy
		switch {
		case n > many:
			continue // it would take ten minutes at least
		case n >= many:
			b.report("kube-proxy with %s Services: in user-mode Linux this takes two to four minutes", count(n))
			changes = b.changesAmongMany
		}
		if theirs[n], err = b.visit(ctx, proxy, n, changes, n >= many); err != nil {
			return err
		}
	}
	b.startLines(many, ours[many], theirs[many])
	b.restLines(many, ours[many], kubeProxy, theirs[many])
	b.againLines(many, ours[many])
	if most > many {
		peer := fmt.Sprintf("weir, %s Services", count(many))
		b.table.times(fmt.Sprintf("%s x %d: from the start until complete", count(most), perService), ours[most].all, peer, ours[many].all, 0)
		b.restLines(most, ours[most], peer, ours[many])
		b.againLines(most, ours[most])
	}
	for _, n := range slices.Compact([]int{few, many}) {
		b.changeLines(ours[n], theirs[n])
	}
	if most > many {
		b.changeLines(ours[most], theirs[many])
	}
	return nil
}

// growth records the figures of a node of a cluster. With few Services only changes are about their number.
func (b clusterBench) growth(s stay, rested bool) {
	b.table.point("cluster: endpoint changed, reached", "s", s.services, median(s.delays).Seconds())
	if !rested {
		return
	}
	b.table.point("cluster: start until complete", "s", s.services, s.all.Seconds())
	b.table.point("cluster: memory when complete", "MiB", s.services, float64(s.used.rss))
	b.table.point("cluster: restart, to READY", "s", s.services, s.again.total.Seconds())
	b.table.point("cluster: processor time, 30 s idle", "s", s.services, s.idle.cpu.Seconds()*30/b.restTime.Seconds())
	b.table.point("cluster: scrape", "s", s.services, s.idle.scrape.Seconds())
}

// stay is what was measured of an engine in a room.
type stay struct {
	services int
	began
	rest    time.Duration // processor time in restTime of rest
	resting usage         // after it
	again   resumed       // weir, started again; and idle then
	idle    idleness
	delays  []time.Duration
	cost    cost
}

// visit starts an engine in a room of its own and measures it there.
func (b clusterBench) visit(ctx context.Context, e engine, n, changes int, rest bool) (s stay, err error) {
	b.report("%s: %s Services", e.name, count(n))
	r, err := b.enterWired(ctx)
	if err != nil {
		return s, err
	}
	defer func() { _ = r.leave(ctx) }()
	s.services = n
	if s.began, err = r.awaits(ctx, e, clusterIPs(n)); err != nil {
		return s, err
	}
	if rest {
		if err := b.rest(ctx); err != nil {
			return s, err
		}
		b.report("  %s: at rest for %s", e.name, b.restTime)
		if s.rest, s.resting, err = r.idles(ctx); err != nil {
			return s, err
		}
	}
	if rest && e.resumes {
		node := rerun{r}
		if s.again, err = node.resumes(ctx); err != nil {
			return s, err
		}
		b.report("  %s: idle for %s after scrapes", e.name, b.restTime)
		if s.idle, err = node.idlesAfterScrapes(ctx); err != nil {
			return s, err
		}
	}
	b.report("  %s: one endpoint changed, %d times", e.name, changes)
	measured, err := r.changes(ctx, changes, e.rests)
	if err != nil {
		return s, err
	}
	s.delays = durations(measured)
	s.cost, err = r.costOfChange(ctx)
	b.report("  %s: median %s, slowest %s; processes started for one: %d, netlink buffers: %d",
		e.name, span(median(s.delays)), span(slices.Max(s.delays)), s.cost.processes, s.cost.buffers)
	return s, err
}

// clusterIPs are what the kernel holds of n Services with a ClusterIP.
func clusterIPs(n int) content {
	return content{
		script: `echo $(grep -c '^  -> 0A[89A-F]' /proc/net/ip_vs) real servers
ipvsadm -Sn > /tmp/bench/now
echo $(grep -c '^-A -t 10\.97\.' /tmp/bench/now) virtual servers
echo $(grep -c '^-a -t 10\.97\..* -m -w 1$' /tmp/bench/now) of weight 1
echo $(ipset list KUBE-CLUSTER-IP | grep -c '^10\.97\.') members of KUBE-CLUSTER-IP
echo $(ip -o -4 addr show dev kube-ipvs0 | grep -c ' 10\.97\.') addresses
iptables-save -t nat | grep -q 'match-set KUBE-CLUSTER-IP' && echo masquerades`,
		want: fmt.Sprintf("%d real servers\n%d virtual servers\n%d of weight 1\n%d members of KUBE-CLUSTER-IP\n%d addresses\nmasquerades",
			n*perService+1, n, n*perService, n, n),
	}
}

// replacement is one change of an endpoint, as it was measured.
type replacement struct {
	begin time.Time     // of the request to the API server
	took  time.Duration // until a connection reaches the endpoint
	api   time.Duration // until the API server has answered
	// starved is how long the box has waited for a processor of the host.
	starved time.Duration
}

func durations(changes []replacement) (out []time.Duration) {
	for _, c := range changes {
		out = append(out, c.took)
	}
	return out
}

// changes replaces the only endpoint of a Service repeatedly, each time by one
// that was never there, and takes the time from the request to the API server
// until a connection reaches it.
func (r *room) changes(ctx context.Context, changes int, rested bool) ([]replacement, error) {
	l, err := r.site.Host("web").Listen("tcp4", ":8080")
	if err != nil {
		return nil, err
	}
	defer traffic.ServeConns(l, func(c net.Conn) { // each client gets the address that it has reached
		host, _, _ := net.SplitHostPort(c.LocalAddr().String())
		_, _ = io.WriteString(c, host)
	})()
	var out []replacement
	for i := range changes {
		if rested {
			if err := r.rest(ctx); err != nil {
				return nil, err
			}
		} else if err := traffic.Pause(ctx, time.Duration(300+i*37%400)*time.Millisecond); err != nil {
			return nil, err // at times that have nothing to do with any period, over more than that of audits
		}
		c, err := r.oneChange(ctx, fmt.Sprintf("10.251.%d.1", i))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (r *room) oneChange(ctx context.Context, endpoint string) (c replacement, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c.starved, err = starved(r.box, func() error {
		c.begin = time.Now()
		if err := r.replace(ctx, endpoint); err != nil {
			return err
		}
		c.api = time.Since(c.begin)
		for {
			met, err := r.meets(ctx, probed+":80")
			c.took = time.Since(c.begin)
			if err == nil && met == endpoint {
				return nil
			}
			if err := traffic.Pause(ctx, time.Millisecond); err != nil {
				return fmt.Errorf("%s is never reached, the last was %q: %w\n%s", endpoint, met, err, r.daemon.Output())
			}
		}
	})
	return c, err
}

// meets makes a connection and gives the address that was reached.
func (r *room) meets(ctx context.Context, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := r.site.Host("client").DialContext(ctx, "tcp4", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	text, err := io.ReadAll(c)
	return string(text), err
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// startLimit is what weir promises on a node with a thousand Services and more: all
// of them in this part of the time that kube-proxy needs.
const startLimit = 0.1

// startLines are about the start with everything present.
func (b clusterBench) startLines(n int, ours, their stay) {
	what := fmt.Sprintf("%s x %d", count(n), perService)
	b.table.times(what+": from the start until complete", ours.all, kubeProxy+": its first sync", their.all, limitFor(n, startLimit))
	b.table.times("", ours.all, "  of that to the last real server", their.last, 0)
	b.table.times("  processor time until then", ours.used.cpu, kubeProxy, their.used.cpu, 0)
}

// restLines are about engines that have nothing to do.
func (b clusterBench) restLines(n int, ours stay, peer string, their stay) {
	what := fmt.Sprintf("%s x %d", count(n), perService)
	b.table.memory(what+": memory when complete", ours.used.rss, peer, their.used.rss)
	b.table.memory(fmt.Sprintf("  after %s at rest", b.restTime), ours.resting.rss, "", their.resting.rss)
	b.table.times("  processor time in that time", ours.rest, "", their.rest, 0)
}

// changeLines are about one changed endpoint.
func (b clusterBench) changeLines(ours, their stay) {
	peer := fmt.Sprintf("%s, %s Services", kubeProxy, count(their.services))
	b.table.times(fmt.Sprintf("%s: endpoint changed until reached", count(ours.services)), median(ours.delays), peer, median(their.delays), 0)
	b.table.times(fmt.Sprintf("  the slowest of %d", len(ours.delays)), slices.Max(ours.delays), fmt.Sprintf("  of %d", len(their.delays)), slices.Max(their.delays), 0)
	b.table.counts("  processes started for it", ours.cost.processes, "", their.cost.processes)
	b.table.counts("  netlink buffers to and fro", ours.cost.buffers, "", their.cost.buffers)
}
