package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/drill"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// TestMemberTrouble has two boxes without routers share VIPs, while a host of their network attacks their
// gossip, while one of them is frozen, and when one of them starts with the name of the other one.
//
// The foreign host meets members with timing lan, the other stories have timing local.
//
// The daemon of one of two boxes is frozen, and the whole box, for 5 seconds, and in make soak for 30
// seconds. It does not know of that afterwards. Clients of the other box notice nothing, and each VIP has
// one owner in the end.
func TestMemberTrouble(t *testing.T) {
	t.Parallel()
	k := newKin(t, boxBeside(plain(lab.UML), 9))
	k.serveAll(t, 8080)
	echoAll(t, k.Lab)
	key, cards := newKey(), map[string]int{}
	more := serves("echo", kinVIPs, "7000", allWebs, "") + serves("datagrams", kinVIPs, "7000/udp", allWebs, "")
	for i, s := range k.boxes {
		s.key(t, "one.key", key)
		// With timing local, a machine that does not run for a second makes a member seem dead.
		s.run(t, strings.Replace(k.config(i, `"one.key"`, kinVIPs, ""), `timing = "local"`, `timing = "lan"`, 1)+more)
		cards[s.mac(t)] = i + 1
	}
	t.Run("gossip of a foreign host", k.foreignGossip)
	for i, s := range k.boxes {
		s.reload(t, k.config(i, `"one.key"`, kinVIPs, "")+more)
	}
	lengths := []time.Duration{5 * time.Second, 30 * time.Second}
	for _, length := range lengths[:sized(1, 2)] {
		for _, of := range []struct {
			name         string
			freeze, thaw func() error
		}{
			{
				"daemon", func() error { return k.boxes[1].daemon.Signal(syscall.SIGSTOP) },
				func() error { return k.boxes[1].daemon.Signal(syscall.SIGCONT) },
			},
			{"box", func() error { return lab.Freeze(k.boxes[1].box) }, func() error { return lab.Thaw(k.boxes[1].box) }},
		} {
			what := fmt.Sprintf("frozen %s of a member, %s", of.name, length)
			t.Run(what, func(t *testing.T) { k.freezes(t, what, cards, length, of.freeze, of.thaw) })
		}
	}
	t.Run("a box with the name of a member", func(t *testing.T) { k.sharedName(t, more) })
	t.Run("a member with another address", func(t *testing.T) { k.movedMember(t, more) })
}

func (s *site) mac(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(s.box.Must(t, "cat", "/sys/class/net/front/address"))
}

// learnedFrom lists the VIPs that a client has learned the MAC address of a box for.
func (k *kin) learnedFrom(t *testing.T, mac string) (vips []string) {
	t.Helper()
	k.visit(t)
	for line := range strings.Lines(k.client1.Must(t, "ip", "neigh", "show", "dev", "front")) {
		if f := strings.Fields(line); slices.Contains(f, mac) && slices.Contains(kinVIPs, f[0]) {
			vips = append(vips, f[0])
		}
	}
	slices.Sort(vips) // IPv4 first
	return vips
}

// shared waits until both members serve, and each VIP has one owner.
func (k *kin) shared(t *testing.T) {
	t.Helper()
	for _, s := range k.boxes {
		eventually(t, time.Minute, func() error { return s.are(t, "box1 serving", "box2 serving") })
	}
	eventually(t, time.Minute, func() error { return k.shares(t, -1) })
}

func (k *kin) freezes(t *testing.T, what string, cards map[string]int, length time.Duration, freeze, thaw func() error) {
	k.shared(t)
	frozen := k.learnedFrom(t, k.boxes[1].mac(t))
	var web, echo, others []string
	for _, vip := range kinVIPs {
		web, echo = append(web, at(vip, 80)), append(echo, at(vip, 7000))
		if !slices.Contains(frozen, vip) {
			others = append(others, at(vip, 80))
		}
	}
	questions, err := drill.Ask(k.client2, "front", netip.MustParseAddr(frozen[0]), cards)
	must(t, err)
	c := startClients(t, k.client1, targets{web, echo, net.JoinHostPort(frozen[0], "7000")})
	moves, begin := k.boxes[0].moves(t), time.Now()
	must(t, freeze())
	_ = traffic.Pause(t.Context(), length) // the length of the fault
	thawed := time.Now()
	must(t, thaw())
	k.shared(t)
	moved := k.boxes[0].moves(t) - moves
	most, double, changes := questions.End(begin)
	c.report(t, what)
	figure(t, "trouble: "+what+": VIPs moved at the other member", moved)
	figure(t, "trouble: "+what+": owners of a VIP at once by ARP, for how long, moves", fmt.Sprintf("%d, %s, %d", most, traffic.Round(double), changes))
	figure(t, "trouble: "+what+": one owner of each VIP again after", time.Since(thawed))
	for _, addr := range others {
		if lost := c.fresh.Stop().To(addr).Lost(); len(lost) > 0 {
			t.Errorf("%s of the other member: %v", addr, lost.Err(3))
		}
	}
	k.visit(t)
}

// foreignGossip has a host without the key send what has ever hurt a member: random datagrams, lengths that
// promise gigabytes, connections that stay open without a word, and the name of a member.
func (k *kin) foreignGossip(t *testing.T) {
	var web, echo []string
	for _, vip := range kinVIPs {
		web, echo = append(web, at(vip, 80)), append(echo, at(vip, 7000))
	}
	k.shared(t)
	c := startClients(t, k.client1, targets{web, echo, at(kinVIPs[0], 7000)})
	var before, refused, moves [2]float64
	for i, s := range k.boxes {
		before[i], refused[i], moves[i] = float64(s.rss(t)), s.metric(t, "weir_fleet_refused_total"), float64(s.moves(t))
	}
	r := random(t)
	for _, addr := range []string{"10.1.0.1:7946", "10.1.0.9:7946"} {
		datagrams, err := k.client2.DialContext(t.Context(), "udp", addr)
		must(t, err)
		defer datagrams.Close()
		pace := time.NewTicker(2 * time.Millisecond)
		// Faster, a box of the lab has no processor left for ARP, which is another claim.
		for kind := range sized(2000, 40_000) {
			<-pace.C
			_, _ = datagrams.Write(gossip(r, byte(kind%16), 1+r.IntN(1400))) // refused or not
		}
		pace.Stop()
		for kind := range 100 {
			conn, err := k.client2.DialContext(within(t, 20*time.Second), "tcp", addr)
			if err != nil {
				continue // the limit of connections
			}
			defer conn.Close()
			if kind > 20 { // the others stay silent
				_, _ = conn.Write(gossip(r, byte(kind%16), 200))
			}
		}
	}
	for i, s := range k.boxes {
		eventually(t, time.Minute, func() error {
			if n := s.metric(t, "weir_fleet_refused_total"); n <= refused[i] {
				return fmt.Errorf("%s has refused %v messages, and had before", s.box.Name(), n)
			}
			return nil
		})
		eventually(t, time.Minute, func() error { return s.are(t, "box1 serving", "box2 serving") })
		if n := float64(s.moves(t)); n != moves[i] {
			t.Errorf("%s: %v VIPs moved", s.box.Name(), n-moves[i])
		}
		after := float64(s.rss(t))
		figure(t, "trouble: gossip of a foreign host, memory of "+s.box.Name(), fmt.Sprintf("%.0f MiB, %.0f MiB", before[i], after))
		if after > before[i]+64 {
			t.Errorf("%s has %.0f MiB, and had %.0f", s.box.Name(), after, before[i])
		}
	}
	c.unhurt(t, "gossip of a foreign host")
}

// gossip is a message of memberlist of a kind, with the name of a member, and else random. Where the kind has
// a length, that is the greatest.
func gossip(r *rand.Rand, kind byte, size int) []byte {
	b := append([]byte{kind, 0xff, 0xff, 0xff, 0xff}, "\x83\xa4Node\xa4box1"...)
	for range size {
		b = append(b, byte(r.Uint32()))
	}
	return b
}
