package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// site is a client and two backends in namespaces of their own, with this one as
// the box between them:
//
//	client 10.1.0.2 --- 10.1.0.1 box 10.2.N.1 --- 10.2.N.2 backendN
//	  2001:db8:1::2     ...::1       2001:db8:2N::1   ...::2
type site struct {
	*testing.T
	k *Kernel
}

// shared, if any, is reused by newSite: on a simulated machine a new site takes longer than
// most tests.
var shared *site

// share builds a site for all subtests.
func share(t *testing.T) {
	t.Helper()
	shared = newSite(t)
	t.Cleanup(func() { shared = nil })
}

// reuse returns the site to a test as if it were new.
func (s *site) reuse(t *testing.T, change []func(*Config)) *site {
	t.Helper()
	lent := &site{t, s.k}
	c := s.k.config
	fresh := DefaultConfig()
	c.ClusterCIDRs, c.LocalInterfaces, c.MasqueradeAll, c.Ping = fresh.ClusterCIDRs, fresh.LocalInterfaces, fresh.MasqueradeAll, fresh.Ping
	c.Sources, c.SloppyTCP, c.Sync = nil, false, false
	for _, f := range change {
		f(&c)
	}
	if !reflect.DeepEqual(c, s.k.config) {
		must(t, s.k.Configure(c))
		add(t, s.k, lb.Rules{Family: lb.IPv4}, lb.Rules{Family: lb.IPv6})
	}
	t.Cleanup(func() { lent.cleanup(s.lasting()...) })
	return lent
}

var (
	vip4 = netip.MustParseAddr("192.0.2.1")
	vip6 = netip.MustParseAddr("2001:db8::1")
)

func newSite(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	inBox(t)
	inNamespace(t)
	if shared != nil {
		return shared.reuse(t, change)
	}
	createNetworks(t)
	s := &site{t, newKernel(t, change...)}
	add(t, s.k, s.lasting()...)
	t.Cleanup(func() { s.cleanup() })
	s.connect()
	return s
}

// lasting are the objects that exist before any service.
func (s *site) lasting() []lb.Object {
	all := append(base(lb.IPv4, lb.IPv6), s.anchors()...)
	for _, o := range lb.Sysctls([]lb.Family{lb.IPv4, lb.IPv6}) {
		if testMode == ModeIPVS || !strings.HasPrefix(o.Name, "net.ipv4.vs.") {
			all = append(all, o)
		}
	}
	return all
}

// connect starts the backends and resolves the neighbours: TCP waits for that, UDP does not.
// On a busy machine it may take longer than the kernel tries, with the result "no route to
// host".
func (s *site) connect() {
	s.Helper()
	var all sync.WaitGroup
	for i, name := range []string{"backend1", "backend2"} {
		s.serve(name)
		for _, vip := range []netip.Addr{vip4, vip6} {
			all.Go(func() {
				to := netip.AddrPortFrom(backendAddr(vip, i+1), 8080).String()
				got := s.get("client", "tcp", to, patience)
				for end := time.Now().Add(2 * patience); !strings.HasPrefix(got, name) && time.Now().Before(end); {
					time.Sleep(100 * time.Millisecond)
					got = s.get("client", "tcp", to, patience)
				}
				if !strings.HasPrefix(got, name) {
					s.Errorf("%s without a VIP: %s", name, got)
				}
			})
		}
	}
	if all.Wait(); s.Failed() {
		s.FailNow()
	}
}

// createNetworks creates the namespaces and their links with few programs: a simulated machine
// starts them slowly.
func createNetworks(t *testing.T) {
	t.Helper()
	names := []string{"client", "backend1", "backend2"}
	var here, gone strings.Builder
	there := map[string]string{}
	for i, name := range names {
		v4, v6 := fmt.Sprintf("10.%d.%d", min(i+1, 2), i), fmt.Sprintf("2001:db8:%d", []int{1, 21, 22}[i])
		fmt.Fprintf(&here, `netns add %[1]s
link add to-%[1]s type veth peer name eth0 netns %[1]s
link set to-%[1]s up
addr add %[2]s.1/24 dev to-%[1]s
addr add %[3]s::1/64 dev to-%[1]s nodad
`, name, v4, v6)
		there[name] = fmt.Sprintf(`link set lo up
link set eth0 up
addr add %[1]s.2/24 dev eth0
addr add %[2]s::2/64 dev eth0 nodad
route add default via %[1]s.1
route add default via %[2]s::1
`, v4, v6)
		fmt.Fprintf(&gone, "link del to-%[1]s\nnetns del %[1]s\n", name)
	}
	t.Cleanup(func() { batch(t, "-force", gone.String()) })
	batch(t, "", here.String())
	for _, name := range names {
		batch(t, "-n "+name, there[name])
	}
}

// batch runs commands of ip(8).
func batch(t *testing.T, options, commands string) {
	t.Helper()
	sh(t, "ip %s -batch - <<'EOF'\n%sEOF", options, commands)
}

// anchors are the virtual servers that keep conntrack's hooks.
func (s *site) anchors() []lb.Object {
	var out []lb.Object
	for _, a := range []string{"192.0.0.8:21", "[100::8]:21"} {
		fe := frontend(a, lb.TCP)
		out = append(out, lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}},
			lb.RealServer{Frontend: fe, Addr: netip.MustParseAddrPort(a)})
	}
	return out
}

// cleanup removes everything from the kernel but the lasting objects.
func (s *site) cleanup(stay ...lb.Object) {
	s.Helper()
	obs, err := s.k.Observe(context.Background(), nil)
	if err != nil {
		s.Error(err)
		return
	}
	apply(s.T, s.k, lb.Diff(obs.Objects.Snapshot(), stateOf(stay))...)
}

// in runs f in a namespace; sockets that it opens stay there.
func (s *site) in(namespace string, f func()) {
	s.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := func(path string) *os.File {
		ns, err := os.Open(path)
		if err != nil {
			s.Fatal(err)
		}
		return ns
	}
	back := open("/proc/thread-self/ns/net")
	defer back.Close()
	if namespace != "" {
		to := open("/run/netns/" + namespace)
		defer to.Close()
		if err := unix.Setns(int(to.Fd()), unix.CLONE_NEWNET); err != nil {
			s.Fatal(err)
		}
	}
	f()
	if err := unix.Setns(int(back.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err)
	}
}

// serve answers each line on TCP port 8080 and each datagram on UDP port 5353
// with the server's name and the client's address.
func (s *site) serve(namespace string) {
	s.Helper()
	s.in(namespace, func() { s.listenTCP(namespace, ":8080"); s.listenUDP(namespace, ":5353") })
}

func (s *site) listenTCP(name, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					fmt.Fprintf(c, "%s %s\n", name, host1(c.RemoteAddr()))
				}
			}()
		}
	}()
}

func (s *site) listenUDP(name, addr string) {
	l, err := net.ListenPacket("udp", addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			fmt.Fprintf(writerTo{l, from}, "%s %s\n", name, host1(from))
		}
	}()
}

type writerTo struct {
	net.PacketConn
	to net.Addr
}

func (w writerTo) Write(b []byte) (int, error) { return w.WriteTo(b, w.to) }

func host1(a net.Addr) netip.Addr { return netip.MustParseAddrPort(a.String()).Addr().Unmap() }

const (
	patience = 10 * time.Second // the limit on a busy machine
	silence  = time.Second      // the time without a reply that counts as none
)

// dial connects from a namespace.
func (s *site) dial(from, network, to string, local ...string) (c net.Conn, err error) {
	s.Helper()
	d := net.Dialer{Timeout: patience}
	if len(local) > 0 {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(local[0]))
	}
	return s.dialWith(d, from, network, to)
}

func (s *site) dialWith(d net.Dialer, from, network, to string) (c net.Conn, err error) {
	s.Helper()
	s.in(from, func() { c, err = d.Dial(network, to) })
	if err == nil {
		s.Cleanup(func() { c.Close() })
	}
	return c, err
}

// ask sends a line over a connection and returns the answer.
func ask(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "who?\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// get dials and asks.
func (s *site) get(from, network, to string, patience time.Duration) string {
	s.Helper()
	c, err := s.dialWith(net.Dialer{Timeout: patience}, from, network, to)
	if err != nil {
		return short(err)
	}
	defer c.Close()
	if network == "udp" {
		defer repeat(c, []byte("who?\n"))()
	}
	answer, err := ask(c)
	if err != nil {
		return short(err)
	}
	return answer
}

// expect asks and compares; want is "SERVER ADDRESS-IT-SAW", or the error.
func (s *site) expect(what, from, network, to, want string) {
	s.Helper()
	d := patience
	if want == "timeout" {
		d = silence
	}
	if got := s.get(from, network, to, d); got != want {
		s.Errorf("%s: %q, want %q", what, got, want)
	}
}

// repeat sends a datagram repeatedly until stop is called: on a busy machine a single one may
// be lost, and UDP does not repeat it.
func repeat(c net.Conn, datagram []byte) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.Write(datagram) // the answers count
			}
		}
	}()
	return func() { cancel(); <-done }
}

// ping reports whether an address answers echo requests. It waits longer for an expected
// answer than for an unexpected one.
func (s *site) ping(from, to string, wanted bool) bool {
	s.Helper()
	network, echo, reply := "ip4:icmp", byte(8), byte(0)
	if strings.Contains(to, ":") {
		network, echo, reply = "ip6:ipv6-icmp", 128, 129
	}
	c, err := s.dial(from, network, to)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	// Type, code, checksum, number, sequence; of ICMPv6 the kernel fills in the
	// checksum.
	request := []byte{echo, 0, 0, 0, 0, 7, 0, 1}
	if echo == 8 {
		sum := ^uint16(8<<8 + 7 + 1)
		request[2], request[3] = byte(sum>>8), byte(sum)
	}
	if _, err := c.Write(request); err != nil {
		s.Fatal(err)
	}
	defer repeat(c, request)()
	d := patience
	if !wanted {
		d = silence
	}
	c.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, 1500)
	for {
		n, _, err := c.(*net.IPConn).ReadFrom(buf) // which, unlike Read, leaves out the IPv4 header
		if err != nil {
			return false
		}
		if n >= 8 && buf[0] == reply && buf[5] == 7 {
			return true
		}
	}
}

func short(err error) string {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "timeout"
	}
	return err.Error()[strings.LastIndex(err.Error(), ": ")+2:]
}

// web is a service on port 80 of a VIP with one backend.
func web(vip netip.Addr, kind lb.Set, backend int, more ...lb.Set) []lb.Object {
	fe := lb.Frontend{Addr: vip, Port: 80, Proto: lb.TCP}
	out := []lb.Object{
		lb.Member{Set: lb.SetIPVSIPs, Addr: vip},
		lb.VirtualServer{Frontend: fe, Scheduler: lb.Scheduler{Name: "rr"}},
		lb.RealServer{Frontend: fe, Addr: netip.AddrPortFrom(backendAddr(vip, backend), 8080), Weight: 1},
		lb.Address{Addr: vip},
	}
	for _, set := range append(more, kind, lb.SetIPVSPorts) {
		out = append(out, lb.Member{Set: set, Addr: vip, Port: 80, Proto: lb.TCP})
	}
	return out
}

func backendAddr(vip netip.Addr, n int) netip.Addr {
	if vip.Is4() {
		return netip.AddrFrom4([4]byte{10, 2, byte(n), 2})
	}
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:2%d::2", n))
}
