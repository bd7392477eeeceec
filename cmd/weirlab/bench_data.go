package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// dataBench is the bench of new connections.
type dataBench struct{ *bench }

// data measures what a new connection costs: to the backend by way of the box as
// a router, to a virtual server of ipvsadm with nothing else on the box, with
// conntrack, and with one rule that masquerades, and to weir's. All of them cross
// the same cables. The differences from line to line show where the time goes.
func (b dataBench) data(ctx context.Context) error {
	l, err := b.site.Host("web").Listen("tcp4", ":8080")
	if err != nil {
		return err
	}
	defer traffic.ServeConns(l, func(net.Conn) {})()
	runs := map[string][]latency{}
	for range b.paths {
		for _, bed := range b.beds() {
			if err := b.measure(ctx, bed, runs); err != nil {
				return err
			}
		}
	}
	for _, c := range [][2]string{
		{bare, direct}, {tracked, bare}, {masked, tracked},
		{keeping, tracked}, {keeping, bare}, {masquerading, masked}, {masquerading, bare}, {tables, masked}, {tables, tablesOnly},
	} {
		b.compare(c[0], middle(runs[c[0]]), c[1], middle(runs[c[1]]))
	}
	return nil
}

// The paths of a new connection, and their names in the table.
const (
	direct       = "direct, the box only routes"
	bare         = "ipvsadm -m, no rule on the box"
	tracked      = "ipvsadm -m with conntrack"
	masked       = "the same with one rule, MASQUERADE"
	keeping      = "weir, client's address kept"
	masquerading = "weir, client masqueraded"
	tables       = "weir with nftables, client masqueraded"
	tablesOnly   = "the same without the rules for replies"
)

// compare adds a line for the time of a connection.
func (b dataBench) compare(what string, ours latency, peer string, their latency) {
	b.table.times(what, ours.median, peer, their.median, 0)
	b.table.counts("  connections per second", ours.rate(), "", their.rate())
}

// bed is what the box holds, and the ways to the web server that it offers.
type bed struct {
	config      string            // of weir
	set, remove string            // scripts, the first one after weir has ended
	paths       map[string]string // address by name
}

func (b dataBench) beds() []bed {
	const (
		server = "-t 192.0.2.20:80"
		mask   = "POSTROUTING -p tcp -d 10.2.0.11 --dport 8080 -j MASQUERADE"
		set    = "ip addr add 192.0.2.20/32 dev lo; ipvsadm -A " + server + " -s rr; ipvsadm -a " + server + " -r 10.2.0.11:8080 -m; sysctl -qw net.ipv4.vs.conntrack="
		remove = "ipvsadm -C; ip addr del 192.0.2.20/32 dev lo"
		addr   = "192.0.2.20:80"
	)
	return []bed{
		{set: set + "0", remove: remove, paths: map[string]string{direct: "10.2.0.11:8080", bare: addr}},
		{set: set + "1", remove: remove, paths: map[string]string{tracked: addr}},
		{set: set + "1; iptables -t nat -A " + mask, remove: "iptables -t nat -D " + mask + "; " + remove, paths: map[string]string{masked: addr}},
		{
			config: quiet, remove: b.weir + " cleanup",
			paths: map[string]string{keeping: "192.0.2.11:80", masquerading: "192.0.2.12:80"},
		},
		{config: quietTables, paths: map[string]string{tables: "192.0.2.12:80"}}, // it stays for the next one
		{set: "nft flush chain ip weir KUBE-REPLIES", remove: b.weir + " cleanup", paths: map[string]string{tablesOnly: "192.0.2.12:80"}},
	}
}

const quietTables = "sync_period = \"1h\"\nrules = \"nftables\"\n"

// twoServices are the bed of weir.
const twoServices = `
[[service]]
name = "keeping"
vips = ["192.0.2.11"]
ports = ["80:8080"]
backends = ["10.2.0.11"]
source_address = "keep"

[[service]]
name = "masquerading"
vips = ["192.0.2.12"]
ports = ["80:8080"]
backends = ["10.2.0.11"]
`

func (b dataBench) measure(ctx context.Context, bed bed, runs map[string][]latency) error {
	if err := b.make(ctx, bed); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(bed.paths)) {
		got, err := b.dial(ctx, bed.paths[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.report("  %s: %s each, %s a second", name, span(got.median), count(got.rate()))
		runs[name] = append(runs[name], got)
	}
	_, err := b.home.sh(ctx, bed.remove)
	return err
}

func (b dataBench) make(ctx context.Context, bed bed) error {
	if bed.config != "" {
		if err := b.configure(ctx, "[kernel]\n"+bed.config+twoServices); err != nil {
			return err
		}
		if _, err := b.home.start(ctx); err != nil {
			return err
		}
		if err := b.home.stop(ctx); err != nil { // the kernel forwards without the daemon
			return err
		}
	}
	_, err := b.home.sh(ctx, bed.set)
	return err
}

// latency is how long new connections took.
type latency struct {
	median time.Duration
	total  time.Duration
	of     int // connections
}

func (l latency) rate() int { return int(float64(l.of) / l.total.Seconds()) }

// middle takes the median of each: a lost packet costs a second, and would hide the difference between the
// programs in a mean.
func middle(runs []latency) latency {
	medians, totals := make([]time.Duration, len(runs)), make([]time.Duration, len(runs))
	for i, r := range runs {
		medians[i], totals[i] = r.median, r.total
	}
	slices.Sort(medians)
	slices.Sort(totals)
	return latency{median: medians[len(runs)/2], total: totals[len(runs)/2], of: runs[0].of}
}

// dial makes connections one after another from the client's network, to each of
// the addresses in turn, and takes the time until each stands. They end with a
// reset, so that no timer of TCP has a part in it.
func (b dataBench) dial(ctx context.Context, addrs ...string) (latency, error) {
	took := make([]time.Duration, 0, b.connections)
	begin := time.Now()
	err := b.site.Host("client").Do(func() error {
		dialer := net.Dialer{Timeout: 5 * time.Second}
		for i := range b.connections {
			start := time.Now()
			c, err := dialer.DialContext(ctx, "tcp4", addrs[i%len(addrs)])
			if err != nil {
				return err
			}
			took = append(took, time.Since(start))
			if err := errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return latency{}, err
	}
	total := time.Since(begin)
	slices.Sort(took)
	return latency{took[len(took)/2], total, len(took)}, nil
}

// knock connects to one address after the other, evenly, some rounds.
func (b dataBench) knock(ctx context.Context, addrs []string) (latency, error) {
	l, err := b.site.Host("web").Listen("tcp4", ":8080")
	if err != nil {
		return latency{}, err
	}
	defer traffic.ServeConns(l, func(net.Conn) {})()
	var runs []latency
	for range b.rounds + 1 {
		got, err := b.dial(ctx, addrs...)
		if err != nil {
			return latency{}, err
		}
		runs = append(runs, got)
	}
	return middle(runs), nil
}
