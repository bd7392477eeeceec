package health

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

const (
	patience = 20 * time.Second       // of checks that end before
	hurry    = 150 * time.Millisecond // of checks that run into it
)

// once runs a like the Checker, and returns the problem with the address written as ADDR.
func once(t *testing.T, c Check, a netip.AddrPort) string {
	t.Helper()
	c.Interval, c.Rise, c.Fall = time.Second, 1, 1
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	ask, err := c.asker(authorities{}, means{})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout)
	defer cancel()
	began := time.Now()
	err = ask(ctx, (&net.Dialer{}).DialContext, target{address: a.String(), timeout: c.Timeout})
	if took := time.Since(began); took > c.Timeout+20*time.Second {
		t.Errorf("took %s, want at most %s", took, c.Timeout)
	}
	return strings.ReplaceAll(problem(err), a.String(), "ADDR")
}

// same reports whether got is the wanted problem. On a busy machine time may run out before
// the intended part of the check.
func same(got, want string) bool {
	if _, end, ok := strings.Cut(want, "no answer"); ok {
		return strings.HasSuffix(got, "no answer"+end)
	}
	return got == want
}

// serve handles every connection to a new address, and waits for the handlers at the end of
// the test.
func serve(t testing.TB, host string, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	must(t, err)
	return serveOn(t, l, handle)
}

func serveOn(t testing.TB, l net.Listener, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// silent reads and never answers.
func silent(conn net.Conn) { io.Copy(io.Discard, conn) }

// replies reads the request, answers with text, and closes.
func replies(text string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		io.WriteString(conn, text)
	}
}

// repliesForEver answers with head, then repeats again, until it fails.
func repliesForEver(head, again string, pause time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		_, err := io.WriteString(conn, head)
		if pause == 0 {
			again = strings.Repeat(again, 500)
		}
		tick := time.NewTicker(max(pause, 1))
		defer tick.Stop()
		for err == nil {
			if pause > 0 {
				<-tick.C
			}
			_, err = io.WriteString(conn, again)
		}
	}
}

func readRequest(conn net.Conn) string {
	var got []byte
	one := make([]byte, 512)
	for !strings.Contains(string(got), "\r\n\r\n") {
		n, err := conn.Read(one)
		if err != nil {
			break
		}
		got = append(got, one[:n]...)
	}
	return string(got)
}

// unused returns an address without a listener. The port is bound, so that no other test gets
// it meanwhile.
func unused(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	must(t, err)
	in4 := bound.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), uint16(in4.Port))
}

// identity is a CA in PEM, and a certificate of that CA for example.com.
type identity struct {
	ca   string
	cert tls.Certificate
}

func newIdentity(t testing.TB) identity {
	t.Helper()
	must := func(err error) {
		must(t, err)
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, DNSNames: []string{"example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	must(err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	return identity{text, tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}}
}

// secure wraps handle in TLS.
func (id identity) secure(handle func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		server := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{id.cert}})
		defer server.Close()
		if server.Handshake() == nil {
			handle(server)
		}
	}
}

func TestTCP(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		addr netip.AddrPort
		want string
	}{
		{"accepted over IPv4", serve(t, "127.0.0.1", silent), ""},
		{"accepted over IPv6", serve(t, "::1", silent), ""},
		{"accepted and closed", serve(t, "127.0.0.1", func(net.Conn) {}), ""},
		{"refused", unused(t), "connect ADDR: connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := once(t, Check{Kind: TCP}, tt.addr); !same(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTCPClosesInOrder expects the end of the stream at the server, not a reset.
func TestTCPClosesInOrder(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	addr := serve(t, "127.0.0.1", func(conn net.Conn) {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	})
	if got := once(t, Check{Kind: TCP}, addr); got != "" {
		t.Errorf("problem %q", got)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the server ended %v, want %v", err, io.EOF)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	id, foreign := newIdentity(t), newIdentity(t)
	server := serve(t, "127.0.0.1", id.secure(silent))
	server6 := serve(t, "::1", id.secure(silent))
	tests := []struct {
		name  string
		check Check
		addr  netip.AddrPort
		want  string
	}{
		{"any certificate", Check{}, server, ""},
		{"any certificate over IPv6", Check{}, server6, ""},
		{"any certificate, a name sent", Check{ServerName: "other.example"}, server, ""},
		{"verified with name", Check{Verify: true, CA: id.ca, ServerName: "example.com"}, server, ""},
		{"verified with the host's name", Check{Verify: true, CA: id.ca, Host: "example.com:8443"}, server, ""},
		{"verified without a name", Check{Verify: true, CA: id.ca}, server, ""},
		{
			"wrong name", Check{Verify: true, CA: id.ca, ServerName: "example.org"}, server,
			"TLS handshake: tls: failed to verify certificate: x509: certificate is valid for example.com, not example.org",
		},
		{
			"unknown authority", Check{Verify: true, CA: foreign.ca, ServerName: "example.com"}, server,
			"TLS handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
		{
			"unknown authority without a name", Check{Verify: true, CA: foreign.ca}, server,
			"TLS handshake: x509: certificate signed by unknown authority",
		},
		{
			"not TLS", Check{}, serve(t, "127.0.0.1", func(conn net.Conn) { io.WriteString(conn, "220 mail.example ESMTP\r\n"); silent(conn) }),
			"TLS handshake: tls: first record does not look like a TLS handshake",
		},
		{"silent", Check{Timeout: hurry}, serve(t, "127.0.0.1", silent), "TLS handshake: no answer within 150ms"},
		{"closes", Check{}, serve(t, "127.0.0.1", func(c net.Conn) { c.Read(make([]byte, 1<<16)) }), "TLS handshake: connection closed too early"},
		{"refused", Check{}, unused(t), "connect ADDR: connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check.Kind = TLS
			got := once(t, tt.check, tt.addr)
			// The tried authorities differ between two test CAs.
			if !same(got, tt.want) && (tt.want == "" || !strings.HasPrefix(got, tt.want)) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTLSClosesInOrder expects no reset because of an unread session ticket.
func TestTLSClosesInOrder(t *testing.T) {
	t.Parallel()
	id := newIdentity(t)
	ended := make(chan error, 1)
	addr := serve(t, "127.0.0.1", func(conn net.Conn) {
		id.secure(func(secure net.Conn) {
			_, err := secure.Read(make([]byte, 1))
			ended <- err
		})(conn)
	})
	if got := once(t, Check{Kind: TLS}, addr); got != "" {
		t.Errorf("problem %q", got)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the server ended %v, want %v", err, io.EOF)
	}
}

// answering returns a new address that answers each "ping", unless answer is empty.
func answering(t *testing.T, host, answer string) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer != "" && string(buf[:n]) == "ping" {
				conn.WriteTo([]byte(answer), from)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// unreachable returns a UDP port that refuses: a connected socket receives from its peer only.
func unreachable(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.Dial("udp", "127.0.0.1:9")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestUDP(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		expect string
		within time.Duration
		addr   netip.AddrPort
		want   string
	}{
		{"expected answer", "pong", 0, answering(t, "127.0.0.1", "pong 1"), ""},
		{"expected answer over IPv6", "pong", 0, answering(t, "::1", "pong"), ""},
		{"any answer will do", "", 0, answering(t, "127.0.0.1", strings.Repeat("x", 9000)), ""},
		{"another answer", "pong", 0, answering(t, "127.0.0.1", "secret"), "answer does not begin as expected"},
		{"answer too short", "pong", 0, answering(t, "127.0.0.1", "po"), "answer does not begin as expected"},
		{"silent", "pong", hurry, answering(t, "127.0.0.1", ""), "receive from ADDR: no answer within 150ms"},
		{"port unreachable fails at once", "pong", 0, unreachable(t), "receive from ADDR: connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Check{Kind: UDP, Send: []byte("ping"), Expect: []byte(tt.expect), Timeout: tt.within}
			if got := once(t, c, tt.addr); !same(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

func TestProblemIsOneShortCleanLine(t *testing.T) {
	t.Parallel()
	got := problem(errors.New("a\nb\x1b[31m\xff" + strings.Repeat("é", 200)))
	if strings.ContainsAny(got, "\n\x1b") || !utf8.ValidString(got) || len(got) > maxProblem+3 || !strings.HasPrefix(got, "a b [31m") {
		t.Errorf("problem %q", got)
	}
}
