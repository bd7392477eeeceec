package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// onePortPairs are two frontends that use the same port of the same backend.
var onePortPairs = []struct{ client, one, two string }{
	{"10.1.0.2", "192.0.2.10:7000", "192.0.2.11:7000"},
	{"10.1.0.2", "192.0.2.10:7000", "192.0.2.10:7001"},
	{"fd01::2", "[2001:db8:2::10]:7000", "[2001:db8:2::11]:7000"},
	{"fd01::2", "[2001:db8:2::10]:7000", "[2001:db8:2::10]:7001"},
}

// onePortConfig has the frontends.
func onePortConfig(kernel, source string) string {
	return fmt.Sprintf(`
[kernel]
sync_period = "2s"
%s
[[service]]
name = "web"
vips = ["192.0.2.10", "192.0.2.11", "2001:db8:2::10", "2001:db8:2::11"]
ports = ["7000", "7000/udp", "7001:7000", "7001:7000/udp"]
source_address = %q
backends = ["10.2.0.11", "fd02::11"]
`, kernel, source)
}

// TestOneClientPort has a client use one port for two connections to different frontends with
// one backend. IPVS finds the connection of a reply only by the client and the backend, and takes one of the two, mostly
// the newest. With nftables each reply has the right source, also with the clients' own addresses, and in mode
// netfilter.
func TestOneClientPort(t *testing.T) {
	t.Parallel()
	k := newKit(t, plain(lab.UML))
	echoAll(t, k.s.Lab)
	port := uint16(42000)
	for _, source := range []string{"masquerade", "keep"} {
		k.given(onePortConfig("", source))
		port = k.onePort(t, "IPVS, "+source, port)
	}
	k.given(onePortConfig("", "masquerade"))
	k.onePortOfBox(t)

	p := onePortPairs[0]
	one, two := k.talk(t, "tcp", p.client, port, p.one), k.talk(t, "tcp", p.client, port, p.two)
	k.s.stop(t, syscall.SIGTERM)
	k.s.run(t, onePortConfig(`mode = "netfilter"`, "masquerade"))
	k.s.audits(t)
	for _, c := range []*talk{one, two} {
		if err := c.exchange(); err != nil {
			t.Errorf("connections of IPVS from one port, in mode netfilter: %v", err)
		}
	}
	k.onePort(t, "netfilter", port+1)
}

// onePort checks all pairs of connections, and returns an unused port.
func (k *tomlKit) onePort(t *testing.T, what string, port uint16) uint16 {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		for _, p := range onePortPairs {
			all := []*talk{k.talk(t, network, p.client, port, p.one), k.talk(t, network, p.client, port, p.two)}
			port++
			for range 3 {
				for _, c := range all {
					if err := c.exchange(); err != nil {
						t.Errorf("%s: %s from one port to %s and %s: %v", what, network, p.one, p.two, err)
					}
				}
			}
			// IPVS keeps the newer one for two minutes.
			must(t, all[1].Close())
			if err := all[0].exchange(); err != nil {
				t.Errorf("%s: %s to %s, after the end of that to %s: %v", what, network, p.one, p.two, err)
			}
		}
	}
	return port
}

// talk is a connection to an echo server, or a flow to a server of datagrams.
type talk struct {
	net.Conn
	datagrams bool
	reader    *bufio.Reader // of TCP, once the server has sent its name
}

// exchangeTime is how long an answer may take. The tested fault gives none, however long one waits.
const exchangeTime = 10 * time.Second

// asked is the number of the last datagram of any talk.
var asked atomic.Uint32

// talk opens a connection from a port of client1.
func (k *tomlKit) talk(t *testing.T, network, from string, port uint16, to string) *talk {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(from), port)
	var local net.Addr = net.TCPAddrFromAddrPort(at)
	if network == "udp" {
		local = net.UDPAddrFromAddrPort(at)
	}
	c, err := lab.DialShared(within(t, exchangeTime), k.s.client1, network, local, to)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	x := &talk{Conn: c, datagrams: network == "udp"}
	must(t, x.exchange()) // IPVS knows the connection from its first packet on
	return x
}

// exchange sends something, and reads what the server answers: over TCP its name at first, and then the same.
func (c *talk) exchange() error {
	if c.datagrams {
		return c.ask()
	}
	_ = c.SetDeadline(time.Now().Add(exchangeTime))
	if c.reader == nil {
		c.reader = bufio.NewReader(c)
		if _, err := c.reader.ReadString('\n'); err != nil {
			return err
		}
	}
	many := make([]byte, 30_000) // more than one segment
	if _, err := c.Write(many); err != nil {
		return err
	}
	_, err := io.ReadFull(c.reader, many)
	return err
}

// ask sends a datagram with a number, again each second, until the answer to that one comes.
func (c *talk) ask() (err error) {
	number, buf := asked.Add(1), make([]byte, 100)
	for limit := time.Now().Add(exchangeTime); time.Now().Before(limit); {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, err = fmt.Fprint(c, number)
		for n := 0; err == nil; {
			if n, err = c.Read(buf); err == nil && strings.HasPrefix(string(buf[:n]), fmt.Sprintf("%d ", number)) {
				return nil
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return err
}

// onePortOfBox has a program of the box itself use one port twice. It gets replies by the chain INPUT.
func (k *tomlKit) onePortOfBox(t *testing.T) {
	t.Helper()
	const program = `
use Socket qw(:DEFAULT inet_pton);
$SIG{ALRM} = sub { die "no answer\n" };
my ($own, @vips) = @ARGV;
sub at { my ($ip, $port) = @_; $ip =~ /:/ ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $ip)) : pack_sockaddr_in($port, inet_aton($ip)) }
my @all;
for my $vip (@vips) {
	socket my $s, $vip =~ /:/ ? PF_INET6 : PF_INET, SOCK_STREAM, 0 or die "socket: $!\n";
	setsockopt $s, SOL_SOCKET, SO_REUSEADDR, 1;
	bind $s, at($own, 43000) or die "bind: $!\n";
	alarm 20;
	connect $s, at($vip, 7000) or die "connect: $!\n";
	sysread $s, my $name, 100;
	push @all, $s;
}
for my $i (0, 1, 0, 1) {
	alarm 20;
	syswrite $all[$i], ".";
	sysread($all[$i], my $echo, 100) or die "$vips[$i]: closed\n";
}`
	for _, argv := range [][]string{{"10.2.0.1", "192.0.2.10", "192.0.2.11"}, {"fd02::1", "2001:db8:2::10", "2001:db8:2::11"}} {
		if out, err := k.s.box.Run(t.Context(), append([]string{"perl", "-e", program}, argv...)...); err != nil {
			t.Errorf("a program of the box: %v\n%s", err, out.Stderr)
		}
	}
}
