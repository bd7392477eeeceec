package l2

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// host is a network namespace of its own: a box, a neighbour, or a switch.
type host struct {
	t    *testing.T
	name string
	ns   *os.File
}

// newHost makes one, or skips the test where that is not allowed.
func newHost(t *testing.T, name string) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, for network namespaces of its own")
	}
	h := &host{t: t, name: name}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			h.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = h.ns.Close() })
	h.sh("ip link set dev lo up")
	return h
}

// in does something in the namespace. Goroutines that do starts are not in it; sockets
// it opens, and programs it starts, are.
func (h *host) in(do func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		failed <- err
	}()
	return <-failed
}

// sh runs a script in the namespace and returns its output.
func (h *host) sh(format string, args ...any) string {
	h.t.Helper()
	script := fmt.Sprintf(format, args...)
	var out []byte
	err := h.in(func() (err error) {
		out, err = exec.Command("sh", "-ec", script).CombinedOutput()
		return err
	})
	if err != nil {
		h.t.Fatalf("%s# %s: %v: %s", h.name, script, err, out)
	}
	return string(out)
}

// newSwitch makes a bridge.
func newSwitch(t *testing.T, name string) *host {
	t.Helper()
	h := newHost(t, name)
	h.sh("ip link add br0 type bridge forward_delay 0 mcast_snooping 0 && ip link set dev br0 up")
	return h
}

// plug connects an interface of a host to a switch; pull and push are on the switch's
// side: the port is called port.
func (h *host) plug(dev string, to *host, port string) {
	h.t.Helper()
	h.sh("ip link add %s type veth peer name %s netns /proc/%d/fd/%d && ip link set dev %s up", dev, port, os.Getpid(), to.ns.Fd(), dev)
	to.sh("ip link set dev %s master br0 && ip link set dev %s up", port, port)
}

// mac is an interface's.
func (h *host) mac(dev string) MAC {
	h.t.Helper()
	var mac MAC
	if err := h.in(func() error {
		i, err := net.InterfaceByName(dev)
		if err == nil {
			mac = MAC(i.HardwareAddr)
		}
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	return mac
}

// box is a host with an Answerer.
type station struct {
	*host
	*Answerer
	stop func() error // Run has returned
}

// newBox makes a box with an interface eth0 on a switch, and a kernel that has the VIPs on a
// device of their own, as IPVS has them, and does not answer for them. n is the last
// byte of its own addresses.
func newBox(t *testing.T, name string, n int, to *host, vips ...netip.Addr) *station {
	t.Helper()
	h := newHost(t, name)
	h.plug("eth0", to, name)
	kind := "bridge" // this kernel may have no dummies
	if os.Getenv("WEIR_IN_BOX") != "" {
		kind = "dummy"
	}
	h.sh(`cd /proc/sys/net
for f in ipv4/conf/*/rp_filter; do echo 0 >$f; done
echo 1 >ipv4/conf/eth0/arp_ignore; echo 2 >ipv4/conf/eth0/arp_announce
echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding
ip link add vips type %s
ip link set dev vips up
ip addr add 192.0.2.%d/24 dev eth0; ip addr add 2001:db8::%d/64 dev eth0 nodad`, kind, n, n)
	for _, v := range vips {
		h.sh("ip addr add %s dev vips $(expr %s : '.*:' >/dev/null && echo nodad)", netip.PrefixFrom(v, v.BitLen()), v)
	}
	b := &station{host: h, Answerer: New(testLog(t, name))}
	b.inNamespace = h.in
	b.Configure(Config{Interfaces: []string{"eth0"}, GARPInterval: time.Minute})
	b.start()
	b.serve()
	return b
}

func (b *station) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = func() error {
		cancel()
		err := <-ended
		ended <- nil
		return err
	}
	b.t.Cleanup(func() {
		if err := b.stop(); err != nil {
			b.t.Errorf("%s: %v", b.name, err)
		}
	})
}

func testLog(t *testing.T, name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil)).With("box", name)
}

// serve sends the host's name on every connection.
func (h *host) serve() {
	h.t.Helper()
	var l net.Listener
	if err := h.in(func() (err error) {
		l, err = net.Listen("tcp", ":7")
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, h.name)
			_ = c.Close()
		}
	}()
}

// ask returns which host answers at an address, or the error.
func (h *host) ask(a netip.Addr, patience time.Duration) string {
	var said string
	err := h.in(func() error {
		d := net.Dialer{Timeout: patience}
		c, err := d.Dial("tcp", netip.AddrPortFrom(a, 7).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		said, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(said)
}

// newNeighbour makes a host on a switch which is no box.
func newNeighbour(t *testing.T, name string, n int, to *host) *host {
	t.Helper()
	h := newHost(t, name)
	h.plug("eth0", to, name)
	h.sh("ip addr add 192.0.2.%d/24 dev eth0; ip addr add 2001:db8::%d/64 dev eth0 nodad", n, n)
	return h
}

const patience = 20 * time.Second

// await waits until something is so. A busy machine may be late by seconds.
func await(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < patience {
		if is() {
			return time.Since(began)
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("%s: not after %v", what, patience)
	return 0
}

// stays checks at every moment of a while that something is so.
func remains(t *testing.T, what string, while time.Duration, is func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < while; time.Sleep(2 * time.Millisecond) {
		if !is() {
			t.Fatalf("not any more after %v: %s", time.Since(began), what)
		}
	}
}

// state is that of a VIP on eth0, as the box reports it.
func (b *station) state(vip netip.Addr) State { return b.vip(vip).State }

func (b *station) vip(vip netip.Addr) VIP {
	for _, v := range b.Status().VIPs {
		if v.Addr == vip && v.Interface == "eth0" {
			return v
		}
	}
	return VIP{}
}

func (b *station) becomes(vip netip.Addr, want State) time.Duration {
	b.t.Helper()
	return await(b.t, fmt.Sprintf("%s: %v is %v", b.name, vip, want), func() bool { return b.state(vip) == want })
}

// claim has the box claim VIPs.
func (b *station) claim(vips ...netip.Addr) { b.set(&Claim{}, vips...) }

func (b *station) release(vips ...netip.Addr) { b.set(nil, vips...) }

func (b *station) set(c *Claim, vips ...netip.Addr) {
	changes := map[netip.Addr]*Claim{}
	for _, v := range vips {
		changes[v] = c
	}
	b.Set(changes)
}

// acquaint gives boxes each other's addresses, as gossip would.
func introduce(boxes ...*station) {
	for _, b := range boxes {
		members := map[MAC]Member{}
		for _, f := range boxes {
			if f != b {
				members[f.mac("eth0")] = Member{Name: f.name, Preferred: func(vip netip.Addr) bool { return preferred(f.name, b.name, vip) }}
			}
		}
		b.SetMembers(members)
	}
}

// knows waits until a host's kernel has this MAC for an address.
func (h *host) knows(vip netip.Addr, mac MAC) time.Duration {
	h.t.Helper()
	return await(h.t, fmt.Sprintf("%s has %v at %v", h.name, vip, mac), func() bool {
		return strings.Contains(h.sh("ip neigh show %s", vip), mac.String())
	})
}

// packet gives the host's own means to send any frame.
func (h *host) packet(dev string) *socket {
	h.t.Helper()
	var s *socket
	if err := h.in(func() error {
		i, err := net.InterfaceByName(dev)
		if err == nil {
			s, err = openPacket(i.Index, typeARP, filterARP(nil))
		}
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.close() })
	return s
}
