package l2

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An interface may come late, lose its carrier, be renamed, go, and come again.
func TestInterfacesComeAndGo(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	a.Configure(Config{Interfaces: []string{"eth0", "late", "lo"}})
	a.claim(one4, one6)
	a.becomes(one4, Answered)
	trouble := func(name string) string {
		for _, i := range a.Status().Interfaces {
			if i.Name == name {
				return i.Error
			}
		}
		return "no interface " + name + " in the status"
	}
	if got := trouble("late"); !strings.Contains(got, "no interface late") {
		t.Error(got)
	}
	if got := trouble("lo"); !strings.Contains(got, "not an Ethernet interface") {
		t.Error(got)
	}
	lan.sh("ip link set dev a down")
	a.becomes(one4, Idle)
	lan.sh("ip link set dev a up")
	a.becomes(one4, Answered)
	a.sh("ip link set dev eth0 down")
	await(t, "the trouble is told", func() bool { return strings.Contains(trouble("eth0"), "ip link set eth0 up") })
	a.sh("ip link set dev eth0 name late && ip link set dev late up")
	answers := func(name string) bool {
		for _, v := range a.Status().VIPs {
			if v.Interface == name && v.State != Answered {
				return false
			}
		}
		return true
	}
	await(t, "answered by the new name", func() bool { return answers("late") })
	if a.state(one4) != Idle {
		t.Errorf("by the old name it is %v", a.state(one4))
	}
	a.sh("ip link del late")
	await(t, "idle again", func() bool { return !answers("late") })
	a.plug("eth0", lan, "again")
	a.sh("ip addr add 192.0.2.11/24 dev eth0; ip addr add 2001:db8::11/64 dev eth0 nodad")
	a.becomes(one6, Answered)
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	// A port of a bridge gets no frames: its state has a reason, and the bridge does.
	a.sh("ip link add br0 type bridge forward_delay 0; ip link set dev br0 up; ip link set dev eth0 master br0")
	await(t, "told", func() bool { return strings.Contains(trouble("eth0"), "port of br0") && a.state(one4) == Idle })
	a.Configure(Config{Interfaces: []string{"br0"}})
	await(t, "answered by the bridge", func() bool { return answers("br0") })
}

// tagged is a frame of a VLAN.
func tagged(frame []byte, vlan uint16) []byte {
	b := append([]byte(nil), frame[:12]...)
	b = append(b, 0x81, 0, byte(vlan>>8), byte(vlan))
	return append(b, frame[12:]...)
}

func TestOtherVLANsAreNotAnswered(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4)
	n := newNeighbour(t, "n", 100, lan)
	a.claim(one4)
	a.becomes(one4, Answered)
	s, ask := n.packet("eth0"), arpFrame(arpRequest, broadcast, n.mac("eth0"), netip.MustParseAddr("192.0.2.100"), MAC{}, one4)
	answered := a.answered()
	for _, frame := range [][]byte{tagged(ask, 100), tagged(ask, 0)} { // VLAN 0 is none, but a priority
		must(t, s.write(frame))
	}
	await(t, "one is answered", func() bool { return a.answered() > answered })
	n.asksTheKernel(a, "192.0.2.11")
	if got := a.answered() - answered; got != 1 {
		t.Errorf("%d of 2 answered, want the one that is of no VLAN", got)
	}
}

// The kernel passes frames for a device on top of an interface to the sockets of that interface, too.
func TestAMacvlanIsAnotherHost(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4)
	n := newNeighbour(t, "n", 100, lan)
	if !strings.Contains(a.sh("ip link add link eth0 name above type macvlan 2>&1 && ip link set dev above up && echo made || true"), "made") {
		t.Skip("SKIPPED: this kernel has no macvlan")
	}
	a.claim(one4)
	a.becomes(one4, Answered)
	answered := a.answered()
	must(t, n.packet("eth0").write(arpFrame(arpRequest, a.mac("above"), n.mac("eth0"), netip.MustParseAddr("192.0.2.100"), MAC{}, one4)))
	n.asksTheKernel(a, "192.0.2.11")
	if got := a.answered() - answered; got > 0 {
		t.Errorf("%d answers by eth0 to a host that asks another device", got)
	}
}

func TestVLANIsAnInterface(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	if !strings.Contains(n.sh("ip link add link eth0 name eth0.100 type vlan id 100 2>&1 && echo made || true"), "made") {
		t.Skip("SKIPPED: this kernel has no VLANs; it runs in a box of weirlab: go test -run TestL2Package ./cmd/weirlab/e2e")
	}
	n.sh("ip addr flush dev eth0; ip link set dev eth0.100 up; ip addr add 192.0.2.100/24 dev eth0.100; ip addr add 2001:db8::100/64 dev eth0.100 nodad")
	a.sh(`ip link add link eth0 name eth0.100 type vlan id 100; ip addr flush dev eth0; ip link set dev eth0.100 up
ip addr add 192.0.2.11/24 dev eth0.100; ip addr add 2001:db8::11/64 dev eth0.100 nodad
cd /proc/sys/net/ipv4/conf/eth0.100; echo 1 >arp_ignore; echo 2 >arp_announce; echo 0 >rp_filter`)
	a.claim(one4, one6) // on eth0, which does not receive them
	a.becomes(one4, Answered)
	answered := a.answered()
	if got := n.ask(one4, time.Second); got == "a" || a.answered() > answered {
		t.Errorf("served by another VLAN's interface: %s, %d answers", got, a.answered()-answered)
	}
	a.Configure(Config{Interfaces: []string{"eth0.100"}})
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
}

func TestShutdownIsSilent(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	a.claim(one4, one6)
	a.becomes(one6, Answered)
	a.becomes(one4, Answered)
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	judge := n.tcpdump("arp or icmp6")
	must(t, a.stop())
	// Clients that know the box are still served: its kernel is as it was.
	if n.ask(one4, patience) != "a" || n.ask(one6, patience) != "a" {
		t.Error("not served any more")
	}
	n.sh("ip neigh flush dev eth0")
	s := n.packet("eth0")
	for _, vip := range []netip.Addr{one4, one6} {
		must(t, s.write(probeFrame(n.mac("eth0"), vip)))
	}
	n.asksTheKernel(a, "192.0.2.11")
	for line := range strings.Lines(judge()) {
		if strings.Contains(line, one4.String()+" is-at") || strings.Contains(line, "tgt is "+one6.String()) && strings.Contains(line, "advertisement") {
			t.Errorf("it answers: %s", line)
		}
	}
	if a.state(one4) != Idle || a.state(one6) != Idle {
		t.Error("it says that it answers")
	}
	a.start() // and again
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
}

// asksTheKernel has a host find the box's own address, which its kernel answers for: what
// was sent before has come to the box, and the answer to it to the host.
func (h *host) asksTheKernel(b *station, addr string) {
	h.t.Helper()
	h.sh("ip neigh flush to %s dev eth0", addr)
	if got := h.ask(netip.MustParseAddr(addr), patience); got != b.name {
		h.t.Fatalf("%s: %s", addr, got)
	}
}

// tcpdump begins to write down what an interface sees; the function ends that and gives
// the lines.
func (h *host) tcpdump(filter string) func() string {
	h.t.Helper()
	program, err := exec.LookPath("tcpdump")
	if err != nil {
		h.t.Skip("SKIPPED: needs tcpdump (apt-get install -y tcpdump)")
	}
	file, err := os.CreateTemp(h.t.TempDir(), "tcpdump")
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(program, "-i", "eth0", "-nn", "-e", "-v", "-l", "--immediate-mode", "-Z", "root", filter)
	cmd.Stdout, cmd.Stderr = file, file
	if err := h.in(func() error { return cmd.Start() }); err != nil {
		h.t.Fatal(err)
	}
	text := func() string {
		b, _ := os.ReadFile(file.Name())
		return string(b)
	}
	await(h.t, "tcpdump listens", func() bool { return strings.Contains(text(), "listening on") })
	return func() string {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		_ = file.Close()
		return text()
	}
}

// What is sent is what others read it to be.
func TestFramesAgainstTcpdump(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	judge := n.tcpdump("arp or icmp6")
	a.claim(one4, one6)
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	await(t, "the burst has begun", func() bool { return a.Status().Interfaces[0].Gratuitous >= 6 })
	said := strings.ReplaceAll(judge(), "\n\t", " ")
	mac := a.mac("eth0")
	for _, want := range []string{
		"Request who-has 192.0.2.201 tell 0.0.0.0",
		"Request who-has 192.0.2.201 tell 192.0.2.201",
		fmt.Sprintf("Reply 192.0.2.201 is-at %s", mac),
		fmt.Sprintf("%s > ff:ff:ff:ff:ff:ff, ethertype ARP", mac),
		fmt.Sprintf("%s > 33:33:ff:01:02:01, ethertype IPv6 (0x86dd), length 78", mac),
		"hlim 255, next-header ICMPv6 (58) payload length: 24) :: > ff02::1:ff01:201: [icmp6 sum ok] ICMP6, neighbor solicitation, length 24, who has 2001:db8::1:201",
		"2001:db8::1:201 > ff02::1: [icmp6 sum ok] ICMP6, neighbor advertisement, length 32, tgt is 2001:db8::1:201, Flags [router, override]",
		"2001:db8::1:201 > 2001:db8::100: [icmp6 sum ok] ICMP6, neighbor advertisement, length 32, tgt is 2001:db8::1:201, Flags [router, solicited, override]",
		fmt.Sprintf("destination link-address option (2), length 8 (1): %s", mac),
	} {
		if !strings.Contains(said, want) {
			t.Errorf("nowhere: %s", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// Switches that snoop MLD let solicitations through to a box that has joined the group.
func TestSnoopingSwitch(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	lan.sh("ip link set dev br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_startup_query_interval 10; ip addr add fe80::9/64 dev br0 nodad")
	a := newBox(t, "a", 11, lan, one6, two6)
	n := newNeighbour(t, "n", 100, lan)
	a.claim(one6, two6)
	a.becomes(one6, Answered)
	group := solicitedNode(one6).String()
	await(t, "joined", func() bool { return strings.Contains(a.sh("ip -6 maddr show dev eth0"), group) })
	await(t, "the switch knows", func() bool { return strings.Contains(lan.sh("bridge mdb show"), group) })
	await(t, "served", func() bool { return n.ask(one6, time.Second) == "a" })
	a.release(one6)
	await(t, "left", func() bool { return !strings.Contains(a.sh("ip -6 maddr show dev eth0"), group) })
	a.sh("echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6")
	a.release(two6)
	a.claim(one6)
	await(t, "told", func() bool { return strings.Contains(a.Status().Interfaces[0].Error, "disable_ipv6") })
	a.becomes(one6, Answered) // there is something to be answered still
}

// Two hundred thousand frames as fast as they can be sent, and then as many that ask for
// other addresses.
func TestFlood(t *testing.T) {
	const flood = 200_000
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	a.claim(one4)
	a.becomes(one4, Answered)
	s := n.packet("eth0")
	send := func(frame []byte) (took time.Duration, processor time.Duration) {
		began, used := time.Now(), cpu(t)
		for range flood {
			if err := s.write(frame); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
				t.Fatal(err)
			}
		}
		return time.Since(began), cpu(t) - used
	}
	mac, own := n.mac("eth0"), netip.MustParseAddr("192.0.2.100")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	took, used := send(arpFrame(arpRequest, broadcast, mac, own, MAC{}, one4))
	await(t, "it is over", func() bool {
		x := a.answered()
		time.Sleep(100 * time.Millisecond)
		return a.answered() == x
	})
	all := time.Since(began)
	runtime.ReadMemStats(&after)
	i := a.Status().Interfaces[0]
	t.Logf("%d requests in %v: %d answered, %d not read; %v of processor, the sender's included; heap %+d kB, %d kB allocated", flood,
		took.Round(time.Millisecond), i.Answered, i.ReceiveDrops, used.Round(time.Millisecond),
		(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1024, (after.TotalAlloc-before.TotalAlloc)/1024)
	if most := uint64(all/budgetTime+2) * budgetFrames; i.Answered == 0 || i.Answered > most {
		t.Errorf("%d answered in %v, want at most %d", i.Answered, all, most)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if got := n.ask(one4, patience); got != "a" {
		t.Errorf("after the flood: %s", got)
	}
	answered := a.answered()
	took, used = send(arpFrame(arpRequest, broadcast, mac, own, MAC{}, two4))
	st := a.Status().Interfaces[0]
	t.Logf("%d for another address in %v: %v of processor", flood, took.Round(time.Millisecond), used.Round(time.Millisecond))
	if st.ReceiveDrops != i.ReceiveDrops || st.Answered > answered+10 {
		t.Errorf("requests for other addresses reach the process: %d not read, %d answered", st.ReceiveDrops-i.ReceiveDrops, st.Answered-answered)
	}
}

// cpu is what this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestMalformedFramesDoNoHarm(t *testing.T) {
	t.Parallel()
	lan := newSwitch(t, "lan")
	a := newBox(t, "a", 11, lan, one4, one6)
	n := newNeighbour(t, "n", 100, lan)
	a.claim(one4, one6)
	a.becomes(one4, Answered)
	a.becomes(one6, Answered)
	s, mac := n.packet("eth0"), n.mac("eth0")
	good := [][]byte{
		arpFrame(arpRequest, broadcast, mac, netip.MustParseAddr("192.0.2.100"), MAC{}, one4),
		probeFrame(mac, one4), probeFrame(mac, one6),
		advertisement(mac, netip.MustParseAddr("2001:db8::100"), a.mac("eth0"), one6, flagSolicited),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		frame := append([]byte(nil), good[i%len(good)]...)
		for range 1 + random.IntN(3) {
			frame[12+random.IntN(len(frame)-12)] = byte(random.Uint32())
		}
		frame = frame[:14+random.IntN(len(frame)-13)]
		if err := s.write(frame); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	await(t, "served", func() bool { return n.ask(one4, time.Second) == "a" && n.ask(one6, time.Second) == "a" })
	if a.state(one4) != Answered || a.state(one6) != Answered {
		t.Errorf("VIPs are %v, %v", a.state(one4), a.state(one6))
	}
}

// Thousands of VIPs are taken over from a box that died.
func TestTakeoverOfThousands(t *testing.T) {
	const many = 5000
	lan := newSwitch(t, "lan")
	b := newBox(t, "b", 12, lan)
	n := newNeighbour(t, "n", 100, lan)
	old := MAC{2, 0, 0, 0, 0, 9}
	var vips []netip.Addr
	var entries strings.Builder
	for i := range many { // learned from outside: of others a kernel keeps no more than gc_thresh3, a thousand
		vip := netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})
		vips = append(vips, vip)
		fmt.Fprintf(&entries, "neigh add %s lladdr %s dev eth0 nud stale extern_learn\n", vip, old)
	}
	n.sh("ip addr add 10.9.255.254/16 dev eth0")
	batch := filepath.Join(t.TempDir(), "entries")
	must(t, os.WriteFile(batch, []byte(entries.String()), 0o600))
	n.sh("ip -batch %s", batch)
	if got := strings.Count(n.sh("ip neigh show"), old.String()); got != many {
		t.Fatalf("the neighbour knows %d addresses, want %d", got, many)
	}
	began := time.Now()
	b.claim(vips...)
	n.knows(vips[0], b.mac("eth0"))
	first := time.Since(began)
	await(t, "all moved", func() bool { return !strings.Contains(n.sh("ip neigh show"), old.String()) })
	t.Logf("a neighbour that knew %d VIPs has the first at the new box after %v, all after %v", many,
		first.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	i := b.Status().Interfaces[0]
	if i.Takeovers != many || i.SendDrops != 0 {
		t.Errorf("%d answered, %d frames not sent", i.Takeovers, i.SendDrops)
	}
}
