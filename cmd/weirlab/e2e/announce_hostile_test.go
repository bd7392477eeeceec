package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/traffic"
)

// The villain has an address that is configured, and a range of others.
const (
	villainASN   = 65066
	villainAddr  = "10.1.1.66"
	villainRange = "10.1.1.128/26"
	rangeSize    = 64
)

// villainAddrs are the host's: the configured one, and those of the range.
func villainAddrs() string {
	out := []string{villainAddr + "/24"}
	for i := range rangeSize {
		out = append(out, fmt.Sprintf("10.1.1.%d/24", 128+i))
	}
	return strings.Join(out, " ")
}

// villainPeers are the box's peers for it.
var villainPeers = fmt.Sprintf(`
[[bgp.peer]]
name = "villain"
address = %q
asn = %d
passive = true
max_prefixes = 10

[[bgp.peer]]
name = "villains"
range = %q
asn = %d
`, villainAddr, villainASN, villainRange, villainASN)

// besieged is the box while the villain is at it.
type besieged struct {
	*edge
	box  *site
	pid  int
	next int // address of the range
}

// hostileSpeaker has a host with a session, and many without one, send weir every message
// has ever taken a speaker down, while clients hammer.
func hostileSpeaker(t *testing.T, e *edge) {
	s := e.boxes[0]
	s.run(t, rarely(peering(1, "", ""))+villainPeers+service("web", ""))
	e.awaitRoutes(t, bothVIPs, 1)
	b := &besieged{edge: e, box: s, pid: s.weirPid(t)}
	watch := watchRoutes(t, e.Host("router"))
	h := e.streamWeb(t, traffic.DefaultBeat)
	h.more(t, 50)
	begin, before := time.Now(), s.rss(t)
	for _, attack := range []struct {
		name string
		make func(*testing.T, *besieged)
	}{
		{"half-open sessions", halfOpen},
		{"UPDATEs that have killed speakers", badUpdates},
		{"random UPDATEs", randomUpdates},
		{"100,000 routes", flood},
	} {
		t.Run(attack.name, func(t *testing.T) {
			attack.make(t, b)
			b.stands(t, before)
		})
	}
	h.more(t, 50)
	mustAllBeAnswered(t, "while a hostile speaker was at it", h.Stop(), begin, time.Time{})
	for _, vip := range bothVIPs {
		if n := watch.flaps(vip, begin); n > 0 {
			t.Errorf("the route to %s left the router %d times", vip, n)
		}
	}
	n, err := e.router.Neighbour(t.Context(), boxAddr(1))
	if err != nil || !n.Established() || n.Accepted != len(bothVIPs) {
		t.Errorf("the router's session with the box: %+v, %v", n, err)
	}
	t.Logf("weir bgp neighbors\n%s", s.call(t, "bgp", "neighbors").Stdout)
}

// rssLimit is how much memory weir may have more than before, in MiB; most of it is
// what Go has not collected yet.
const rssLimit = 80

// stands checks that weir is the same process, is not swollen, and answers.
func (b *besieged) stands(t *testing.T, before int) {
	t.Helper()
	if pid := b.box.weirPid(t); pid != b.pid {
		t.Errorf("weir is process %d, and was %d", pid, b.pid)
	}
	after := b.box.rss(t)
	figure(t, "resident memory of weir, before all and after", fmt.Sprintf("%d MiB, %d MiB", before, after))
	if after > before+rssLimit {
		t.Errorf("weir has %d MiB, and had %d", after, before)
	}
	n, err := b.router.Neighbour(t.Context(), boxAddr(1))
	if err != nil || !n.Established() {
		t.Errorf("the router's session with the box: %+v, %v", n, err)
	}
}

// weirPid is the process that answers weir status.
func (s *site) weirPid(t testing.TB) int {
	t.Helper()
	var doc struct {
		Pid int `json:"pid"`
	}
	s.weirJSON(t, &doc, "status")
	return doc.Pid
}

// rss is the daemon's resident memory, in MiB.
func (s *site) rss(t testing.TB) int {
	t.Helper()
	kib := 0
	out := s.box.Must(t, "sed", "-n", "s/^VmRSS: *//p", fmt.Sprintf("/proc/%d/status", s.weirPid(t)))
	if _, err := fmt.Sscan(out, &kib); err != nil {
		t.Fatalf("resident memory: %q: %v", out, err)
	}
	return kib >> 10
}

// another is a villain with an address of the range that was longest unused.
func (b *besieged) another() villain {
	addr := netip.AddrFrom4([4]byte{10, 1, 1, byte(128 + b.next%rangeSize)})
	b.next++
	return villain{b.Host(villainHost.Name), addr, villainASN, boxAddr(1) + ":179"}
}

// established is a session of another villain; one that weir is not done with is tried
// again.
func (b *besieged) established(t testing.TB) net.Conn {
	t.Helper()
	var conn net.Conn
	eventually(t, 30*time.Second, func() (err error) {
		conn, err = b.another().establish(t.Context())
		return err
	})
	return conn
}

// halfOpen connects and sends nothing, or an OPEN a byte at a time, until the test ends.
func halfOpen(t *testing.T, b *besieged) {
	const silent, slow = 32, 8
	open := 0
	for range silent + slow {
		v := b.another()
		c, err := v.connect(t.Context())
		if err != nil {
			continue
		}
		open++
		t.Cleanup(func() { _ = c.Close() })
		if open <= silent {
			continue
		}
		go func() { // ends with the connection
			for _, x := range opening(v.asn, 90, v.addr) {
				if _, err := c.Write([]byte{x}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	if open == 0 {
		t.Error("weir takes no connection: the test shows nothing")
	}
	// A host with valid messages still gets a session.
	c := b.established(t)
	_ = c.Close()
	t.Logf("%d connections stay open without an OPEN, or with one that takes its time; another one was established", open)
}

// hostilePatience is how long a villain listens for what becomes of its session.
const hostilePatience = 100 * time.Millisecond

func badUpdates(t *testing.T, b *besieged) {
	all := crafted(villainASN, netip.MustParseAddr("10.1.1.201"))
	fates := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := b.established(t)
		if _, err := c.Write(all[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		end := ending(c, hostilePatience)
		fates[end] = append(fates[end], name)
	}
	logFates(t, fates)
	routes := b.Host("router").Must(t, "ip", "route") + b.box.box.Must(t, "ip", "route")
	if strings.Contains(routes, "203.0.113.") {
		t.Errorf("a route of the hostile speaker got into a kernel:\n%s", routes)
	}
}

func logFates(t testing.TB, fates map[string][]string) {
	t.Helper()
	for _, end := range slices.Sorted(maps.Keys(fates)) {
		t.Logf("%s: %s", end, strings.Join(fates[end], "; "))
	}
}

// randomUpdates are mutations of decent and of crafted messages.
func randomUpdates(t *testing.T, b *besieged) {
	r := random(t)
	var corpus [][]byte
	all := crafted(villainASN, netip.MustParseAddr("10.1.1.202"))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(all[name]) >= 23 {
			corpus = append(corpus, all[name])
		}
	}
	sent := 0
	for range sized(100, 2000) { // sessions
		c := b.established(t)
		var burst bytes.Buffer
		for range 100 {
			burst.Write(mutate(r, corpus[r.IntN(len(corpus))]))
		}
		sent += 100
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(burst.Bytes())
		ending(c, 20*time.Millisecond)
	}
	t.Logf("%d mutated messages, a hundred a session", sent)
}

// flood announces far more than max_prefixes of the configured peer, which ends its session,
// and as much by one of the range, which has the default: its session goes on.
func flood(t *testing.T, b *besieged) {
	const routes, each = 100_000, 500
	good := decent(villainASN, netip.MustParseAddr(villainAddr))
	var messages bytes.Buffer
	for i := 0; i < routes; i += each {
		var nlri []byte
		for j := i; j < i+each; j++ {
			nlri = append(nlri, 32, 203, byte(j>>16), byte(j>>8), byte(j))
		}
		messages.Write(update(good, nlri))
	}
	configured := villain{b.Host(villainHost.Name), netip.MustParseAddr(villainAddr), villainASN, boxAddr(1) + ":179"}
	for name, v := range map[string]villain{"the configured peer": configured, "one of the range": b.another()} {
		var c net.Conn
		eventually(t, 30*time.Second, func() (err error) {
			c, err = v.establish(t.Context())
			return err
		})
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		n, err := c.Write(messages.Bytes())
		patience := 2 * time.Second
		if v == configured {
			patience = 30 * time.Second // for its end, which a busy box reads late
		}
		then := ending(c, patience)
		t.Logf("%s: %d of %d bytes of 100,000 routes went out (%v); then: %s", name, n, messages.Len(), err, then)
		if (then == "goes on") != (v != configured) {
			t.Errorf("%s: %s", name, then)
		}
	}
	if c, err := configured.establish(within(t, 5*time.Second)); err == nil {
		_ = c.Close()
		t.Error("a peer that broke its limit of prefixes is taken back at once")
	}
}
