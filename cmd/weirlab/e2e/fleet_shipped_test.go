package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// office is the network that configs/fleet-l2.toml speaks of. Backends have no other way
// back than the gateway that the boxes answer for.
func office() lab.Site {
	s := lab.Site{Hosts: []lab.Host{{Name: "client", Nets: lab.Nets{"eth0": "10.1.0.100/24 fd00:1::100/64"}}}}
	for i := range 2 {
		s.Hosts = append(s.Hosts, lab.Host{
			Name:   webs[i],
			Nets:   lab.Nets{"eth1": fmt.Sprintf("10.2.0.%d/24 fd00:2::%d/64", 11+i, 11+i)},
			Routes: []string{"default via 10.2.0.254", "default via fd00:2::254"},
		})
		s.Boxes = append(s.Boxes, lab.Box{
			Name: fmt.Sprintf("box%d", i+1), Kernel: lab.UML,
			Nets: lab.Nets{"eth0": fmt.Sprintf("10.1.0.%d/24 fd00:1::%d/64", 5+i, 5+i), "eth1": fmt.Sprintf("10.2.0.%d/24 fd00:2::%d/64", 5+i, 5+i)},
		})
	}
	return s
}

// TestShippedFleetWithoutBGP has two boxes do what configs/fleet-l2.toml promises, with
// that very file: one owns all, and when it loses its power the other one takes over the
// VIPs, the gateway of the backends, and the connections of both.
func TestShippedFleetWithoutBGP(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "configs", "fleet-l2.toml"))
	if err != nil {
		t.Fatal(err)
	}
	l := lab.Start(t, office())
	for _, name := range webs[:2] {
		serveSeen(t, l.Host(name), 443)
	}
	key := newKey()
	var boxes []*site
	for i := range 2 {
		s := &site{Lab: l, box: l.Box(fmt.Sprintf("box%d", i+1)), weir: lab.Build(t, "weir/cmd/weir")}
		s.key(t, "cluster.key", key)
		s.box.Must(t, "sysctl", "-qw", "net.netfilter.nf_conntrack_max=200000")
		s.run(t, string(text))
		boxes = append(boxes, s)
	}
	for _, s := range boxes {
		eventually(t, time.Minute, func() error { return s.are(t, "box1 serving", "box2 serving") })
	}
	var owner int
	eventually(t, time.Minute, func() error {
		_, first := boxes[0].me(t)
		_, second := boxes[1].me(t)
		if owner = 0; second > 0 {
			owner = 1
		}
		if first+second != 4 || first*second != 0 { // two VIPs, two gateways
			return fmt.Errorf("they own %d and %d, want all 4 on one box", first, second)
		}
		return nil
	})
	vips := []string{"10.1.0.80", "fd00:1::80"}
	var all []*carried
	for _, vip := range vips {
		all = append(all, carrySeen(t, l.Host("client"), at(vip, 443), 50)...)
	}
	t.Logf("\n%s\n%s", boxes[owner].box.Must(t, boxes[owner].weir, "members"), boxes[owner].box.Must(t, boxes[owner].weir, "explain", at(vips[0], 443)))
	time.Sleep(3 * time.Second) // of talk
	cut := time.Now()
	boxes[owner].box.PowerCut()
	gap := eventually(t, 30*time.Second, func() error {
		for _, vip := range vips {
			conn, err := l.Host("client").DialContext(within(t, time.Second), "tcp", at(vip, 443))
			if err != nil {
				return err
			}
			_ = conn.Close()
		}
		return nil
	})
	alive, pause := await(all, time.Now(), cut)
	figure(t, "shipped fleet-l2.toml: power cut of the owner, new connections after", gap)
	figure(t, "shipped fleet-l2.toml: connections that live on, of 100, and their longest pause", []any{alive, pause.Round(10 * time.Millisecond)})
	if alive != len(all) {
		t.Errorf("%d of %d connections live on: %v", alive, len(all), why(all))
	}
	if _, owns := boxes[1-owner].me(t); owns != 4 {
		t.Errorf("the other box owns %d, want 4", owns)
	}
}

// serveSeen says on each connection whom it sees there, and gives back every byte.
func serveSeen(t *testing.T, m *lab.Machine, port int) {
	t.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				if _, err := fmt.Fprintln(c, c.RemoteAddr()); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
}

// carrySeen opens connections that talk, and sees that backends see who has opened them.
func carrySeen(t *testing.T, from *lab.Machine, addr string, n int) []*carried {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var talking sync.WaitGroup
	t.Cleanup(talking.Wait)
	t.Cleanup(cancel)
	var out []*carried
	for range n {
		conn, err := from.DialContext(within(t, 10*time.Second), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		r := bufio.NewReader(conn)
		_ = conn.SetDeadline(time.Now().Add(carriedPatience))
		seen, err := r.ReadString('\n')
		if own := conn.LocalAddr().(*net.TCPAddr).AddrPort().String(); err != nil || strings.TrimSpace(seen) != own {
			t.Fatalf("a backend of %s sees %q, want %s: %v", addr, seen, own, err)
		}
		c := &carried{last: time.Now()}
		out = append(out, c)
		talking.Go(func() { c.talk(ctx, conn, r, true) })
	}
	return out
}
