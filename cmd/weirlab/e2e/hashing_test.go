package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

func (s *site) testDestinationHash(t *testing.T) {
	v4, v6 := vipsWith("dh")
	for _, vips := range [][]string{v4, v6} {
		all := map[string]int{}
		for _, vip := range vips {
			met := visits(t, s.client1, "tcp", at(vip, 80), 3)
			for name := range met {
				all[name]++
			}
			if len(met) != 1 {
				t.Errorf("%s: met %v, want one backend", vip, met)
			}
		}
		if len(all) < 2 {
			t.Errorf("VIPs %v: met %v, want several backends", vips, all)
		}
	}
}

func (s *site) testSourceHash(t *testing.T) {
	v4, v6 := vipsWith("sh")
	for _, family := range []struct{ vip, client string }{{v4[0], "10.1.0.%d/24"}, {v6[0], "fd01::%d/64"}} {
		all := map[string]int{}
		for i := range 12 {
			client := netip.MustParsePrefix(fmt.Sprintf(family.client, 100+i))
			s.client1.Must(t, "ip", "addr", "add", client.String(), "dev", "front", "nodad")
			met := map[string]int{}
			for range 3 {
				met[visitFrom(t, s.client1, client.Addr(), at(family.vip, 80)).server]++
			}
			if len(met) != 1 {
				t.Errorf("%s at %s: met %v, want one backend", client, family.vip, met)
			}
			for name := range met {
				all[name]++
			}
		}
		if len(all) < 2 {
			t.Errorf("%s: 12 clients met %v, want several backends", family.vip, all)
		}
	}
}

// visitFrom visits from one of the addresses of a client.
func visitFrom(t *testing.T, client *lab.Machine, from netip.Addr, addr string) answer {
	t.Helper()
	c, err := visit(t.Context(), func(ctx context.Context, network, addr string) (net.Conn, error) {
		return client.DialFrom(ctx, network, &net.TCPAddr{IP: from.AsSlice()}, addr)
	}, "tcp", addr)
	if err != nil {
		t.Fatalf("%s visits %s: %v", from, addr, err)
	}
	_ = c.Close()
	return c.answer
}

// server is what weir and the kernel know of a backend of a frontend.
type server struct {
	Address  string `json:"address"`
	Weight   int    `json:"weight"`
	Active   int    `json:"active"`
	Draining bool   `json:"draining"`
}

// server reads a backend of a frontend, both as ADDRESS:PORT.
func (s *site) server(t testing.TB, frontend, backend string) server {
	t.Helper()
	var doc struct {
		Frontends []struct {
			Address string   `json:"address"`
			Port    int      `json:"port"`
			Servers []server `json:"servers"`
		} `json:"frontends"`
	}
	s.weirJSON(t, &doc, "services")
	for _, f := range doc.Frontends {
		if at(f.Address, f.Port) != frontend {
			continue
		}
		for _, be := range f.Servers {
			if be.Address == backend {
				return be
			}
		}
	}
	t.Fatalf("weir services shows no %s at %s: %+v", backend, frontend, doc)
	return server{}
}

// A backend that takes no new connections still has its place in the table of
// mh, and who is hashed there would be refused without the flag fallback.
func (s *site) testMaglevFallback(t *testing.T) {
	vips, ports := []string{vip4, vip6}, []string{"80:8080"}
	mh := func(weights [3]int) string {
		return declared("mh", vips, ports, nil, `scheduler = "mh"`, weighted(weights))
	}
	gone := declared("mh", vips, ports, append(slices.Delete(slices.Clone(webs4), 1, 2), slices.Delete(slices.Clone(webs6), 1, 2)...),
		`scheduler = "mh"`)
	s.fresh(t, mh([3]int{1, 1, 1}))
	for _, vip := range vips {
		if met := visits(t, s.client1, "tcp", at(vip, 80), 60); met["web2"] == 0 {
			t.Errorf("%s: met %v, want web2 as well", vip, met)
		}
	}
	_, _ = stay(t, s.client1, at(vip4, 80))
	for _, out := range []struct{ name, toml string }{
		{"with weight 0", mh([3]int{1, 0, 1})}, {"up again", mh([3]int{1, 1, 1})}, {"draining", gone},
	} {
		t.Run(out.name, func(t *testing.T) {
			s.holdAt(t, "web2", at(vip4, 80), at(vip6, 80))
			s.reload(t, out.toml)
			if draining := s.server(t, at(vip4, 80), "10.2.0.12:8080").Draining; draining != (out.name == "draining") {
				t.Errorf("web2 draining: %v", draining)
			}
			for _, vip := range vips {
				met := visits(t, s.client1, "tcp", at(vip, 80), 200)
				if web2 := met["web2"]; (web2 > 0) != (out.name == "up again") {
					t.Errorf("%s: met %v of web2 %s", vip, met, out.name)
				}
			}
		})
	}
}

// testHashFallback has one backend down, then draining, where many VIPs (dh) and
// many clients (sh) hash to it.
func (s *site) testHashFallback(t *testing.T) {
	var hearts []*webServer // what the checks ask
	for i := range webs {
		hearts = append(hearts, serveHTTP(t, s.web(i+1), 9999))
	}
	dh4, dh6 := vipsWith("dh")
	dhs := append(dh4, dh6...)
	var clients [][2]string // address and VIP
	for i := range 12 {
		for _, f := range [][2]string{{fmt.Sprintf("10.1.0.%d", 130+i), vip4}, {fmt.Sprintf("fd01::%d", 130+i), vip6}} {
			bits := map[bool]string{true: "/64", false: "/24"}[strings.Contains(f[0], ":")]
			s.client1.Must(t, "ip", "addr", "replace", f[0]+bits, "dev", "front", "nodad")
			clients = append(clients, f)
		}
	}
	meet := func(t *testing.T, scheduler string) map[string]int {
		met := map[string]int{}
		if scheduler == "dh" {
			for _, vip := range dhs {
				met[mustVisit(t, s.client1, "tcp", at(vip, 80)).server]++
			}
			return met
		}
		for _, c := range clients {
			met[visitFrom(t, s.client1, netip.MustParseAddr(c[0]), at(c[1], 80)).server]++
		}
		return met
	}
	toml := func(on ...string) string {
		return declared("dh", dhs, []string{"80:8080"}, on, `scheduler = "dh"`, check("tcp", "port = 9999")) +
			declared("sh", []string{vip4, vip6}, []string{"80:8080"}, on, `scheduler = "sh"`, check("tcp", "port = 9999"))
	}
	// serving waits until so many frontends give web2 traffic.
	serving := func(want int) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			n := 0
			text := s.box.Must(t, "ipvsadm", "-Sn")
			for _, line := range append(linesWith(text, " 10.2.0.12:8080 "), linesWith(text, " [fd02::12]:8080 ")...) {
				if !strings.HasSuffix(strings.TrimSpace(line), "-w 0") {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("%d frontends give web2 traffic, want %d", n, want)
			}
			return nil
		})
	}
	all := append(slices.Clone(webs4), webs6...)
	s.fresh(t, toml(all...))
	for _, step := range []struct {
		name string
		do   func(*testing.T)
		out  bool
	}{
		{"up", func(t *testing.T) { serving(len(dhs) + 2) }, false},
		{"down", func(t *testing.T) { hearts[1].stop(); serving(0) }, true},
		{"up again", func(t *testing.T) { hearts[1] = serveHTTP(t, s.web(2), 9999); serving(len(dhs) + 2) }, false},
		{"draining", func(t *testing.T) {
			for _, vip := range append([]string{vip4, vip6}, dhs...) {
				_, _ = stay(t, s.client1, at(vip, 80))
			}
			s.reload(t, toml(webs4[0], webs4[2], webs6[0], webs6[2]))
		}, true},
	} {
		step.do(t)
		for _, scheduler := range []string{"sh", "dh"} {
			t.Run(scheduler+" "+step.name, func(t *testing.T) {
				met := meet(t, scheduler)
				t.Logf("met %v", met)
				if (met["web2"] == 0) != step.out {
					t.Errorf("met %v of web2 %s", met, step.name)
				}
			})
		}
	}
}
