package web

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/traffic"
	"weir/lb"
)

// noon is when the tests take place.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// fakeBox is a Source with given answers, which counts its callers.
type fakeBox struct {
	mu    sync.Mutex
	box   Box
	doc   status.Services
	err   error
	took  time.Duration // what reading the kernel takes
	reads atomic.Int64
}

func (f *fakeBox) Box(context.Context) Box {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.box
}

func (f *fakeBox) Services(ctx context.Context) (status.Services, error) {
	f.reads.Add(1)
	f.mu.Lock()
	took, doc, err := f.took, f.doc, f.err
	f.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return status.Services{}, ctx.Err()
		}
	}
	return doc, err
}

// change alters the answers from now on.
func (f *fakeBox) change(by func(f *fakeBox)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by(f)
}

// healthy is a box on which all is well.
func healthy() Box {
	s := status.Status{
		State: status.OK, Version: "1.2.3", PID: 4711, Started: noon.Add(-26 * time.Hour),
		Config: status.Config{File: "/etc/weir/weir.toml", Loaded: noon.Add(-3 * time.Hour)},
		Kernel: status.Kernel{
			Release: "6.1.0-44-amd64", Mode: "ipvs", Rules: "iptables-nft", Services: 2, VirtualServers: 2, RealServers: 4, VIPs: 2, SetMembers: 6,
			LastSync: noon.Add(-4 * time.Second), LastAudit: noon.Add(-20 * time.Second), Drift: 3,
		},
		Backend: status.Backends{Up: 4},
	}
	return Box{Name: "edge1", Status: s, Events: status.Events{Events: []status.Event{
		{Seq: 1, Time: noon.Add(-26 * time.Hour), Level: "info", Text: "ready", Attrs: []status.Attr{{Key: "services", Value: "2"}}},
		{Seq: 2, Time: noon.Add(-time.Minute), Level: "warn", Text: "backend is down", Attrs: []status.Attr{{Key: "backend", Value: "10.2.0.12:8080"}, {Key: "error", Value: "connection refused"}}},
	}, Last: 2}}
}

// many are frontends with backends each, of which a few are down.
func many(n, backends int) status.Services {
	doc := status.Services{Frontends: make([]status.Frontend, n)}
	for i := range n {
		at := lb.Frontend{Addr: netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), Port: 80, Proto: lb.TCP}
		f := status.Frontend{
			Key: at, Service: fmt.Sprintf("static/svc-%05d", i), Source: "static", Name: fmt.Sprintf("svc-%05d", i), Kind: "LoadBalancer",
			Address: at.Addr.String(), Port: 80, Protocol: "tcp", Scheduler: "wrr", Traffic: &traffic.Counters{Connections: uint64(i), BytesIn: uint64(i) * 1000},
		}
		for j := range backends {
			key := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), byte(j + 1)}), 8080)
			s := status.Server{Key: key, Address: key.String(), Weight: 1, Active: uint32(i % 7), Health: "up", Traffic: &traffic.Counters{}}
			if (i*backends+j)%997 == 3 {
				s.Health, s.Weight, s.Error = "down", 0, "connection refused"
			}
			f.Servers = append(f.Servers, s)
		}
		doc.Frontends[i] = f
	}
	return doc
}

// add makes traffic.
func add(doc status.Services, conns, bytes uint64) status.Services {
	out := status.Services{Frontends: append([]status.Frontend{}, doc.Frontends...)}
	for i := range out.Frontends {
		f := &out.Frontends[i]
		c := *f.Traffic
		c.Connections += conns
		c.BytesIn += bytes
		c.BytesOut += 10 * bytes
		f.Traffic = &c
	}
	return out
}

var errBusy = errors.New("netlink: the kernel is busy")

// pageOf is the page of a box at noon, with a stopped clock.
func pageOf(t testing.TB, f *fakeBox) *Page {
	t.Helper()
	p := New(f)
	p.now = func() time.Time { return noon }
	p.read.now = p.now
	return p
}
