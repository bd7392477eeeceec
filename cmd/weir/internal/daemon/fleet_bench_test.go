package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"weir/cluster/owner"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// crowd is a fleet of three with so many VIPs, of which this box serves all.
func crowd(vips int) *fleet {
	f := newFleet(slog.New(slog.DiscardHandler), "v1", "/nonexistent", time.Now())
	f.cfg = &config.Fleet{Rules: owner.Rules{Mode: owner.ActiveStandby}, Weight: 100}
	f.cfg.Gossip.Name = "a"
	f.stand.joined, f.stand.now.Own = true, owner.Settled
	w := word{vips: map[netip.Addr]part{}}
	for i := range vips {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		f.routes[a] = []lb.Serving{{}}
		w.vips[a] = partServes
	}
	for _, name := range []string{"b", "c"} {
		f.fellows[name] = &fellow{standing: owner.Settled, word: w}
	}
	f.share.all = true
	f.decide(time.Now())
	return f
}

func BenchmarkDecide(b *testing.B) {
	for _, vips := range []int{100, 10_000} {
		f := crowd(vips)
		b.Run(fmt.Sprintf("all of %d", vips), func(b *testing.B) {
			for b.Loop() {
				f.share.all = true
				f.decide(time.Now())
			}
		})
		b.Run(fmt.Sprintf("one of %d", vips), func(b *testing.B) {
			for b.Loop() {
				f.share.dirty[netip.MustParseAddr("10.0.0.7")] = struct{}{}
				f.decide(time.Now())
			}
		})
		b.Run(fmt.Sprintf("a word of %d", vips), func(b *testing.B) {
			for b.Loop() {
				text, err := f.word().encode()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := parseWord(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHashService(b *testing.B) {
	s := lb.Service{ID: static("web"), VIPs: []lb.VIP{{Addr: vipA}}, Ports: []lb.Port{{Proto: lb.TCP, Port: 80}}}
	for i := range 50 {
		s.Ports[0].Backends = append(s.Ports[0].Backends, lb.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80), Weight: 1})
	}
	for b.Loop() {
		hashService(s)
	}
}
