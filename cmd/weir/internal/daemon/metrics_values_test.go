package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/bgp"
	"weir/cluster"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/k8ssync"
	"weir/k8ssync/ipam"
	"weir/l2"
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

// gaugeBox makes such a box, which settles. Its fleet has a second member "b", which
// serves the same vips.
func gaugeBox(t *testing.T, toml string, vips ...string) *gauged {
	t.Helper()
	g := &gauged{member: grown(t, toml, vips...), land: newLand(t, calm), giver: &latencies{}, kernel: &refusing{Fake: &lb.Fake{}}}
	b := g.box
	b.opts.Version = "1.2.3"
	b.clusters, b.provider, b.checks, b.kernel = g.land.clusters, g.giver, health.New(health.Options{}), &linux.Kernel{}
	b.probes = newProbed(t).healthPorts
	b.fleet.answer.took = func(d time.Duration) { b.metrics.takeovers.Observe(d.Seconds()) }
	b.announcer.measure = b.measureAnnouncing
	b.loops(t)
	g.land.set(t.Context(), blocks("prod"))
	synctest.Wait()
	g.pass(t)
	return g
}

// pass has the loop do its work once.
func (g *gauged) pass(t *testing.T) {
	t.Helper()
	g.changed, g.fleet.news = true, true
	g.box.pass(t.Context(), g.rec.Sync)
	synctest.Wait()
}

// fresh replaces the reconciler: as after a restart, with the kernel as it is.
func (g *gauged) fresh(sources ...string) {
	g.rec = lb.NewReconciler(g.kernel, g.options(), sources...)
}

// scrape gives the samples that a box has for Prometheus, by their names and labels. A
// histogram is its _count and its _sum.
func scrape(t testing.TB, b *box) map[string]float64 {
	t.Helper()
	families, err := b.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
	mine, theirs := rivals()
	for _, tt := range []struct {
		name    string
		happens func(t *testing.T, g *gauged)
		samples []sample
	}{
		{"a version", func(_ *testing.T, g *gauged) { g.opts.Version = "1.2.4" }, []sample{
			{`weir_build_info{version="1.2.3"}`, 1, absentSample}, {`weir_build_info{version="1.2.4"}`, absentSample, 1},
		}},
		{"two services want one frontend", func(t *testing.T, g *gauged) {
			g.fresh(config.Source, "prod")
			late := served(1)
			late.VIPs[0].Addr = netip.MustParseAddr(mine)
			g.rec.Update(lb.Update{Source: config.Source, Put: g.cfg.Services, Synced: true})
			g.rec.Update(lb.Update{Source: "prod", Put: []lb.Service{late}, Synced: true})
		}, []sample{{`weir_notes{reason="conflict"}`, absentSample, 1}, {"weir_conflicts", 0, 1}}},
		{"a reload", func(_ *testing.T, g *gauged) {
			g.metrics.reloaded(nil)
			time.Sleep(time.Minute)
			g.metrics.reloaded(errors.New("refused"))
		}, []sample{
			{"weir_config_last_reload_successful", 1, 0},
			{"weir_config_last_reload_success_timestamp_seconds", begun, begun + settling},
		}},
		{"the kernel refuses backends", func(_ *testing.T, g *gauged) {
			g.kernel.refuse = true
			g.fresh(config.Source)
			g.rec.Update(lb.Update{Source: config.Source, Put: g.cfg.Services, Synced: true})
		}, []sample{{"weir_op_errors_total", 0, refusedOps}, {"weir_ops_pending", 0, refusedOps}}},
		{"a source is not there yet after a restart", func(t *testing.T, g *gauged) {
			g.fresh(config.Source)
			g.rec.Update(lb.Update{Source: config.Source, Put: g.cfg.Services, Synced: true})
			g.pass(t)
			g.fresh(config.Source, "prod")
			g.rec.Update(lb.Update{Source: config.Source, Synced: true})
		}, []sample{{"weir_ops_held", 0, heldOps}}},
		{"netlink", func(_ *testing.T, g *gauged) {
			n := g.box.kernel.Counters()
			n.IPVS.Sends.Add(2)
			n.IPSet.Errors.Add(3)
			n.Route.Retries.Add(4)
			n.Moved.Add(5)
		}, []sample{
			{`weir_kernel_sends_total{part="ipvs"}`, 0, 2}, {`weir_kernel_refused_total{part="ipset"}`, 0, 3},
			{`weir_kernel_retries_total{part="route"}`, 0, 4}, {"weir_mh_moved_total", 0, 5},
		}},
		{"a cluster", func(_ *testing.T, g *gauged) {
			town := g.land.towns[0]
			town.status.Endpoints, town.status.SnapshotError = 7, "no space left"
		}, []sample{{`weir_kubernetes_endpoints{cluster="prod"}`, 0, 7}, {`weir_kubernetes_file_failed{cluster="prod"}`, 0, 1}}},
		{"an EndpointSlice changes", func(_ *testing.T, g *gauged) {
			g.fresh(config.Source, "prod")
			g.land.towns[0].say(lb.Update{Put: []lb.Service{served(1)}, Triggered: map[lb.ServiceID]time.Time{shop("s1"): time.Now()}})
			synctest.Wait()
			g.box.hear()
		}, []sample{
			{`weir_programming_latency_seconds_count{cluster="prod"}`, absentSample, 1}, {`weir_programming_latency_seconds_sum{cluster="prod"}`, absentSample, glanceAge.Seconds()},
		}},
		{"addresses", givesAddresses, []sample{
			{`weir_pool_size{pool="public"}`, absentSample, 16}, {"weir_addresses_stranded", absentSample, 2}, {"weir_address_writer", absentSample, 1},
			{"weir_address_writer_transitions_total", absentSample, 1}, {"weir_address_status_writes_total", absentSample, 2},
			{"weir_address_errors_total", absentSample, 3}, {"weir_addresses_assigned_total", absentSample, 4},
			{"weir_addresses_released_total", absentSample, 5}, {"weir_address_conflicts_total", absentSample, 6},
			{"weir_assign_latency_seconds_count", 0, 2}, {"weir_assign_latency_seconds_sum", 0, 0.75},
		}},
		{"a session is lost", func(_ *testing.T, g *gauged) {
			g.herald.says(bgp.PeerStatus{
				Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), State: bgp.Idle, Flaps: 1, Advertised: 2, Prefixes: 3, MaxPrefixes: 4,
				BFD: bgp.BFDStatus{Enabled: true, State: "down"},
			})
		}, []sample{
			{`weir_bgp_flaps_total{address="10.0.0.1",peer="tor1"}`, absentSample, 1}, {`weir_bgp_advertised{address="10.0.0.1",peer="tor1"}`, absentSample, 2},
			{`weir_bgp_received{address="10.0.0.1",peer="tor1"}`, absentSample, 3}, {`weir_bgp_prefix_limit{address="10.0.0.1",peer="tor1"}`, absentSample, 4},
			{`weir_bgp_bfd_up{address="10.0.0.1",peer="tor1"}`, absentSample, 0}, {`weir_bgp_up{address="10.0.0.1",peer="tor1"}`, absentSample, 0},
		}},
		{"BFD comes up", func(_ *testing.T, g *gauged) {
			g.herald.says(bgp.PeerStatus{Name: "tor1", Address: netip.MustParseAddr("10.0.0.1"), State: bgp.Established, BFD: bgp.BFDStatus{Enabled: true, State: "up"}})
		}, []sample{{`weir_bgp_bfd_up{address="10.0.0.1",peer="tor1"}`, absentSample, 1}}},
		{"a VIP is drained, and the state can't be kept", func(_ *testing.T, g *gauged) {
			g.drainer.drained = g.drainer.drained.with(time.Now(), netip.MustParseAddr(mine))
			g.drainer.err = errors.New("read-only file system")
		}, []sample{{"weir_drained_vips", 0, 1}, {"weir_drain_file_failed", 0, 1}, {"weir_drained", 0, 0}}},
		{"a route is told after a while", func(t *testing.T, g *gauged) {
			g.say(t, oneRouter+inFleet+onWire+services(mine, theirs, "198.51.100.1"))
			g.stirred = time.Now().Add(-3 * time.Second)
		}, []sample{{"weir_announce_latency_seconds_count", 0, 1}, {"weir_announce_latency_seconds_sum", 0, 3 + glanceAge.Seconds()}}},
		{"another member takes a VIP", func(t *testing.T, g *gauged) {
			g.rumor.status.Members = nil
		}, []sample{{"weir_routes_standby", 1, 0}, {`weir_fleet_vips{role="standby"}`, 1, 0}, {`weir_fleet_vips{role="owner"}`, 1, 2}}},
		{"gossip", func(_ *testing.T, g *gauged) {
			s := &g.rumor.status
			s.Counters = cluster.Counters{Joins: 1, Deaths: 2, Suspicions: 3, Conflicts: 4, Refused: 5, Dropped: 6}
			s.Strain, s.Error, s.Unjoined = 7, "its port is taken", map[string]string{"10.9.0.77": "refused"}
		}, []sample{
			{"weir_fleet_joins_total", 0, 1}, {"weir_fleet_deaths_total", 0, 2}, {"weir_fleet_suspicions_total", 0, 3},
			{"weir_fleet_name_conflicts_total", 0, 4}, {"weir_fleet_refused_total", 0, 5}, {"weir_fleet_dropped_total", 0, 6},
			{"weir_fleet_strain", 0, 7}, {"weir_fleet_failed", 0, 1}, {"weir_fleet_unjoined", 0, 1},
		}},
		{"a member does not answer", func(t *testing.T, g *gauged) {
			b := settledMember("b")
			b.Suspect = true
			g.rumor.says(t, b, able(netip.MustParseAddr(mine), netip.MustParseAddr(theirs)))
		}, []sample{{"weir_fleet_suspects", 0, 1}}},
		{"a member has backends in another order", func(t *testing.T, g *gauged) {
			front := lb.Frontend{Addr: netip.MustParseAddr(mine), Port: 80, Proto: lb.TCP}
			g.fleet.orders = func() map[lb.Frontend]uint64 { return map[lb.Frontend]uint64{front: 1} }
			w := able(netip.MustParseAddr(mine), netip.MustParseAddr(theirs))
			w.sources = g.fleet.say.word.sources
			w.orders = map[string]string{front.String(): "another"}
			g.rumor.says(t, settledMember("b"), w)
			g.fleet.say.stale = true // so that this box reads its own orders
		}, []sample{{`weir_fleet_order_differs{member="b"}`, 0, 1}}},
		{"the wire", func(_ *testing.T, g *gauged) {
			g.mouth.status.Interfaces = []l2.Interface{{Name: "eth0", Index: 3, Carrier: true, Counters: l2.Counters{
				Gratuitous: 1, Probes: 2, Takeovers: 3, Unheard: 4, Unsent: 5,
			}}, {Name: "eth1", Index: 4}}
			g.fleet.answer.since[netip.MustParseAddr(mine)] = time.Now()
			g.mouth.status.VIPs = []l2.VIP{{Addr: netip.MustParseAddr(mine), Interface: "eth0", State: l2.Held, Since: time.Now().Add(2 * time.Second)}}
		}, []sample{
			{`weir_l2_carrier{interface="eth0"}`, absentSample, 1}, {`weir_l2_carrier{interface="eth1"}`, absentSample, 0},
			{`weir_l2_gratuitous_total{interface="eth0"}`, absentSample, 1}, {`weir_l2_probes_total{interface="eth0"}`, absentSample, 2},
			{`weir_l2_takeovers_total{interface="eth0"}`, absentSample, 3}, {`weir_l2_unheard_total{interface="eth0"}`, absentSample, 4},
			{`weir_l2_unsent_total{interface="eth0"}`, absentSample, 5}, {"weir_l2_takeover_seconds_count", 0, 1}, {"weir_l2_takeover_seconds_sum", 0, 2},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gaugeBox(t, inFleet+onWire, mine, theirs)
				compareSamples(t, "before", scrape(t, g.box), tt.samples, func(s sample) float64 { return s.before })
				tt.happens(t, g)
				time.Sleep(glanceAge) // what was read of routers is read anew
				g.pass(t)
				compareSamples(t, "after", scrape(t, g.box), tt.samples, func(s sample) float64 { return s.after })
			})
		})
	}
}

// begun is when a bubble of package synctest begins; a gaugeBox settles settling later.
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
	if err != nil {
		t.Fatal(err)
	}
	g.pooled = true
	s := &g.giver.status
	s.Usage = ipam.New(ipam.Config{Pools: []ipam.Pool{{Name: "public", Ranges: []ipam.Range{r}}}}).Usage()
	s.Usage.Pools[0].Stranded = 2
	s.Writing = true
	s.Counters = k8ssync.ProviderCounters{Transitions: 1, StatusWrites: 2, Errors: 3, Assigned: 4, Released: 5, Conflicts: 6}
	g.giver.took = []time.Duration{500 * time.Millisecond, 250 * time.Millisecond}
	g.given()
}

// TestRoutesThatTheFloorKeepsAreCounted takes the backends of all VIPs away.
func TestRoutesThatTheFloorKeepsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toml := strings.Replace(oneRouter, `floor = "0%"`, `floor = "50%"`, 1) + services("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")
		b, _, _ := heraldBox(t, toml)
		b.loops(t)
		kept := func() float64 {
			b.turn(t)
			b.show()
			b.announcements(t.Context())
			out := make(chan prometheus.Metric, 100)
			collector{b}.speaking(out, status.Status{BGP: b.bgpStatus()})
			return only(t, out)["weir_routes_kept"]
		}
		if n := kept(); n != 0 {
			t.Errorf("weir_routes_kept is %v while all have backends", n)
		}
		b.say(t, regexp.MustCompile(`backends = .*`).ReplaceAllString(toml, "backends = []"))
		if n := kept(); n != 2 {
			t.Errorf("weir_routes_kept is %v, want half of four", n)
		}
	})
}

// TestChecksAreMeasured checks a backend that answers and one that does not.
func TestChecksAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 250 * time.Millisecond
		b := &box{cfg: parse(t, twoServices)}
		b.checks = health.New(health.Options{Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			time.Sleep(took)
			if addr == "10.0.0.3:80" {
				return nil, errors.New("no route to host")
			}
			c, _ := net.Pipe()
			return c, nil
		}})
		b.checks.Set(b.cfg.Checks)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go b.checks.Run(ctx) //nolint:errcheck // it ends with ctx
		if err := b.checks.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		out := make(chan prometheus.Metric, 100)
		collector{b}.health(out)
		got := only(t, out)
		for name, want := range map[string]float64{
			`weir_checks_total{result="success"}`: 2, `weir_checks_total{result="failure"}`: 1,
			`weir_check_last_duration_seconds{backend="10.0.0.1:8080",port="80",protocol="tcp",service="static/a"}`: took.Seconds(),
			`weir_backend_up{backend="10.0.0.3:80",port="80",protocol="tcp",service="static/b"}`:                    0,
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
	p := newProbed(t)
	b := &box{probes: p.healthPorts}
	measured := func() map[string]float64 {
		out := make(chan prometheus.Metric, 100)
		collector{b}.rest(out, status.Status{})
		return only(t, out)
	}
	before := measured()
	p.set(map[lb.ServiceID]lb.HealthCheck{shop("web"): {Port: 30000, Endpoints: 1}, shop("api"): {Port: 30001}}, home, time.Now())
	p.ask(t, 30000, "/")
	p.ask(t, 30000, "/")
	p.ask(t, 30001, "/")
	after := measured()
	for name, want := range map[string]float64{`weir_health_port_requests_total{code="200"}`: 2, `weir_health_port_requests_total{code="503"}`: 1, "weir_health_ports": 2} {
		if before[name] != 0 || after[name] != want {
			t.Errorf("%s is %v and then %v, want 0 and %v", name, before[name], after[name], want)
		}
	}
}

// only reads what a part of the collector has put into a channel.
func only(t testing.TB, out chan prometheus.Metric) map[string]float64 {
	t.Helper()
	close(out)
	r := prometheus.NewRegistry()
	r.MustRegister(collected(slices.Collect(func(yield func(prometheus.Metric) bool) {
		for m := range out {
			if !yield(m) {
				return
			}
		}
	})))
	b := &box{metrics: &metrics{registry: r}}
	return scrape(t, b)
}

// collected are metrics that were collected already.
type collected []prometheus.Metric

func (collected) Describe(chan<- *prometheus.Desc) {}

func (c collected) Collect(out chan<- prometheus.Metric) {
	for _, m := range c {
		out <- m
	}
}
