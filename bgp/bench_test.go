package bgp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"

	"weir/bgp/advertise"
)

// How fast changes get to GoBGP's table, beside what GoBGP itself can do.
func BenchmarkRouteChanges(b *testing.B) {
	const n = 5000
	prefixes := hosts(n)
	b.Run("weir", func(b *testing.B) {
		box := newBox(b)
		box.configure(func(c *Config) {
			for i := range 4 {
				c.Peers = append(c.Peers, Peer{Name: fmt.Sprint("r", i), Address: loopback(), ASN: routerASN})
			}
		})
		for i := 0; b.Loop(); i++ {
			changes := map[netip.Prefix][]advertise.Path{}
			for _, p := range prefixes {
				changes[p] = []advertise.Path{{Peers: []string{"r0", "r1"}, MED: advertise.MetricOf(uint32(i))}, {Peers: []string{"r2"}}}
			}
			box.set(changes)
			if err := box.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "changes/s")
	})
	b.Run("gobgp", func(b *testing.B) {
		gobgp := server.NewBgpServer()
		go gobgp.Serve()
		defer gobgp.Stop()
		err := gobgp.StartBgp(context.Background(), &api.StartBgpRequest{Global: &api.Global{Asn: boxASN, RouterId: "192.0.2.1", ListenPort: -1}})
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			var req apiutil.AddPathRequest
			for _, p := range prefixes {
				path, err := (&class{id: uint32(i + 1)}).route(p)
				if err != nil {
					b.Fatal(err)
				}
				req.Paths = append(req.Paths, path)
			}
			if _, err := gobgp.AddPath(req); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "changes/s")
	})
}

// BenchmarkUntilLastUpdate takes the time from Set until a router has read the last UPDATE
// of 5,000 routes, and of their withdrawal, beside GoBGP without weir.
func BenchmarkUntilLastUpdate(b *testing.B) {
	prefixes := hosts(5000)
	b.Run("weir", func(b *testing.B) {
		r := newRaw(b)
		box := newBox(b, r.peer("r", netip.Addr{}))
		box.configure(nil)
		r.establish(capIPv4, capAS4)
		all, none := map[netip.Prefix][]advertise.Path{}, map[netip.Prefix][]advertise.Path{}
		for _, p := range prefixes {
			all[p], none[p] = to("r"), nil
		}
		for b.Loop() {
			box.set(all)
			r.hosts(len(prefixes), false)
			box.set(none)
			r.hosts(len(prefixes), true)
			r.send(keepalive, nil) // a busy machine measures for longer than the hold time
		}
	})
	b.Run("gobgp", func(b *testing.B) {
		r := newRaw(b)
		gobgp := server.NewBgpServer()
		go gobgp.Serve()
		defer gobgp.Stop()
		ctx := context.Background()
		err := gobgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: boxASN, RouterId: "192.0.2.1", ListenPort: -1}})
		if err != nil {
			b.Fatal(err)
		}
		if err := gobgp.AddPeer(ctx, &api.AddPeerRequest{Peer: apiPeer(r.peer("r", netip.Addr{}), 0, false)}); err != nil {
			b.Fatal(err)
		}
		r.establish(capIPv4, capAS4)
		var paths []*apiutil.Path
		for _, p := range prefixes {
			path, err := (&class{id: 1}).route(p)
			if err != nil {
				b.Fatal(err)
			}
			paths = append(paths, path)
		}
		for b.Loop() {
			if _, err := gobgp.AddPath(apiutil.AddPathRequest{Paths: paths}); err != nil {
				b.Fatal(err)
			}
			r.hosts(len(prefixes), false)
			if err := gobgp.DeletePath(apiutil.DeletePathRequest{Paths: paths}); err != nil {
				b.Fatal(err)
			}
			r.hosts(len(prefixes), true)
			r.send(keepalive, nil) // a busy machine measures for longer than the hold time
		}
	})
}

// hosts reads UPDATEs until n IPv4 hosts were announced, or withdrawn.
func (r *raw) hosts(n int, withdrawn bool) {
	r.t.Helper()
	const host = 5 // a length of 32, and the address
	for n > 0 {
		body := r.next(update)
		gone := int(binary.BigEndian.Uint16(body))
		attributes := int(binary.BigEndian.Uint16(body[2+gone:]))
		if withdrawn {
			n -= gone / host
		} else {
			n -= (len(body) - 4 - gone - attributes) / host
		}
	}
}
