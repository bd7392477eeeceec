package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// connections is how many are made for one figure of the data path.
const connections = 2000

// data measures what a new connection costs: to the backend by way of the box as
// a router, to a virtual server of ipvsadm with nothing else on the box, and to
// weir's. All three cross the same cables.
func (b *bench) data(ctx context.Context) error {
	l, err := b.site.Host("web").Listen("tcp4", ":8080")
	if err != nil {
		return err
	}
	defer l.Close()
	go hangUp(l)
	runs := map[string][]latency{}
	for range b.rounds {
		for _, path := range b.paths() {
			got, err := b.measure(ctx, path)
			if err != nil {
				return fmt.Errorf("%s: %w", path.what, err)
			}
			b.say("  %s: %s each", path.what, span(got.median))
			runs[path.what] = append(runs[path.what], got)
		}
	}
	direct, bare := best(runs["direct"]), best(runs["ipvsadm"])
	for _, name := range []string{"through weir, client's address kept", "through weir, masqueraded"} {
		ours := best(runs[name])
		b.table.times(name, ours.median, "ipvsadm -m, no rule on the box", bare.median, 0)
		b.table.times("", ours.median, "direct, the box routes", direct.median, 0)
		b.table.add(figure{
			what: "  a second, one client", ours: count(ours.rate()), peer: "ipvsadm -m", their: count(bare.rate()),
			ratio: float64(ours.rate()) / float64(bare.rate()),
		})
	}
	return nil
}

// path is a way to the web server, and what the box needs for it.
type path struct {
	what, addr  string
	set, remove string // scripts
	toml        string // weir runs with it
}

func (b *bench) paths() []path {
	const service = "[[service]]\nname = \"web\"\nvips = [\"192.0.2.10\"]\nports = [\"80:8080\"]\nbackends = [\"10.2.0.11\"]\n"
	cleanup := b.weir + " cleanup"
	return []path{
		{what: "direct", addr: "10.2.0.11:8080", set: "true", remove: "true"},
		{
			what: "ipvsadm", addr: "192.0.2.20:80",
			set:    "ip addr add 192.0.2.20/32 dev lo; ipvsadm -A -t 192.0.2.20:80 -s rr; ipvsadm -a -t 192.0.2.20:80 -r 10.2.0.11:8080 -m",
			remove: "ipvsadm -C; ip addr del 192.0.2.20/32 dev lo",
		},
		{what: "through weir, client's address kept", addr: "192.0.2.10:80", toml: service + "source_address = \"keep\"\n", remove: cleanup},
		{what: "through weir, masqueraded", addr: "192.0.2.10:80", toml: service, remove: cleanup},
	}
}

func (b *bench) measure(ctx context.Context, p path) (latency, error) {
	if p.toml != "" {
		if err := b.configure(ctx, p.toml); err != nil {
			return latency{}, err
		}
		if _, err := b.home.start(ctx); err != nil {
			return latency{}, err
		}
		if err := b.home.stop(ctx); err != nil { // the kernel goes on alone
			return latency{}, err
		}
	} else if _, err := b.home.sh(ctx, p.set); err != nil {
		return latency{}, err
	}
	got, err := b.dial(ctx, p.addr)
	_, down := b.home.sh(ctx, p.remove)
	return got, errors.Join(err, down)
}

// latency is how long new connections took.
type latency struct {
	median time.Duration
	total  time.Duration
}

func (l latency) rate() int { return int(connections / l.total.Seconds()) }

func best(runs []latency) latency {
	return slices.MinFunc(runs, func(a, b latency) int { return int(a.median - b.median) })
}

// dial makes connections one after another from the client's network, each until
// the server hangs up, and takes the time until they stand.
func (b *bench) dial(ctx context.Context, addr string) (latency, error) {
	took := make([]time.Duration, 0, connections)
	begin := time.Now()
	err := b.site.Host("client").Do(func() error {
		dialer := net.Dialer{Timeout: 5 * time.Second}
		for range connections {
			start := time.Now()
			c, err := dialer.DialContext(ctx, "tcp4", addr)
			if err != nil {
				return err
			}
			took = append(took, time.Since(start))
			_, err = io.Copy(io.Discard, c)
			if err := errors.Join(err, c.Close()); err != nil {
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
	return latency{took[len(took)/2], total}, nil
}

// hangUp accepts and closes, until the listener ends.
func hangUp(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}
