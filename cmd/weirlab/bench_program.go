package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"time"
)

// programming is what it took to program one configuration, the best of some
// rounds. The rounds of weir and of ipvsadm alternate, each in a room of its own.
// Where VIPs are one route, the IPVS content is as before: ipvsadm's best stands.
type programming struct {
	net, took, parse time.Duration // weir: to READY without parse, its first pass, reading its configuration
	restore          time.Duration // ipvsadm -R of the same, without routes
}

// ratioLimit is what weir promises for a thousand services and more: all of them in
// this part of the time that ipvsadm needs for the IPVS part.
const ratioLimit = 0.35

// limitFor is a limit for n services, 0 for a few: of these, the start is the larger part.
func limitFor(n int, limit float64) float64 {
	if n < 1000 {
		return 0
	}
	return limit
}

// programBench is the bench of programming from an empty kernel.
type programBench struct{ *bench }

func (b programBench) program(ctx context.Context) error {
	for _, n := range alike(b.scale, b.sizes...) {
		b.report("program %s services", count(n))
		addresses, err := b.programMany(ctx, n, "")
		if err != nil {
			return fmt.Errorf("%d services: %w", n, err)
		}
		b.report("program %s services, VIPs by one route", count(n))
		route, err := b.programMany(ctx, n, routed)
		if err != nil {
			return fmt.Errorf("%d services, VIPs by one route: %w", n, err)
		}
		start, err := b.home.timed(ctx, b.weir+" version")
		if err != nil {
			return err
		}
		restore := addresses.restore
		what := fmt.Sprintf("%s x %d", count(n), perService)
		b.programmed(n, what, addresses, restore)
		b.programmed(n, what+", VIPs by one route", route, restore)
		b.table.times("  before either: start, read the configuration", min(addresses.parse, route.parse), "only the start: weir version", start, 0)
	}
	return nil
}

// programmed adds the lines of one configuration of n services.
func (b programBench) programmed(n int, what string, p programming, restore time.Duration) {
	b.table.times(what, p.net, "ipvsadm -R, IPVS only", restore, limitFor(n, ratioLimit))
	b.table.times("  of that the first pass", p.took, "", restore, 0)
}

func (b programBench) programMany(ctx context.Context, n int, kernel string) (programming, error) {
	best := programming{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	if err := b.configure(ctx, manyServices(n, kernel)); err != nil {
		return best, err
	}
	rounds := b.rounds
	if n <= 1000 && rounds > 1 {
		rounds *= 2 // they are short, and so all the more disturbed by whatever else runs
	}
	for range rounds {
		if err := b.programByWeir(ctx, n, kernel == routed, &best); err != nil {
			return best, err
		}
		if kernel == routed {
			continue
		}
		if err := b.programByIPVSAdm(ctx, &best); err != nil {
			return best, err
		}
	}
	return best, nil
}

// saved is where the box keeps the IPVS content that weir programmed, and sum
// the key by which another content is recognised as the same.
const (
	saved = "/tmp/bench/ipvs"
	sum   = "ipvsadm -Sn | LC_ALL=C sort | sha256sum"
)

// The configuration always has a warning, for its long sync_period: the line is
// the first that weir writes, as soon as it has read it.
var configLine = regexp.MustCompile(`time=(\S+) level=WARN msg="configuration warning"`)

func (b programBench) programByWeir(ctx context.Context, n int, routed bool, best *programming) error {
	r, err := b.enter(ctx, "weir")
	if err != nil {
		return err
	}
	defer func() { _ = r.leave(ctx) }()
	got, err := r.start(ctx)
	if err != nil {
		return err
	}
	configured, err := timeOf(configLine, r.daemon.Output())
	if err != nil {
		return err
	}
	net := got.at.Sub(configured)
	b.report("  weir: ready after %s, of that %s with the configuration read, first pass %s", span(got.total), span(net), span(got.took))
	best.parse = min(best.parse, got.total-net)
	best.took = min(best.took, got.took)
	best.net = min(best.net, net)
	if err := r.complete(ctx, n, routed); err != nil {
		return err
	}
	_, err = r.sh(ctx, "ipvsadm -Sn > "+saved+"; "+sum+" > "+saved+".sum")
	return err
}

func (b programBench) programByIPVSAdm(ctx context.Context, best *programming) error {
	r, err := b.enter(ctx, "ipvsadm")
	if err != nil {
		return err
	}
	defer func() { _ = r.leave(ctx) }()
	took, err := r.timed(ctx, "ipvsadm -R < "+saved)
	if err != nil {
		return err
	}
	b.report("  ipvsadm -R: %s", span(took))
	best.restore = min(best.restore, took)
	if _, err := r.sh(ctx, sum+" | cmp - "+saved+".sum"); err != nil {
		return fmt.Errorf("ipvsadm restored something else than weir programmed: %w", err)
	}
	return nil
}

// complete checks with other people's tools that everything is there for n
// services, and nothing else.
func (r *room) complete(ctx context.Context, n int, routed bool) error {
	addresses, nets := n, 0
	if routed {
		addresses, nets = 0, 1
	}
	// Each family has one virtual server more, the anchor that keeps conntrack on.
	const anchors = 2
	want := fmt.Sprintf("servers %d\nbackends %d\naddresses %d\nroutes %d\nKUBE-LOAD-BALANCER %d\n"+
		"KUBE-IPVS-PORTS %d\nKUBE-IPVS-IPS %d\nKUBE-IPVS-NETS %d\nrules",
		n+anchors, perService*n+anchors, addresses, nets, n, n, addresses, nets)
	got, err := r.sh(ctx, `
ipvsadm -Sn > /tmp/bench/now
echo servers $(grep -c '^-A' /tmp/bench/now)
echo backends $(grep -c '^-a.* -m -w [01]$' /tmp/bench/now)
echo addresses $(ip -o -4 addr show dev kube-ipvs0 | wc -l)
echo routes $(ip route show table local `+pool+` | wc -l)
for s in LOAD-BALANCER IPVS-PORTS IPVS-IPS IPVS-NETS; do
	echo KUBE-$s $(ipset -t list KUBE-$s | sed -n 's/Number of entries: //p')
done
for t in nat filter; do iptables-save -t $t | grep -q 'match-set KUBE-'; done && echo rules`)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("not complete: want\n%s\ngot\n%s", want, got)
	}
	return nil
}
