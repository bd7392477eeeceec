package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"weir/cmd/weirlab/fuzzing"
)

// resolver returns a new address that answers each query with change.
func resolver(t *testing.T, change func(m *dnsmessage.Message, send func(*dnsmessage.Message))) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, maxDNS)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil {
				continue
			}
			m.Response = true
			change(&m, func(m *dnsmessage.Message) {
				if packet, err := m.Pack(); err == nil {
					conn.WriteTo(packet, from)
				}
			})
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestDNS(t *testing.T) {
	t.Parallel()
	knows := resolver(t, func(m *dnsmessage.Message, send func(*dnsmessage.Message)) {
		if q := m.Questions[0]; q.Name.String() != "www.example.com." || q.Type != dnsmessage.TypeAAAA {
			m.RCode = dnsmessage.RCodeNameError
		}
		send(m)
	})
	tests := []struct {
		name  string
		check Check
		addr  netip.AddrPort
		want  string
	}{
		{"a name", Check{DNSName: "www.example.com", DNSType: "AAAA"}, knows, ""},
		{"a name with its dot", Check{DNSName: "www.example.com.", DNSType: "AAAA"}, knows, ""},
		{"another name", Check{DNSName: "example.org", DNSType: "A"}, knows, "DNS status is NXDOMAIN, want NOERROR"},
		{"a late answer first", Check{DNSName: ".", DNSType: "SOA"}, resolver(t, func(m *dnsmessage.Message, send func(*dnsmessage.Message)) {
			late := *m
			late.ID++
			late.RCode = dnsmessage.RCodeRefused
			send(&late)
			send(m)
		}), ""},
		{"a query for an answer", Check{DNSName: ".", DNSType: "SOA"}, resolver(t, func(m *dnsmessage.Message, send func(*dnsmessage.Message)) {
			m.Response = false
			send(m)
		}), "answer is not DNS"},
		{"another protocol", Check{DNSName: ".", DNSType: "SOA"}, garbled(t), "answer is not DNS"},
		{"silent", Check{DNSName: ".", DNSType: "SOA", Timeout: hurry}, answering(t, "127.0.0.1", ""), "receive from ADDR: no answer within 150ms"},
		{"refused", Check{DNSName: ".", DNSType: "SOA"}, unreachable(t), "receive from ADDR: connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check.Kind = DNS
			if got := once(t, tt.check, tt.addr); !same(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

// garbled returns a new address that answers each datagram with one byte.
func garbled(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		for {
			_, from, err := conn.ReadFrom(make([]byte, 1))
			if err != nil {
				return
			}
			conn.WriteTo([]byte{0}, from)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// mailServer greets with the first reply, and answers each line with the next.
func mailServer(t *testing.T, replies ...string) netip.AddrPort {
	t.Helper()
	return serve(t, "127.0.0.1", func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for i, reply := range replies {
			if i > 0 {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				reply = strings.ReplaceAll(reply, "LINE", strings.TrimSpace(line))
			}
			io.WriteString(conn, reply+"\r\n")
		}
		silent(conn)
	})
}

func TestSMTP(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		replies []string
		want    string
	}{
		{"a good server", []string{"220 mail.example ESMTP", "250 LINE", "221 bye"}, ""},
		{"replies of several lines", []string{"220-mail.example\r\n220 ESMTP", "250-LINE\r\n250-SIZE\r\n250", "221 bye"}, ""},
		{"no service", []string{"554 no"}, "SMTP reply 554 to the connection, want 220"},
		{"HELO refused", []string{"220 x", "550 LINE"}, "SMTP reply 550 to HELO, want 250"},
		{"QUIT refused", []string{"220 x", "250 x", "500 LINE"}, "SMTP reply 500 to QUIT, want 221"},
		{"two codes in a reply", []string{"220-x\r\n250 y"}, "answer is not SMTP"},
		{"another protocol", []string{"SSH-2.0-x"}, "answer is not SMTP"},
		{"a line without end", []string{"220 " + strings.Repeat("x", 8192)}, "answer is not SMTP"},
		{"endless lines", []string{strings.Repeat("220-x\r\n", maxReply/7+1)}, "connection closed too early"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := once(t, Check{Kind: SMTP, Helo: "weir.example"}, mailServer(t, tt.replies...)); !same(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		if got := once(t, Check{Kind: SMTP, Helo: "x", Timeout: hurry}, serve(t, "127.0.0.1", silent)); !same(got, "no answer within 150ms") {
			t.Errorf("problem %q", got)
		}
	})
}

func TestFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	name := filepath.Join(folder, "state")
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"0\n", ""},
		{" 7 \n", ""},
		{"-1\n", name + " has -1, want 0 or more"},
		{"up", name + " has no number"},
		{strings.Repeat("1", 65), "read " + name + ": longer than 64 bytes"},
	} {
		must(t, os.WriteFile(name, []byte(tt.text), 0o600))
		if got := once(t, Check{Kind: File, File: name}, backend(0)); got != tt.want {
			t.Errorf("%q: problem %q, want %q", tt.text, got, tt.want)
		}
	}
	pipe := filepath.Join(folder, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	for name, want := range map[string]string{
		pipe: ": not a regular file", folder: ": not a regular file", folder + "/none": ": no such file or directory",
	} {
		if got := once(t, Check{Kind: File, File: name}, backend(0)); got != "read "+name+want {
			t.Errorf("problem %q, want %q", got, "read "+name+want)
		}
	}
}

// TestExec maps the results of a program to those of a check.
func TestExec(t *testing.T) {
	t.Parallel()
	argv := []string{"/bin/check", "$WEIR_ADDRESS", "$WEIR_PORT", "$a"}
	for _, tt := range []struct {
		status int
		output string
		err    error
		want   string
		local  bool
	}{
		{0, "fine", nil, "", false},
		{2, "disk full", nil, "exit status 2: disk full", false},
		{1, "", nil, "exit status 1", false},
		{0, "", fmt.Errorf("run: %w", context.DeadlineExceeded), "no answer within 1s", false},
		{0, "", syscall.ENOENT, "program not run: no such file or directory", true},
	} {
		run := func(_ context.Context, p Program) (int, string, error) {
			if got := fmt.Sprint(p.Argv, p.Env); got != "[/bin/check 10.0.0.1 80 $a] [WEIR_ADDRESS=10.0.0.1 WEIR_PORT=80]" {
				t.Errorf("ran %s", got)
			}
			return tt.status, tt.output, tt.err
		}
		err := askExec(argv, run)(t.Context(), nil, target{address: backend(0).String(), timeout: 1e9})
		if problem(err) != tt.want || localFault(err, 0, 1e9) != tt.local {
			t.Errorf("%v: problem %q, local %v; want %q, %v", tt.err, problem(err), localFault(err, 0, 1e9), tt.want, tt.local)
		}
	}
	if err := askExec(argv, nil)(t.Context(), nil, target{address: backend(0).String(), timeout: 1e9}); !errors.Is(err, errNoRun) {
		t.Errorf("without Run: %v", err)
	}
}

// TestPingJudge has messages for all sockets of the box: only those about the request count.
func TestPingJudge(t *testing.T) {
	t.Parallel()
	v4 := echo{"ip4:icmp", echoRequest4, echoReply4, unreachable4}
	v6 := echo{"ip6:ipv6-icmp", echoRequest6, echoReply6, unreachable6}
	header4, header6 := append([]byte{0x45}, make([]byte, 19)...), append([]byte{0x60}, make([]byte, 39)...)
	as := func(m []byte, kind byte) []byte { return append([]byte{kind}, m[1:]...) }
	join := func(parts ...[]byte) []byte {
		var out []byte
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		echo   echo
		packet func(request []byte) []byte
		own    bool
		want   error
	}{
		{"reply", v4, func(r []byte) []byte { return join(header4, as(r, echoReply4)) }, true, nil},
		{"reply over IPv6", v6, func(r []byte) []byte { return as(r, echoReply6) }, true, nil},
		{"reply to another request", v4, func([]byte) []byte { return join(header4, as(v4.message(8), echoReply4)) }, false, nil},
		{"request of the backend", v4, func(r []byte) []byte { return join(header4, r) }, false, nil},
		{"unreachable", v4, func(r []byte) []byte { return join(header4, []byte{3, 1, 0, 0, 0, 0, 0, 0}, header4, r[:8]) }, true, errUnreachable},
		{"unreachable over IPv6", v6, func(r []byte) []byte { return join([]byte{1, 0, 0, 0, 0, 0, 0, 0}, header6, r) }, true, errUnreachable},
		{"unreachable of another request", v4, func([]byte) []byte {
			return join(header4, []byte{3, 1, 0, 0, 0, 0, 0, 0}, header4, v4.message(8))
		}, false, errUnreachable},
		{"short", v4, func([]byte) []byte { return header4 }, false, nil},
		{"empty", v4, func([]byte) []byte { return nil }, false, nil},
	} {
		request := tt.echo.message(7)
		own, err := tt.echo.judge(tt.packet(request), request)
		if own != tt.own || own && !errors.Is(err, tt.want) {
			t.Errorf("%s: own %v, %v", tt.name, own, err)
		}
	}
	if m := v4.message(7); checksum(m) != 0 {
		t.Errorf("checksum of %x is wrong", m)
	}
}

// TestPing asks this machine. Its kernel answers.
func TestPing(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("raw sockets need root")
	}
	for _, a := range []string{"127.0.0.1:80", "[::1]:80"} {
		if got := once(t, Check{Kind: Ping}, netip.MustParseAddrPort(a)); got != "" {
			t.Errorf("%s: problem %q", a, got)
		}
	}
}

// FuzzAnswers gives the judges of DNS, SMTP and ICMP any bytes.
func FuzzAnswers(f *testing.F) {
	fuzzing.Wide(f)
	v4 := echo{"ip4:icmp", echoRequest4, echoReply4, unreachable4}
	v6 := echo{"ip6:ipv6-icmp", echoRequest6, echoReply6, unreachable6}
	f.Add([]byte("220-a\r\n220 b\r\n"))
	f.Add(v4.message(1))
	f.Add(append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0x60}, v6.message(1)...))
	f.Add([]byte{0, 7, 0x81, 0x83, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		own, err := judgeDNS(b, 7)
		if err != nil && !own {
			t.Errorf("a fault of another response: %v", err)
		}
		code, err := readReply(bufio.NewReader(strings.NewReader(string(b))))
		if (err == nil) != (len(code) == 3) {
			t.Errorf("code %q, error %v", code, err)
		}
		for _, e := range []echo{v4, v6} {
			e.judge(b, e.message(1))
		}
	})
}
