package lb_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"weir/lb"
	"weir/lb/linux"
)

// TestMain runs the tests of a box again in a fresh network namespace.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_IN_BOX") == "" || os.Getenv("WEIR_NETNS") != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "WEIR_NETNS=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// site is the kernel of this network namespace, the box, with the clients and backends
// of the laws around it: each backend in a namespace of its own, the other clients in
// the namespace "outside".
//
//	outside 203.0.113.7, 198.51.100.7 --- eth0 10.9.9.1 box beN --- 10.0.0.N backendN
//	        fd00:c::7, fd00:d::7               fd00:9::1            fd00::N
type site struct {
	*testing.T
	*network
}

// network is what the tests of a site share.
type network struct {
	k      *linux.Kernel
	config linux.Config
	extra  []netip.Addr // addresses of the box beside hostAddrs
	port   uint16       // of the last client
	// namespaces are file descriptors by name, canaries sockets by namespace and family.
	namespaces map[string]int
	canaries   map[string][]*os.File
	atEnd      func(func())
}

const (
	backends = 4
	canary   = 7 // is the port of UDP echo
	// patience limits the wait for an answer that must come.
	patience = 20 * time.Second
)

var (
	hostAddrs = []netip.Addr{netip.MustParseAddr("10.9.9.1"), netip.MustParseAddr("fd00:9::1")}
	// servicePorts are the ports of backends, hostPorts those of daemons of the box. The
	// generator makes Services with ports 80 and 81 and NodePorts 81 and 162. In a group of ports a
	// backend gets the port of the client.
	servicePorts = []uint16{80, 81, 162, 8080, 8081, 9000}
	hostPorts    = []uint16{22, 80, 81, 162, 8080, 8081, 9000}
)

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t, &network{port: 10000, namespaces: map[string]int{}, canaries: map[string][]*os.File{}, atEnd: t.Cleanup}}
	s.layNetworks()
	s.serve("", hostPorts, "")
	for n := 1; n <= backends; n++ {
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			s.serve(backendName(n), servicePorts, backendAddr(n, f).String())
		}
	}
	s.config = linux.DefaultConfig()
	if rules := os.Getenv("WEIR_RULES"); rules != "" {
		s.config.Backend = linux.Backend(rules)
	}
	if mode := os.Getenv("WEIR_MODE"); mode != "" {
		s.config.Mode = linux.Mode(mode)
	}
	if s.inNFTables() {
		// Tables without an owner: otherwise Linux refuses the changes of other programs from 6.9.
		s.must("", "nft", "add table ip weir; add table ip6 weir")
	}
	for _, o := range lb.Sysctls([]lb.Family{lb.IPv4, lb.IPv6}) {
		s.config.Sysctls = append(s.config.Sysctls, o.Name)
	}
	k, err := linux.New(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	s.k = k
	return s
}

// inNFTables reports whether nf_tables has weir's sets and rules.
func (n *network) inNFTables() bool { return n.config.Backend == linux.NFTables }

// byRules reports whether virtual servers are rules.
func (n *network) byRules() bool { return n.config.Mode == linux.ModeNetfilter }

// options are those of a history, for the mode of the kernel.
func (n *network) options(o lb.Options) lb.Options {
	o.WithoutIPVS = n.byRules()
	return o
}

func backendName(n int) string { return fmt.Sprintf("backend%d", n) }

func backendAddr(n int, f lb.Family) netip.Addr {
	if f == lb.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
}

func (s *site) layNetworks() {
	s.Helper()
	// The kernel limits ICMP errors to a few a second, and those are answers here.
	s.must("", "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	s.must(`link set lo up
link add eth1 type dummy
link set eth1 up
netns add outside
link add eth0 type veth peer name eth0 netns outside
link set eth0 up
addr add 10.9.9.1/24 dev eth0
addr add fd00:9::1/64 dev eth0 nodad
addr add fe80::1/64 dev eth0 nodad
route add default via 10.9.9.2
route add default via fd00:9::2
`, "ip", "-batch", "-")
	s.must(`link set lo up
link set eth0 up
addr add 10.9.9.2/24 dev eth0
addr add fd00:9::2/64 dev eth0 nodad
addr add 203.0.113.7/32 dev eth0
addr add 198.51.100.7/32 dev eth0
addr add fd00:c::7/128 dev eth0 nodad
addr add fd00:d::7/128 dev eth0 nodad
route add default via 10.9.9.1
route add default via fd00:9::1
`, "ip", "-n", "outside", "-batch", "-")
	for n := 1; n <= backends; n++ {
		s.must(fmt.Sprintf(`netns add backend%[1]d
link add be%[1]d type veth peer name eth0 netns backend%[1]d
link set be%[1]d up
addr add 10.9.9.1/32 dev be%[1]d
addr add fd00:9::1/128 dev be%[1]d nodad
addr add fe80::1/64 dev be%[1]d nodad
route add 10.0.0.%[1]d dev be%[1]d src 10.9.9.1
route add fd00::%[1]d dev be%[1]d src fd00:9::1
`, n), "ip", "-batch", "-")
		s.must(fmt.Sprintf(`link set lo up
link set eth0 up
addr add 10.0.0.%[1]d/32 dev eth0
addr add fd00::%[1]d/128 dev eth0 nodad
addr add fe80::2/64 dev eth0 nodad
route add 10.9.9.1 dev eth0
route add default via 10.9.9.1
route add default via fe80::1 dev eth0
`, n), "ip", "-n", backendName(n), "-batch", "-")
	}
	s.openNamespaces()
	// SCTP ignores an ICMP error while its socket is busy (see reportICMP), and asks again
	// after so many milliseconds.
	s.must("", "modprobe", "sctp")
	for name := range s.namespaces {
		s.in(name, func() { s.must("", "sysctl", "-qw", "net.sctp.rto_min=20", "net.sctp.rto_initial=20") })
	}
}

// must runs a program, which must succeed.
func (s *site) must(stdin, name string, args ...string) {
	s.Helper()
	if err := s.run(stdin, name, args...); err != nil {
		s.Fatal(err)
	}
}

func (s *site) run(stdin, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // cleanups run programs, too
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s%s", name, args, err, stdin, out)
	}
	return nil
}

// namespaceOf returns the namespace of a client; "" is the box.
func namespaceOf(client netip.Addr) string {
	if slices.Contains(hostAddrs, client) {
		return ""
	}
	for n := 1; n <= backends; n++ {
		if client == backendAddr(n, lb.FamilyOf(client)) {
			return backendName(n)
		}
	}
	return "outside"
}

// in runs f in a namespace; sockets that it opens stay there.
func (s *site) in(namespace string, f func()) {
	s.Helper()
	if namespace == "" {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(s.namespaces[namespace], unix.CLONE_NEWNET); err != nil {
		panic(err)
	}
	defer func() {
		if err := unix.Setns(s.namespaces[""], unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
	}()
	f()
}

// openNamespaces keeps the namespaces open: in enters them some ten thousand times.
func (s *site) openNamespaces() {
	s.Helper()
	paths := map[string]string{"": "/proc/self/ns/net", "outside": "/run/netns/outside"}
	for n := 1; n <= backends; n++ {
		paths[backendName(n)] = "/run/netns/" + backendName(n)
	}
	for name, path := range paths {
		if name != "" {
			s.atEnd(func() {
				if err := s.run("", "ip", "netns", "del", name); err != nil {
					s.Error(err)
				}
			})
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			s.Fatalf("open %s: %v", path, err)
		}
		s.atEnd(func() { unix.Close(fd) })
		s.namespaces[name] = fd
	}
}

// serve answers TCP, UDP and SCTP, each connection and each datagram with its two
// addresses. addr "" stands for all addresses.
func (s *site) serve(namespace string, ports []uint16, addr string) {
	s.Helper()
	for _, family := range []string{"4", "6"} {
		a, err := netip.ParseAddr(addr)
		if err == nil && a.Is4() != (family == "4") {
			continue
		}
		s.in(namespace, func() {
			for _, port := range ports {
				at := net.JoinHostPort(addr, fmt.Sprint(port))
				l, err := net.Listen("tcp"+family, at)
				if err != nil {
					s.Fatal(err)
				}
				s.accept(l)
				s.echo("udp"+family, at)
				if addr != "" { // SCTP on all addresses lists all of them to the client
					s.accept(s.listenSCTP(netip.AddrPortFrom(a, port)))
				}
			}
			s.echo("udp"+family, net.JoinHostPort(addr, fmt.Sprint(canary)))
		})
	}
}

func (s *site) accept(l net.Listener) {
	s.atEnd(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "%s %s\n", c.LocalAddr(), c.RemoteAddr())
				io.Copy(io.Discard, c) // until the client resets it
			}()
		}
	}()
}

func (s *site) listenSCTP(at netip.AddrPort) net.Listener {
	s.Helper()
	fd, err := socket(lb.SCTP, at)
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		s.Fatalf("listen on %s/sctp: %v", at, err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// echo answers datagrams from the address to which they came.
func (s *site) echo(network, at string) {
	s.Helper()
	c, err := net.ListenPacket(network, at)
	if err != nil {
		s.Fatal(err)
	}
	s.atEnd(func() { c.Close() })
	port := c.LocalAddr().(*net.UDPAddr).Port
	answer := func(dst net.IP, from net.Addr) []byte {
		return fmt.Appendf(nil, "%s %s\n", &net.UDPAddr{IP: dst, Port: port}, from)
	}
	buf := make([]byte, 100)
	if network == "udp4" {
		p := ipv4.NewPacketConn(c)
		if err := p.SetControlMessage(ipv4.FlagDst, true); err != nil {
			s.Fatal(err)
		}
		go func() {
			for {
				_, cm, from, err := p.ReadFrom(buf)
				if err != nil {
					return
				}
				p.WriteTo(answer(cm.Dst, from), &ipv4.ControlMessage{Src: cm.Dst}, from)
			}
		}()
		return
	}
	p := ipv6.NewPacketConn(c)
	if err := p.SetControlMessage(ipv6.FlagDst, true); err != nil {
		s.Fatal(err)
	}
	go func() {
		for {
			_, cm, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			p.WriteTo(answer(cm.Dst, from), &ipv6.ControlMessage{Src: cm.Dst}, from)
		}
	}()
}

// socket opens a non-blocking socket with a local address.
func socket(proto lb.Protocol, local netip.AddrPort) (int, error) {
	family, typ := unix.AF_INET, unix.SOCK_STREAM
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	if proto == lb.UDP {
		typ = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(proto))
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, sockaddr(local)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind to %s: %w", local, err)
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// meeting is the result of one connection.
type meeting struct {
	// server is the address at which a server got the packet, source the address from
	// which it came.
	server netip.AddrPort
	source netip.Addr
	err    error // of the socket
	silent bool  // no answer
}

func (m meeting) String() string {
	switch {
	case m.silent:
		return "no answer"
	case m.err != nil:
		return m.err.Error()
	}
	return fmt.Sprintf("answer of %s to %s", m.server, m.source)
}

func (m meeting) refused() bool { return errors.Is(m.err, unix.ECONNREFUSED) }

// lost reports whether the packet got no answer, or had no way at all.
func (m meeting) lost() bool {
	return m.silent || errors.Is(m.err, unix.EHOSTUNREACH) || errors.Is(m.err, unix.ENETUNREACH)
}

// connect sends a client's packet to a frontend. If an answer must come, connect waits
// for it; otherwise only until packets that were sent later are back (drainQueue).
func (s *site) connect(client netip.Addr, f lb.Frontend, must bool) meeting {
	s.Helper()
	if s.port++; s.port == 60000 {
		s.port = 10001
	}
	var fd int
	var err error
	s.in(namespaceOf(client), func() {
		fd, err = socket(f.Proto, netip.AddrPortFrom(client, s.port))
		if err == nil && f.Proto != lb.UDP {
			// A reset at the end: the next client may have the same port.
			err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		if err == nil {
			err = reportICMP(fd, f.Addr)
		}
		if err != nil {
			panic(err)
		}
		err = unix.Connect(fd, sockaddr(netip.AddrPortFrom(f.Addr, f.Port)))
		if err == nil && f.Proto == lb.UDP {
			_, err = unix.Write(fd, []byte("?"))
		}
	})
	file := os.NewFile(uintptr(fd), "client")
	defer file.Close()
	switch {
	case errors.Is(err, unix.EPERM):
		// The kernel has dropped a packet of the box itself. Only an ICMP error shows
		// that this is a refusal.
		must = false
	case err != nil && !errors.Is(err, unix.EINPROGRESS):
		return meeting{err: err}
	}
	if err := file.SetDeadline(time.Now().Add(patience)); err != nil {
		s.Fatal(err)
	}
	if !must {
		for range 2 { // servers that the packet wakes in the first round answer before the second
			s.drainQueue(namespaceOf(client), lb.FamilyOf(client))
		}
		if !ready(fd, f.Proto) {
			return meeting{silent: true}
		}
	}
	m, err := readAnswer(file, f.Proto)
	m.err, m.silent = err, errors.Is(err, os.ErrDeadlineExceeded)
	return m
}

// reportICMP has ICMP errors reported at once. On one processor they come while the
// packet is being sent and its socket is busy, and by default the kernel forgets them then.
func reportICMP(fd int, to netip.Addr) error {
	if to.Is4() {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
}

// reported returns the error that a socket has.
func reported(fd int) error {
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || n != 0 {
		return cmp.Or(err, error(unix.Errno(n)))
	}
	oob := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(fd, nil, oob, unix.MSG_ERRQUEUE)
	if err != nil {
		return nil //nolint:nilerr // none
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	for _, m := range messages {
		if len(m.Data) >= 16 && (m.Header.Type == unix.IP_RECVERR || m.Header.Type == unix.IPV6_RECVERR) {
			return unix.Errno(binary.NativeEndian.Uint32(m.Data)) // ee_errno of struct sock_extended_err
		}
	}
	return err
}

// ready reports whether an answer has come.
func ready(fd int, proto lb.Protocol) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if proto == lb.UDP {
		p[0].Events = unix.POLLIN
	}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

func readAnswer(file *os.File, proto lb.Protocol) (m meeting, err error) {
	if proto != lb.UDP {
		raw, err := file.SyscallConn()
		if err != nil {
			return m, err
		}
		var failed error
		err = raw.Write(func(fd uintptr) bool {
			if !ready(int(fd), proto) {
				return false
			}
			failed = reported(int(fd))
			return true
		})
		if err = cmp.Or(err, failed); err != nil {
			return m, err
		}
	}
	buf := make([]byte, 200)
	n, err := file.Read(buf)
	if err != nil {
		return m, err
	}
	server, source, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	if m.server, err = netip.ParseAddrPort(server); err != nil {
		return m, err
	}
	from, err := netip.ParseAddrPort(source)
	m.source = from.Addr()
	return m, err
}

// drainQueue waits until a datagram from the namespace to each backend has come back by way
// of the box. The machine has one processor and one queue of packets: an answer to an
// earlier packet has come by then, if there is one.
func (s *site) drainQueue(namespace string, family lb.Family) {
	s.Helper()
	key := namespace + " " + family.String()
	if s.canaries[key] == nil {
		s.in(namespace, func() { s.canaries[key] = s.openCanaries(namespace, family) })
	}
	buf := make([]byte, 200)
	for _, c := range s.canaries[key] {
		if _, err := c.Write([]byte("?")); err != nil {
			s.Fatalf("canary from %q: %v", namespace, err)
		}
	}
	for _, c := range s.canaries[key] {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			s.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			s.Fatalf("canary from %q: %v", namespace, err)
		}
	}
}

func (s *site) openCanaries(namespace string, family lb.Family) (out []*os.File) {
	s.Helper()
	from := netip.IPv4Unspecified()
	if family == lb.IPv6 {
		from = netip.IPv6Unspecified()
	}
	for n := 1; n <= backends; n++ {
		if namespace == backendName(n) {
			continue
		}
		fd, err := socket(lb.UDP, netip.AddrPortFrom(from, 0))
		if err == nil {
			err = unix.Connect(fd, sockaddr(netip.AddrPortFrom(backendAddr(n, family), canary)))
		}
		if err != nil {
			panic(err)
		}
		c := os.NewFile(uintptr(fd), "canary")
		s.atEnd(func() { c.Close() })
		out = append(out, c)
	}
	return out
}
