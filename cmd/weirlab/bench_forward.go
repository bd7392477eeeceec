package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/cmd/weirlab/lab"
)

// forwardBench is the bench of forwarding methods.
type forwardBench struct {
	*bench
	used atomic.Int32 // sources of connections
}

// The hosts of replies that do not pass the box: a server with all VIPs, and the router to its clients.
const (
	serverHost  = "server"
	serverAddr  = "10.2.0.12"
	returnHost  = "return"
	returnFront = "10.1.0.253"
	returnBack  = "10.2.0.253"
)

// forwardMethod is a forwarding method, from the box to a server.
type forwardMethod struct {
	name, flag string // of weir, of ipvsadm
	server     string
}

var forwardMethods = []forwardMethod{{"nat", "-m", "10.2.0.11"}, {"direct", "-g", serverAddr}, {"tunnel", "-i", serverAddr}}

// forward measures the packets, bytes and processor time of the box for each method, by weir and by ipvsadm, with one
// service and with as many as there are. All connections go to all services by turns.
func (b *forwardBench) forward(ctx context.Context) error {
	stop, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	b.table.line("  processor time: the box's kernel with its softirqs, without its network cards")
	for _, n := range alike(b.scale, 1, b.sizes[len(b.sizes)-1]) {
		ours := map[string]forwarded{}
		for _, method := range forwardMethods {
			weir, err := b.visit(ctx, method, n, b.byWeir(method, n))
			if err != nil {
				return fmt.Errorf("%s, %d services, weir: %w", method.name, n, err)
			}
			ipvsadm, err := b.visit(ctx, method, n, b.byIPVSAdm(method, n))
			if err != nil {
				return fmt.Errorf("%s, %d services, ipvsadm: %w", method.name, n, err)
			}
			b.lines(method, n, weir, ipvsadm)
			b.table.point("ipvs, "+method.name+": new connection", "s", n, 1/weir.connect.rate())
			ours[method.name] = weir
		}
		b.downloads(n, ours)
	}
	return nil
}

// forwardBed is a program that forwards: how the box gets it, and how it is rid of it.
type forwardBed struct{ set, remove func(context.Context) error }

// serviceVIP is the address of one of many services.
func serviceVIP(i int) string {
	return netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}).String()
}

func (b *forwardBench) byWeir(method forwardMethod, n int) forwardBed {
	var toml strings.Builder
	toml.WriteString("[kernel]\n" + quiet)
	for i := range n {
		fmt.Fprintf(&toml, "\n[[service]]\nname = \"svc-%05d\"\nvips = [%q]\nports = [80]\nforward = %q\nbackends = [%q]\n", i, serviceVIP(i), method.name, method.server)
		if method.name == "nat" {
			toml.WriteString("source_address = \"keep\"\n")
		}
	}
	return forwardBed{
		set: func(ctx context.Context) error {
			if err := b.configure(ctx, toml.String()); err != nil {
				return err
			}
			if _, err := b.home.start(ctx); err != nil {
				return err
			}
			return b.home.stop(ctx) // the kernel forwards without the daemon
		},
		remove: func(ctx context.Context) error {
			_, err := b.home.sh(ctx, b.weir+" cleanup")
			return err
		},
	}
}

func (b *forwardBench) byIPVSAdm(method forwardMethod, n int) forwardBed {
	var rules strings.Builder
	for i := range n {
		fmt.Fprintf(&rules, "-A -t %s:80 -s rr\n-a -t %s:80 -r %s:80 %s -w 1\n", serviceVIP(i), serviceVIP(i), method.server, method.flag)
	}
	return forwardBed{
		set: func(ctx context.Context) error {
			if err := b.box.WriteFile(ctx, saved, rules.String(), 0o644); err != nil {
				return err
			}
			_, err := b.home.sh(ctx, "ip route add local "+pool+" dev lo; sysctl -qw net.ipv4.vs.conntrack=0; ipvsadm -R < "+saved)
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := b.home.sh(ctx, "ipvsadm -C; ip route del local "+pool+" dev lo")
			return err
		},
	}
}

// forwarded is what was measured of a method: new connections, an upload, and downloads of a hundred times their
// requests.
type forwarded struct{ connect, upload, download load }

// visit measures a method with one of the programs.
func (b *forwardBench) visit(ctx context.Context, method forwardMethod, n int, bed forwardBed) (f forwarded, err error) {
	if err := bed.set(ctx); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, bed.remove(ctx)) }()
	vips := make([]string, n)
	for i := range vips {
		vips[i] = serviceVIP(i) + ":80"
	}
	size := b.transferred
	for _, part := range []struct {
		into *load
		exchanges
	}{
		{&f.connect, exchanges{count: b.exchanged, up: 1, down: 1}},
		{&f.upload, exchanges{count: bulkClients, up: size / bulkClients, down: 1}},
		{&f.download, exchanges{count: bulkClients, up: size / bulkClients / 100, down: size / bulkClients}},
	} {
		var runs []load
		for range 2*b.rounds - 1 {
			run, err := b.run(ctx, part.exchanges, vips)
			if err != nil {
				return f, err
			}
			runs = append(runs, run)
		}
		*part.into = middleLoad(runs)
		b.report("  %s: %s", method.name, *part.into)
	}
	return f, nil
}

// middleLoad takes the median of the times, in which a lost packet costs a second, and the mean of what the box did.
func middleLoad(runs []load) load {
	slices.SortFunc(runs, func(a, b load) int { return int(a.took - b.took) })
	middle := runs[len(runs)/2]
	middle.counted = counted{}
	for _, run := range runs {
		middle.packets += run.packets / len(runs)
		middle.bytes += run.bytes / len(runs)
		middle.cpu += run.cpu / time.Duration(len(runs))
	}
	return middle
}

// lines are those of a method.
func (b *forwardBench) lines(method forwardMethod, n int, ours, theirs forwarded) {
	peer := "ipvsadm " + method.flag
	rates := func(what string, our, their float64) {
		b.table.add(figure{what: what, ours: count(int(our)), peer: peer, their: count(int(their)), ratio: our / their})
	}
	rates(fmt.Sprintf("%s x 1, %s: connections per second", count(n), method.name), ours.connect.rate(), theirs.connect.rate())
	b.table.times("  processor time of the box for each", ours.connect.each(), peer, theirs.connect.each(), 0)
	rates("  upload: packets per second through the box", ours.upload.packetRate(), theirs.upload.packetRate())
	rates("  upload: MB per second through the box", ours.upload.byteRate()/1e6, theirs.upload.byteRate()/1e6)
	b.table.times("  upload: processor time of the box for a MB", ours.upload.perMB(), peer, theirs.upload.perMB(), 0)
}

// downloads are the lines about what the box has to do with a download.
func (b *forwardBench) downloads(n int, ours map[string]forwarded) {
	nat := ours["nat"].download
	for _, method := range forwardMethods {
		of := ours[method.name].download
		b.table.counts(fmt.Sprintf("%s x 1, %s: bytes through the box for a MB of 100:1", count(n), method.name), of.bytesPerMB(), "weir, nat", nat.bytesPerMB())
		b.table.times("  processor time of the box for it", of.perMB(), "weir, nat", nat.perMB(), 0)
	}
}

// counted is what the box has received and used so far.
type counted struct {
	packets, bytes int
	cpu            time.Duration
}

// counters reads the packets of the box's cards, which it forwards, and the processor time of its kernel.
func (b *forwardBench) counters(ctx context.Context) (c counted, err error) {
	out, err := b.home.sh(ctx, "cd /sys/class/net; cat front/statistics/rx_packets back/statistics/rx_packets front/statistics/rx_bytes back/statistics/rx_bytes")
	if err != nil {
		return c, err
	}
	var packets, bytes int
	if _, err := fmt.Sscan(out, &c.packets, &packets, &c.bytes, &bytes); err != nil {
		return c, fmt.Errorf("statistics %q: %w", out, err)
	}
	c.packets, c.bytes = c.packets+packets, c.bytes+bytes
	c.cpu, err = lab.ProcessorTime(b.box)
	return c, err
}
