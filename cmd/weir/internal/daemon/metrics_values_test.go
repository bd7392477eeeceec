package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/bgp"
	"weir/cluster"
	"weir/cluster/l2"
	"weir/cmd/weir/internal/announce"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/metrics"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/supervise"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/lb"
	"weir/lb/health"
	"weir/lb/linux"
)

// gauged is a box with every part that has metrics. Only its kernel, its routers, its
// fleet, its cluster and its provider are a test's.
type gauged struct {
	*member
	land   *land
	giver  *latencies
	kernel *refusing
}

// latencies is a giver that reports how long it took to give addresses.
type latencies struct {
	giver
	took []time.Duration
}

func (l *latencies) TakeLatencies() []time.Duration {
	out := l.took
	l.took = nil
	return out
}

// gaugeBox makes such a box, which becomes stable. Its fleet has a second member "b", which
// serves the same vips.
func gaugeBox(t *testing.T, toml string, vips ...string) *gauged {
	t.Helper()
	g := &gauged{member: stableMember(t, toml, vips...), land: newLand(t), giver: &latencies{}, kernel: &refusing{Fake: &lb.Fake{}}}
	b := g.box
	b.passes.version = "1.2.3"
	b.sources.clusters, b.sources.pools, b.target.checks, b.target.kernel = g.land.Clusters, poolsOf(g.giver), health.New(health.Options{}), &linux.Kernel{}
	b.sources.probes, _ = localPorts(t)
	b.loops(t)
	g.land.Set(t.Context(), blocks("prod"))
	synctest.Wait()
	g.pass(t)
	return g
}

// pass has the loop do its work once.
func (g *gauged) pass(t *testing.T) {
	t.Helper()
	g.target.changes.kernel++
	g.steering.fleet.Refresh()
	g.box.passes.pass(t.Context(), g.target.rec.Sync)
	synctest.Wait()
}

// fresh replaces the reconciler: as after a restart, with the kernel as it is.
func (g *gauged) fresh(sources ...string) {
	g.target.rec = lb.NewReconciler(g.kernel, g.options(), sources...)
}

// scrape gives the samples that a box has for Prometheus, by their names and labels. A
// histogram is its _count and its _sum.
func scrape(t testing.TB, b *box) map[string]float64 {
	t.Helper()
	families, err := b.metrics.Gatherer().Gather()
	must(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			suffix := ""
			if len(labels) > 0 {
				suffix = "{" + strings.Join(labels, ",") + "}"
			}
			if h := m.GetHistogram(); h != nil {
				out[f.GetName()+"_count"+suffix], out[f.GetName()+"_sum"+suffix] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			out[f.GetName()+suffix] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// absentSample stands for a sample that is not there.
const absentSample = -1

// sample is one before and after something has happened.
type sample struct {
	name          string
	before, after float64
}

// compareSamples compares samples with what a box has.
func compareSamples(t testing.TB, what string, got map[string]float64, samples []sample, value func(sample) float64) {
	t.Helper()
	for _, s := range samples {
		have, there := got[s.name]
		if !there {
			have = absentSample
		}
		if want := value(s); have != want {
			t.Errorf("%s: %s is %v, want %v", what, s.name, have, want)
		}
	}
}

// TestMetricsFollowWhatHappens provokes a change of each metric and compares its value
// before and after it.
func TestMetricsFollowWhatHappens(t *testing.T) {
	mine, theirs := ownVIPs()
	for _, tt := range []struct {
		name    string
		happens func(t *testing.T, g *gauged)
		samples []sample
	}{
		{"a version", func(_ *testing.T, g *gauged) { g.passes.version = "1.2.4" }, []sample{
			{`weir_build_info{version="1.2.3"}`, 1, absentSample}, {`weir_build_info{version="1.2.4"}`, absentSample, 1},
		}},
		{"two services want one frontend", func(t *testing.T, g *gauged) {
			g.fresh(config.Source, "prod")
			late := served(1)
			late.VIPs[0].Addr = netip.MustParseAddr(mine)
			g.target.rec.Update(lb.Update{Source: config.Source, Put: g.target.cfg.Services, Synced: true})
			g.target.rec.Update(lb.Update{Source: "prod", Put: []lb.Service{late}, Synced: true})
		}, []sample{{`weir_notes{reason="conflict"}`, absentSample, 1}, {"weir_conflicts", 0, 1}}},
		{"a reload", func(_ *testing.T, g *gauged) {
			g.inForce.loaded = time.Now()
			time.Sleep(time.Minute)
			g.inForce.err = errors.New("refused")
		}, []sample{
			{"weir_config_last_reload_successful", 1, 0},
			{"weir_config_last_reload_success_timestamp_seconds", begun, begun + settling},
		}},
		{"the kernel refuses backends", func(_ *testing.T, g *gauged) {
			g.kernel.refuse = true
			g.fresh(config.Source)
			g.target.rec.Update(lb.Update{Source: config.Source, Put: g.target.cfg.Services, Synced: true})
		}, []sample{{"weir_op_errors_total", 0, refusedOps}, {"weir_ops_pending", 0, refusedOps}}},
		{"a source is not there yet after a restart", func(t *testing.T, g *gauged) {
			g.fresh(config.Source)
			g.target.rec.Update(lb.Update{Source: config.Source, Put: g.target.cfg.Services, Synced: true})
			g.pass(t)
			g.fresh(config.Source, "prod")
			g.target.rec.Update(lb.Update{Source: config.Source, Synced: true})
		}, []sample{{"weir_ops_blocked", 0, heldOps}}},
		{"a service has very many backends", func(_ *testing.T, g *gauged) {
			g.fresh(config.Source)
			g.target.rec.Configure(g.target.options(g.target.cfg, g.target.node))
			large := served(1)
			for addr := netip.MustParseAddr("10.64.0.1"); len(large.Ports[0].Backends) < supervise.PerPass+7; addr = addr.Next() {
				large.Ports[0].Backends = append(large.Ports[0].Backends, lb.Backend{Addr: netip.AddrPortFrom(addr, 8080), Weight: 1})
			}
			g.target.rec.Update(lb.Update{Source: config.Source, Put: []lb.Service{large}, Synced: true})
		}, []sample{{"weir_ops_postponed", 0, 7}}},
		{"netlink", func(_ *testing.T, g *gauged) {
			n := g.box.target.kernel.Counters()
			n.IPVS.Sends.Add(2)
			n.IPSet.Errors.Add(3)
			n.Route.Retries.Add(4)
			n.Moved.Add(5)
			n.RulesKept.Add(6)
		}, []sample{
			{`weir_netlink_sends_total{part="ipvs"}`, 0, 2}, {`weir_netlink_errors_total{part="ipset"}`, 0, 3},
			{`weir_netlink_retries_total{part="route"}`, 0, 4}, {"weir_mh_reordered_total", 0, 5},
			{`weir_ruleset_reads_total{result="unchanged"}`, 0, 6},
		}},
		{"a cluster", func(_ *testing.T, g *gauged) {
			town := g.land.towns[0]
			town.status.Endpoints, town.status.SnapshotError = 7, "no space left"
			town.status.KernelObjects, town.status.OverBudget = 900, 2
		}, []sample{{`weir_kubernetes_kernel_objects{cluster="prod"}`, 0, 900}, {`weir_kubernetes_services_over_budget{cluster="prod"}`, 0, 2}, {`weir_kubernetes_endpoints{cluster="prod"}`, 0, 7}, {`weir_kubernetes_snapshot_failed{cluster="prod"}`, 0, 1}}},
		{"an EndpointSlice changes", func(_ *testing.T, g *gauged) {
			g.fresh(config.Source, "prod")
			g.land.towns[0].send(lb.Update{Put: []lb.Service{served(1)}, Triggered: map[lb.ServiceID]time.Time{shop("s1"): time.Now()}})
			synctest.Wait()
			g.box.sources.receive()
		}, []sample{
			{`weir_programming_duration_seconds_count{cluster="prod"}`, absentSample, 1}, {`weir_programming_duration_seconds_sum{cluster="prod"}`, absentSample, announce.SnapshotAge.Seconds()},
		}},
		{"addresses", givesAddresses, []sample{
			{`weir_pool_size{pool="public"}`, absentSample, 16}, {"weir_addresses_outside_pool", absentSample, 2}, {"weir_address_writer", absentSample, 1},
			{`weir_node_addresses_ignored{cluster="prod"}`, absentSample, 5},
			{"weir_address_writer_transitions_total", absentSample, 1}, {"weir_address_status_writes_total", absentSample, 2},
			{"weir_address_errors_total", absentSample, 3}, {"weir_addresses_assigned_total", absentSample, 4},
			{"weir_addresses_released_total", absentSample, 5}, {"weir_address_conflicts_total", absentSample, 6},
			{"weir_address_assign_duration_seconds_count", 0, 2}, {"weir_address_assign_duration_seconds_sum", 0, 0.75},
		}},
		{"a session is lost", func(_ *testing.T, g *gauged) {
			g.speaker.setPeers(bgp.PeerStatus{
				Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), State: bgp.Idle, Flaps: 1, Advertised: 2, Prefixes: 3, MaxPrefixes: 4,
				BFD: bgp.BFDStatus{Enabled: true, State: "down"},
			})
		}, []sample{
			{`weir_bgp_flaps_total{address="10.0.0.1",peer="tor1"}`, absentSample, 1}, {`weir_bgp_advertised{address="10.0.0.1",peer="tor1"}`, absentSample, 2},
			{`weir_bgp_received{address="10.0.0.1",peer="tor1"}`, absentSample, 3}, {`weir_bgp_prefix_limit{address="10.0.0.1",peer="tor1"}`, absentSample, 4},
			{`weir_bgp_bfd_up{address="10.0.0.1",peer="tor1"}`, absentSample, 0}, {`weir_bgp_session_up{address="10.0.0.1",peer="tor1"}`, absentSample, 0},
		}},
		{"BFD comes up", func(_ *testing.T, g *gauged) {
			g.speaker.setPeers(bgp.PeerStatus{Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), State: bgp.Established, BFD: bgp.BFDStatus{Enabled: true, State: "up"}})
		}, []sample{{`weir_bgp_bfd_up{address="10.0.0.1",peer="tor1"}`, absentSample, 1}}},
		{"a VIP is drained, and the state can't be kept", func(_ *testing.T, g *gauged) {
			g.steering.drains.Move("/proc/nowhere") // where no file can be
			g.steering.drains.Replace(g.steering.drains.Set().With(time.Now(), netip.MustParseAddr(mine)))
		}, []sample{{"weir_drained_vips", 0, 1}, {"weir_drain_state_failed", 0, 1}, {"weir_drained", 0, 0}}},
		{"a route is told after a while", func(t *testing.T, g *gauged) {
			g.reload(t, oneRouter+inFleet+onWire+services(mine, theirs, "198.51.100.1"))
			g.passes.progress.since = time.Now().Add(-3 * time.Second)
		}, []sample{{"weir_announce_duration_seconds_count", 0, 1}, {"weir_announce_duration_seconds_sum", 0, 3 + announce.SnapshotAge.Seconds()}}},
		{"another member takes a VIP", func(t *testing.T, g *gauged) {
			g.gossip.status.Members = nil
		}, []sample{{"weir_routes_standby", 1, 0}, {`weir_fleet_vips{role="standby"}`, 1, 0}, {`weir_fleet_vips{role="owner"}`, 1, 2}}},
		{"gossip", func(_ *testing.T, g *gauged) {
			s := &g.gossip.status
			s.Counters = cluster.Counters{Joins: 1, Deaths: 2, Suspicions: 3, Conflicts: 4, Refused: 5, Dropped: 6, Replayed: 8}
			s.HealthScore, s.Error, s.Unreachable = 7, "its port is taken", map[string]string{"10.9.0.77": "refused"}
		}, []sample{
			{"weir_fleet_joins_total", 0, 1}, {"weir_fleet_deaths_total", 0, 2}, {"weir_fleet_suspicions_total", 0, 3},
			{"weir_fleet_name_conflicts_total", 0, 4}, {"weir_fleet_refused_total", 0, 5}, {"weir_fleet_dropped_total", 0, 6}, {"weir_fleet_replayed_total", 0, 8},
			{"weir_fleet_health_score", 0, 7}, {"weir_fleet_failed", 0, 1}, {"weir_fleet_join_unreachable", 0, 1},
		}},
		{"a member does not answer", func(t *testing.T, g *gauged) {
			b := stablePeer("b")
			b.Suspect = true
			g.gossip.report(t, b, serving(netip.MustParseAddr(mine), netip.MustParseAddr(theirs)))
		}, []sample{{"weir_fleet_suspects", 0, 1}}},
		{"a member has backends in another order", func(t *testing.T, g *gauged) {
			front := lb.Frontend{Addr: netip.MustParseAddr(mine), Port: 80, Proto: lb.TCP}
			g.orders = map[lb.Frontend]uint64{front: 1}
			w := serving(netip.MustParseAddr(mine), netip.MustParseAddr(theirs))
			w.Sources = g.member.message(t).Sources
			w.Orders = map[string]string{front.String(): "another"}
			g.gossip.report(t, stablePeer("b"), w)
			g.steering.fleet.Receive(lb.Update{Source: config.Source}) // so that this box reads its own orders
			time.Sleep(publishDigestsEvery)
		}, []sample{{`weir_fleet_mh_order_differs{member="b"}`, 0, 1}}},
		{"connections of drains are counted", func(_ *testing.T, g *gauged) {
			g.metrics.CountedDrains(3 * time.Second)
		}, []sample{{"weir_drain_count_duration_seconds_count", 0, 1}, {"weir_drain_count_duration_seconds_sum", 0, 3}}},
		{"an audit has read the kernel", func(_ *testing.T, g *gauged) {
			g.metrics.Audited(3 * time.Second)
		}, []sample{{"weir_audit_duration_seconds_count", 0, 1}, {"weir_audit_duration_seconds_sum", 0, 3}}},
		{"the wire", func(_ *testing.T, g *gauged) {
			g.answerer.status.Interfaces = []l2.Interface{{Name: "eth0", Index: 3, Carrier: true, Counters: l2.Counters{
				Gratuitous: 1, Probes: 2, Takeovers: 3, ReceiveDrops: 4, SendDrops: 5, Overruled: 6,
			}}, {Name: "eth1", Index: 4}}
			g.answerer.status.VIPs = []l2.VIP{{Addr: netip.MustParseAddr(mine), Interface: "eth0", State: l2.Answered, Since: g.answerer.claimed[netip.MustParseAddr(mine)].Add(2 * time.Second)}}
		}, []sample{
			{`weir_l2_carrier{interface="eth0"}`, absentSample, 1}, {`weir_l2_carrier{interface="eth1"}`, absentSample, 0},
			{`weir_l2_gratuitous_total{interface="eth0"}`, absentSample, 1}, {`weir_l2_probes_total{interface="eth0"}`, absentSample, 2},
			{`weir_l2_takeovers_total{interface="eth0"}`, absentSample, 3}, {`weir_l2_receive_dropped_total{interface="eth0"}`, absentSample, 4},
			{`weir_l2_overruled_total{interface="eth0"}`, absentSample, 6},
			{`weir_l2_send_failed_total{interface="eth0"}`, absentSample, 5}, {"weir_l2_takeover_duration_seconds_count", 0, 1}, {"weir_l2_takeover_duration_seconds_sum", 0, 2},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gaugeBox(t, inFleet+onWire, mine, theirs)
				compareSamples(t, "before", scrape(t, g.box), tt.samples, func(s sample) float64 { return s.before })
				tt.happens(t, g)
				time.Sleep(announce.SnapshotAge) // the state of routers is read again
				g.pass(t)
				compareSamples(t, "after", scrape(t, g.box), tt.samples, func(s sample) float64 { return s.after })
			})
		})
	}
}

// begun is when a bubble of package synctest begins; a gaugeBox becomes stable settling later.
const (
	begun    = 946684800
	settling = 31
)

const (
	// refusedOps are the backends of two services, and of weir's own virtual server of each
	// family.
	refusedOps = 4
	// heldOps are the deletions of two services: a virtual server, a real server, an
	// address and three members of sets each.
	heldOps = 12
)

// givesAddresses makes the box the one that gives addresses of a pool.
func givesAddresses(t *testing.T, g *gauged) {
	r, err := ipam.ParseRange("198.51.100.0/28")
	must(t, err)
	g.sources.pools.Configure(onePool(t))
	s := &g.giver.status
	s.Usage = ipam.New(ipam.Config{Pools: []ipam.Pool{{Name: "public", Ranges: []ipam.Range{r}}}}).Usage()
	s.Usage.OutsidePool = 2
	s.IgnoredNodes = map[string]k8ssync.IgnoredNodes{"prod": {Count: 5}}
	s.Writing = true
	s.Counters = k8ssync.ProviderCounters{Transitions: 1, StatusWrites: 2, Errors: 3, Assigned: 4, Released: 5, Conflicts: 6}
	g.giver.took = []time.Duration{500 * time.Millisecond, 250 * time.Millisecond}
	g.sources.assigned()
}

// TestRoutesThatTheFloorKeepsAreCounted takes the backends of all VIPs away.
func TestRoutesThatTheFloorKeepsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toml := strings.Replace(oneRouter, `min_announced = "0%"`, `min_announced = "50%"`, 1) + services("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")
		b, _, _ := speakerBox(t, toml)
		b.loops(t)
		kept := func() float64 {
			b.pass(t)
			b.show()
			b.steering.announcer.Reader().Refresh(t.Context())
			return only(t, metrics.Sample{Status: status.Status{BGP: b.steering.announcer.Reader().Status()}})["weir_routes_without_backends"]
		}
		if n := kept(); n != 0 {
			t.Errorf("weir_routes_without_backends is %v while all have backends", n)
		}
		b.reload(t, regexp.MustCompile(`backends = .*`).ReplaceAllString(toml, "backends = []"))
		if n := kept(); n != 2 {
			t.Errorf("weir_routes_without_backends is %v, want half of four", n)
		}
	})
}

// TestChecksAreMeasured checks a backend that answers and one that does not.
func TestChecksAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 250 * time.Millisecond
		b := newTestBox(parse(t, twoServices))
		b.target.checks = health.New(health.Options{Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			time.Sleep(took)
			if addr == "10.0.0.3:80" {
				return nil, errors.New("no route to host")
			}
			c, _ := net.Pipe()
			return c, nil
		}})
		b.target.checks.Set(b.target.cfg.Checks)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.target.checks.Run(ctx) //nolint:errcheck // it ends with ctx
		must(t, b.target.checks.Ready(ctx))
		stats := b.target.checks.Stats()
		stats.Void = 4
		got := only(t, metrics.Sample{Checks: stats})
		for name, want := range map[string]float64{
			`weir_checks_total{result="success"}`: 2, `weir_checks_total{result="failure"}`: 1, `weir_checks_total{result="void"}`: 4,
		} {
			if v, there := got[name]; !there || v != want {
				t.Errorf("%s is %v (%v), want %v of %v", name, v, there, want, got)
			}
		}
	})
}

// TestHealthPortsAreMeasured asks a healthCheckNodePort that has endpoints, and one that
// has none.
func TestHealthPortsAreMeasured(t *testing.T) {
	t.Parallel()
	p, addrs := localPorts(t)
	measured := func() map[string]float64 {
		x := metrics.Sample{HealthPorts: len(p.Open())}
		x.ProbesOK, x.ProbesFailed = p.Answered()
		return only(t, x)
	}
	before := measured()
	p.Set(1, map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}, shop("api"): {Port: 30001}}, loopback, time.Now())
	for _, port := range []uint16{30000, 30000, 30001} {
		resp, err := http.Get("http://" + addrs[port])
		must(t, err)
		_ = resp.Body.Close()
	}
	after := measured()
	for name, want := range map[string]float64{`weir_health_port_requests_total{code="200"}`: 2, `weir_health_port_requests_total{code="503"}`: 1, "weir_health_ports": 2} {
		if before[name] != 0 || after[name] != want {
			t.Errorf("%s is %v and then %v, want 0 and %v", name, before[name], after[name], want)
		}
	}
	for range 300 { // more than a port has open at a time
		c, err := net.Dial("tcp", addrs[30000])
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	if resp, err := http.Get("http://" + addrs[30000]); err != nil {
		t.Error(err)
	} else {
		_ = resp.Body.Close()
	}
	const dropped = "weir_http_connections_dropped_total"
	if n := measured()[dropped] - after[dropped]; n < 1 {
		t.Errorf("%s grew by %v among 300 idle connections", dropped, n)
	}
}

// only returns the metrics of a sample.
func only(t testing.TB, x metrics.Sample) map[string]float64 {
	t.Helper()
	return scrape(t, &box{telemetry: &telemetry{metrics: metrics.New(func() metrics.Sample { return x })}})
}

// Requests for the state of the box do not ask the allocator, which would work for each Service. They show the last pass.
func TestRequestsDoNotAskTheAllocator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gaugeBox(t, oneRouter, "192.0.2.1")
		givesAddresses(t, g)
		g.pass(t)
		asked := g.giver.asked
		for range 10 {
			g.answers.condition()
			g.answers.guard(t.Context())
			if s := g.answers.status(t.Context()); s.Addresses == nil || s.Addresses.OutsidePool != 2 {
				t.Fatalf("addresses: %+v", s.Addresses)
			}
			if s := g.answers.sample(); s.Provider.Usage.OutsidePool != 2 {
				t.Fatalf("usage: %+v", s.Provider.Usage)
			}
		}
		if g.giver.asked != asked {
			t.Errorf("the allocator is asked %d times for 40 requests", g.giver.asked-asked)
		}
		time.Sleep(time.Minute)
		g.giver.status.Usage.OutsidePool = 3
		g.sources.assigned()
		g.pass(t)
		if s := g.answers.status(t.Context()); s.Addresses.OutsidePool != 3 {
			t.Errorf("after a change: %+v", s.Addresses)
		}
	})
}
