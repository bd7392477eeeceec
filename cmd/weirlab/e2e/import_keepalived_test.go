package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// keepalivedConf has a virtual server for each type of check, and one that weir can't serve.
const keepalivedConf = `
global_defs {
	router_id edge
}
track_file web3 {
	file /run/web3.state
}
bfd_instance web1 {
	neighbor_ip 10.2.0.11
	min_rx 100
	min_tx 100
	multiplier 5
}
bfd_instance web2 {
	neighbor_ip 10.2.0.12
	min_rx 100
	min_tx 100
	multiplier 5
}
virtual_server_group WEB {
	192.0.2.10 80
	192.0.2.21-22 80
}
virtual_server group "WEB" {
	delay_loop 2
	lb_kind NAT
	protocol TCP
	lb_algo rr
	REALS(8080, HTTP_GET {
		url {
			path /
			digest 5d41402abc4b2a76b9719d911017c592
		}
		retry 0
		connect_timeout 2
	})
}
virtual_server 192.0.2.23 25 {
	delay_loop 2
	lb_kind NAT
	protocol TCP
	lb_algo rr
	REALS(25, SMTP_CHECK {
		helo_name edge.example.com
		retry 0
		connect_timeout 2
	})
}
virtual_server 192.0.2.24 53 {
	delay_loop 2
	lb_kind NAT
	protocol UDP
	lb_algo rr
	REALS(53, DNS_CHECK {
		name www.example.com
		type A
		retry 0
		connect_timeout 2
	})
}
virtual_server 192.0.2.25 80 {
	delay_loop 2
	lb_kind NAT
	protocol TCP
	lb_algo rr
	REALS(8080, PING_CHECK {
		retry 0
		connect_timeout 2
	})
}
virtual_server 192.0.2.26 80 {
	delay_loop 2
	lb_kind NAT
	protocol TCP
	lb_algo rr
	real_server 10.2.0.11 8080 {
		TCP_CHECK {
			retry 0
			connect_timeout 2
		}
	}
}
virtual_server 192.0.2.27 80 {
	delay_loop 2
	lb_kind NAT
	protocol TCP
	lb_algo rr
	real_server 10.2.0.13 8080 {
		FILE_CHECK {
			track_file web3
			retry 0
			connect_timeout 2
		}
	}
}
virtual_server 192.0.2.28 8080 {
	delay_loop 2
	lb_kind DR
	protocol TCP
	lb_algo rr
	real_server 10.2.0.11 8080 {
		TCP_CHECK {
			connect_ip 192.0.2.28
			retry 0
			connect_timeout 2
		}
	}
}
virtual_server 192.0.2.31 80 {
	lb_kind NAT
	protocol TCP
	lb_algo rr
	real_server 10.2.0.11 8080 {
		BFD_CHECK {
			name web1
		}
	}
	real_server 10.2.0.12 8080 {
		BFD_CHECK {
			name web2
		}
	}
}
virtual_server fwmark 9 {
	protocol TCP
	real_server 10.2.0.11 8080 {
	}
}
virtual_server 192.0.2.29 80 {
	lb_kind TUN type sit
	protocol TCP
	real_server 10.2.0.11 8080 {
	}
}
`

// markNine has rules of the administrator select the packets of virtual_server fwmark 9.
const markNine = `
ip addr add 192.0.2.30/32 dev lo
iptables -t mangle -A PREROUTING -d 192.0.2.30 -p tcp --dport 80 -j MARK --set-mark 9`

// withReals expands REALS(PORT, CHECK) to the three backends.
func withReals(conf string) string {
	for {
		before, rest, ok := strings.Cut(conf, "REALS(")
		if !ok {
			return conf
		}
		port, rest, _ := strings.Cut(rest, ", ")
		check, after, _ := strings.Cut(rest, "})\n")
		var reals strings.Builder
		for i := range webs {
			fmt.Fprintf(&reals, "real_server 10.2.0.%d %s {\n%s}\n}\n", i+11, port, check)
		}
		conf = before + reals.String() + after
	}
}

// premises are the servers of a host that can turn bad.
type premises struct {
	page atomic.Value // the text of the web page
	mail atomic.Bool  // accepts HELO
	name atomic.Bool  // knows www.example.com
}

func (s *premises) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, s.page.Load().(string))
}

// openPremises starts the servers of a host.
func openPremises(t *testing.T, m *lab.Machine) *premises {
	t.Helper()
	s := &premises{}
	s.page.Store("hello")
	s.mail.Store(true)
	s.name.Store(true)
	l, err := m.Listen("tcp4", ":8080")
	must(t, err)
	t.Cleanup(props.Serve(l, s))
	mail, err := m.Listen("tcp4", ":25")
	must(t, err)
	t.Cleanup(func() { mail.Close() })
	go func() {
		for {
			c, err := mail.Accept()
			if err != nil {
				return
			}
			go s.postOffice(c)
		}
	}()
	names, err := m.ListenPacket("udp4", ":53")
	must(t, err)
	t.Cleanup(func() { names.Close() })
	go s.answerQueries(names)
	return s
}

func (s *premises) postOffice(c net.Conn) {
	defer c.Close()
	fmt.Fprint(c, "220 mail ESMTP\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "HELO edge.example.com" && s.mail.Load():
			fmt.Fprint(c, "250-mail\r\n250 hello\r\n")
		case line == "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		default:
			fmt.Fprint(c, "451 not now\r\n")
		}
	}
}

func (s *premises) answerQueries(c net.PacketConn) {
	buf := make([]byte, 512)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil {
			continue
		}
		m.Response = true
		if q := m.Questions[0]; !s.name.Load() || q.Name.String() != "www.example.com." || q.Type != dnsmessage.TypeA {
			m.RCode = dnsmessage.RCodeServerFailure
		}
		if packet, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(packet, from) // as lossy as a network
		}
	}
}

// speaks does one exchange with a VIP of keepalivedConf.
func speaks(ctx context.Context, from *lab.Machine, vip string) error {
	network, talk := "tcp4", "GET / HTTP/1.0\r\n\r\n"
	switch {
	case strings.HasSuffix(vip, ":25"):
		talk = "QUIT\r\n"
	case strings.HasSuffix(vip, ":53"):
		network = "udp4"
		q := dnsmessage.Question{Name: dnsmessage.MustNewName("www.example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
		packet, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{q}}).Pack()
		if err != nil {
			return err
		}
		talk = string(packet)
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, network, vip)
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if network == "udp4" {
		_, err = askUntil(c, []byte(talk), make([]byte, 512), deadline)
		return err
	}
	if _, err := io.WriteString(c, talk); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 512))
	return err
}

// TestImportedKeepalived boots the result of weir import keepalived. Every virtual server
// that it counts carries traffic, and each check finds the fault of a backend.
func TestImportedKeepalived(t *testing.T) {
	t.Parallel()
	lab.Routers.Require(t)
	plan := plain(lab.UML)
	plan.Hosts = append(plan.Hosts, lab.Host{ // for the replies of DR
		Name: "router", Forward: true, Nets: lab.Nets{"front": "10.1.0.254/24", "back": "10.2.0.254/24"},
	})
	s := openSite(t, plan)
	var all []*premises
	for i := range webs {
		all = append(all, openPremises(t, s.web(i+1)))
	}
	bfd := map[int]*lab.Router{}
	for _, i := range []int{1, 2} {
		bfd[i] = s.Router(t, s.web(i).Name(), lab.BIRD, birdBackend(i))
	}
	for _, command := range []string{
		"ip addr add 192.0.2.28/32 dev lo", "ip rule add from 192.0.2.28 table 100", "ip route add default via 10.2.0.254 table 100",
	} {
		s.web(1).Must(t, strings.Fields(command)...)
	}
	const conf = "/etc/keepalived.conf"
	must(t, s.box.WriteFile(t.Context(), conf, withReals(keepalivedConf), 0o644))
	must(t, s.box.WriteFile(t.Context(), "/run/web3.state", "0\n", 0o644))
	out, _ := s.box.Run(within(t, time.Minute), s.weir, "import", "keepalived", conf)
	want := "weir: 9 of 10 virtual servers imported\n" + conf + ":"
	if out.Code != 1 || !strings.HasPrefix(out.Stderr, want) || !strings.Contains(out.Stderr, ": error: virtual_server 192.0.2.29 80: ") {
		t.Fatalf("exit status %d, want 1; printed:\n%s", out.Code, out.Stderr)
	}
	s.box.Must(t, "sh", "-ec", markNine)
	s.run(t, out.Stdout)
	vips := []string{"192.0.2.10:80", "192.0.2.21:80", "192.0.2.22:80", "192.0.2.23:25", "192.0.2.24:53", "192.0.2.25:80", "192.0.2.26:80", "192.0.2.27:80", "192.0.2.28:8080", "192.0.2.30:80", "192.0.2.31:80"}
	answered := func(vips ...string) {
		t.Helper()
		for _, vip := range vips {
			for range 3 {
				if err := speaks(t.Context(), s.client1, vip); err != nil {
					t.Errorf("%s: %v", vip, err)
				}
			}
		}
	}
	// The first checks of a VIP and by BFD are after the first pass, and a busy machine may fail another one.
	eventually(t, time.Minute, func() error {
		for vip, want := range map[string]int{
			"192.0.2.10:80": 3, "192.0.2.21:80": 3, "192.0.2.22:80": 3, "192.0.2.23:25": 3, "192.0.2.24:53": 3, "192.0.2.25:80": 3,
			"192.0.2.26:80": 1, "192.0.2.27:80": 1, "192.0.2.28:8080": 1, "192.0.2.31:80": 2,
		} {
			if lines := s.servers(t, vip); len(lines) != want {
				return fmt.Errorf("%s has the backends %q, want %d", vip, lines, want)
			}
		}
		return nil
	})
	answered(vips...)
	for _, fault := range []struct {
		name    string
		do      func()
		vip     string
		backend string
		left    bool // other backends serve
	}{
		{"another page", func() { all[0].page.Store("goodbye") }, "192.0.2.21:80", "10.2.0.11:8080", true},
		{"HELO refused", func() { all[1].mail.Store(false) }, "192.0.2.23:25", "10.2.0.12:25", true},
		{"name unknown", func() { all[2].name.Store(false) }, "192.0.2.24:53", "10.2.0.13:53", true},
		{"negative number in the file", func() { must(t, s.box.WriteFile(t.Context(), "/run/web3.state", "-1\n", 0o644)) }, "192.0.2.27:80", "10.2.0.13:8080", false},
		{"VIP of a real_server", func() { s.web(1).Must(t, "ip", "addr", "del", "192.0.2.28/32", "dev", "lo") }, "192.0.2.28:8080", "10.2.0.11:8080", false},
		{"no BFD", func() { must(t, bfd[2].Kill(t.Context())) }, "192.0.2.31:80", "10.2.0.12:8080", true},
		{"cable", func() { must(t, s.web(2).Unplug("back")) }, "192.0.2.25:80", "10.2.0.12:8080", true},
	} {
		fault.do()
		eventually(t, time.Minute, func() error {
			if lines := s.servers(t, fault.vip); slices.Contains(lines, fault.backend) {
				return fmt.Errorf("%s: %s still serves: %q", fault.name, fault.backend, lines)
			}
			return nil
		})
		if fault.left {
			answered(fault.vip)
		} else if err := speaks(t.Context(), s.client1, fault.vip); err == nil {
			t.Errorf("%s: %s answers without a backend", fault.name, fault.vip)
		}
	}
}

// servers returns the backends of a VIP with a weight, as ipvsadm shows them.
func (s *site) servers(t *testing.T, vip string) []string {
	t.Helper()
	var out []string
	for _, line := range linesWith(s.box.Must(t, "ipvsadm", "-Sn"), " "+vip+" -r ") {
		f := strings.Fields(line)
		if i := slices.Index(f, "-r"); !strings.HasSuffix(line, " -w 0") {
			out = append(out, f[i+1])
		}
	}
	return out
}
