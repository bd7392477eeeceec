package health

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"weir/cmd/weirlab/fuzzing"
)

func addrOf(s *httptest.Server) netip.AddrPort {
	return s.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// site is a well-behaved server with pages for many cases.
func site(t *testing.T) netip.AddrPort {
	t.Helper()
	filler := strings.Repeat("filler ", 8000) // 56,000 bytes
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "all is well") })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "secret", http.StatusServiceUnavailable) })
	mux.Handle("/moved", http.RedirectHandler("/broken", http.StatusFound))
	mux.HandleFunc("/host", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "<%s> %s", r.Host, r.URL.RawQuery) })
	mux.HandleFunc("/late", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, filler+"needle") })
	mux.HandleFunc("/too-late", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, filler+filler+"needle") })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat(filler, 20)) })
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "needle")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return addrOf(s)
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	at := site(t)
	only := func(codes ...int) (out []StatusRange) {
		for _, c := range codes {
			out = append(out, StatusRange{c, c})
		}
		return out
	}
	tests := []struct {
		name  string
		check Check
		want  string
	}{
		{"a good page", Check{Path: "/ok"}, ""},
		{"a bad status", Check{Path: "/broken"}, "status 503, want 200-399"},
		{"a bad status that is wanted", Check{Path: "/broken", Status: only(503)}, ""},
		{"another status", Check{Path: "/ok", Status: append(only(204), StatusRange{300, 302})}, "status 200, want 204,300-302"},
		{"a redirect is good and not followed", Check{Path: "/moved"}, ""},
		{"a redirect is not what it leads to", Check{Path: "/moved", Status: only(503)}, "status 302, want 503"},
		{"the host of the check", Check{Path: "/host?a=b", Host: "www.example.com", Body: "<www.example.com> a=b"}, ""},
		{"the address for a host", Check{Path: "/host", Body: "<" + at.String() + ">"}, ""},
		{"text in the body", Check{Path: "/ok", Body: "well"}, ""},
		{"text not in the body", Check{Path: "/ok", Body: "ill"}, "the first 64 KiB of the body lack the wanted text"},
		{"digest of the body", Check{Path: "/ok", MD5: "4409bb950a3826c313c34b46b429ac84"}, ""},
		{"digest and text of the body", Check{Path: "/ok", Body: "well", MD5: "4409bb950a3826c313c34b46b429ac84"}, ""},
		{"another digest", Check{Path: "/ok", MD5: "00"}, "the MD5 digest of the body is 4409bb950a3826c313c34b46b429ac84, want 00"},
		{"digest without the text", Check{Path: "/ok", Body: "ill", MD5: "4409bb950a3826c313c34b46b429ac84"}, "the first 64 KiB of the body lack the wanted text"},
		{"digest of a long body", Check{Path: "/endless", MD5: "00"}, "the body is longer than the 1 MiB that a digest may cover"},
		{"digest and text of a long body", Check{Path: "/endless", Body: "filler", MD5: "00"}, "the body is longer than the 1 MiB that a digest may cover"},
		{"text late in the body", Check{Path: "/late", Body: "filler needle"}, ""},
		{"text beyond 64 KiB", Check{Path: "/too-late", Body: "needle"}, "the first 64 KiB of the body lack the wanted text"},
		{"an interim answer first", Check{Path: "/early", Status: only(200), Body: "needle"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check.Kind = HTTP
			if got := once(t, tt.check, at); !same(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHTTPNastyServers(t *testing.T) {
	t.Parallel()
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct {
		name   string
		server func(net.Conn)
		body   string
		within time.Duration
		want   string
	}{
		{"silent", silent, "", hurry, "no answer within 150ms"},
		{"closes at once", func(net.Conn) {}, "", 0, "connection closed too early|connection reset by peer"},
		{"closes after the request", replies(""), "", 0, "connection closed too early"},
		{"closes in the header", replies("HTTP/1.1 200 OK\r\nSer"), "", 0, "connection closed too early"},
		{"closes in the body", replies("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"), "needle", 0, "connection closed too early"},
		{"drips its header", repliesForEver("HTTP/1.1 200 OK\r\nX: ", "x", 5*time.Millisecond), "", hurry, "no answer within 150ms"},
		{"drips its body", repliesForEver("HTTP/1.1 200 OK\r\n\r\n", "x", 5*time.Millisecond), "needle", hurry, "no answer within 150ms"},
		{"drips a body that unused wants", repliesForEver("HTTP/1.1 200 OK\r\n\r\n", "x", 5*time.Millisecond), "", 0, ""},
		{"endless header", repliesForEver("HTTP/1.1 200 OK\r\n", "X: yyyyyyyyyy\r\n", 0), "", 0, "header of the answer is longer than 64 KiB"},
		{"endless line", repliesForEver("", "x", 0), "", 0, "header of the answer is longer than 64 KiB"},
		{"endless body", repliesForEver("HTTP/1.1 200 OK\r\n\r\n", "xxxxxxxx", 0), "needle", 0, "the first 64 KiB of the body lack the wanted text"},
		{"endless body that unused wants", repliesForEver("HTTP/1.1 200 OK\r\n\r\n", "xxxxxxxx", 0), "", 0, ""},
		{"endless tiny chunks", repliesForEver(chunked, "1\r\nx\r\n", 0), "needle", 0, "the first 64 KiB of the body lack the wanted text"},
		{"endless interim answers", repliesForEver("", "HTTP/1.1 100 Continue\r\n\r\n", 0), "", 0, "answer is not HTTP/1"},
		{"bad chunks", replies(chunked + "secret\r\n\r\n" + strings.Repeat("x", 9000)), "needle", 0, "answer is not HTTP/1"},
		{"another protocol", replies("220 secret ESMTP\r\n"), "", 0, "answer is not HTTP/1"},
		{"no keep-alive wanted, none given", replies("HTTP/1.0 200 OK\r\n\r\nneedle"), "needle", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Check{Kind: HTTP, Path: "/", Body: tt.body, Timeout: tt.within}
			got := once(t, c, serve(t, "127.0.0.1", tt.server))
			if first, second, _ := strings.Cut(tt.want, "|"); !same(got, first) && (second == "" || !strings.HasSuffix(got, second)) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
			if strings.Contains(got, "secret") {
				t.Errorf("problem %q has text of the server", got)
			}
		})
	}
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	id := newIdentity(t)
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nneedle"
	tests := []struct {
		name   string
		server func(net.Conn)
		check  Check
		want   string
	}{
		{"a good page", id.secure(replies(ok)), Check{Body: "needle"}, ""},
		{"verified", id.secure(replies(ok)), Check{Verify: true, CA: id.ca, Host: "example.com"}, ""},
		{"a bad status", id.secure(replies("HTTP/1.1 500 Oops\r\n\r\n")), Check{}, "status 500, want 200-399"},
		{"silent after the handshake", id.secure(silent), Check{Timeout: 2 * hurry}, "no answer within 300ms"},
		{"silent before the handshake", silent, Check{Timeout: hurry}, "TLS handshake: no answer within 150ms"},
		{"not TLS", replies(ok), Check{Timeout: hurry}, "TLS handshake: no answer within 150ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check.Kind, tt.check.Path = HTTPS, "/"
			if got := once(t, tt.check, serve(t, "127.0.0.1", tt.server)); !same(got, tt.want) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

// TestHTTPIgnoresProxyFromEnvironment can't be parallel: it alters the environment.
func TestHTTPIgnoresProxyFromEnvironment(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, "http://"+unused(t).String())
	}
	for _, c := range []Check{{Kind: HTTP, Path: "/ok"}, {Kind: GRPC}} {
		addr := site(t)
		if c.Kind == GRPC {
			addr = grpcServer(t)
		}
		if got := once(t, c, addr); got != "" {
			t.Errorf("%s: problem %q", c.Kind, got)
		}
	}
}

func TestHTTPIsOneConnectionPerCheck(t *testing.T) {
	t.Parallel()
	var opened, open atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	for range 20 {
		if got := once(t, Check{Kind: HTTP, Path: "/"}, addrOf(s)); got != "" {
			t.Fatalf("problem %q", got)
		}
	}
	s.Close()
	if opened.Load() != 20 || open.Load() != 0 {
		t.Errorf("%d connections opened and %d left, want 20 and 0", opened.Load(), open.Load())
	}
}

func TestContainsFindsTextAcrossReads(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("ab", 5000) + "aXb" + strings.Repeat("ab", 5000)
	for _, r := range []io.Reader{
		strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)),
		iotest.HalfReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text)),
	} {
		if found, err := contains(r, []byte("baXba")); !found || err != nil {
			t.Errorf("%T: found %t, %v", r, found, err)
		}
	}
}

// answered is a connection on which an answer waits.
type answered struct {
	net.Conn
	io.Reader
}

func (a answered) Read(p []byte) (int, error)       { return a.Reader.Read(p) }
func (a answered) Write(p []byte) (int, error)      { return len(p), nil }
func (a answered) Close() error                     { return nil }
func (a answered) SetDeadline(time.Time) error      { return nil }
func (a answered) SetReadDeadline(time.Time) error  { return nil }
func (a answered) SetWriteDeadline(time.Time) error { return nil }

// FuzzHTTPAnswer expects for any answer a result without text of the server, limited reads,
// and the same outcome as bytes.Contains.
func FuzzHTTPAnswer(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nneedle"), "needle")
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nneedle\r\n0\r\n\r\n"), "dle")
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 No\r\n\r\n"), "")
	f.Add([]byte("HTTP/1.1 200 OK\r\nX"), "x")
	f.Fuzz(func(t *testing.T, answer []byte, want string) {
		if len(want) > maxBody {
			t.Skip("no valid check")
		}
		p := newPage(&Check{Path: "/", Body: want})
		source := bytes.NewReader(answer)
		dial := func(context.Context, string, string) (net.Conn, error) {
			return answered{Reader: io.LimitReader(source, 1<<30)}, nil
		}
		err := p.plain()(t.Context(), dial, target{address: "10.0.0.1:80", timeout: time.Second})
		if read := len(answer) - source.Len(); read > maxHeader+maxChunks+drainBytes {
			t.Errorf("read %d bytes", read)
		}
		known := map[string]bool{
			"": true, errClosed.Error(): true, errNotHTTP.text: true, errHeader.text: true, errBody.text: true,
		}
		if got := problem(err); !known[got] && !strings.HasPrefix(got, "status ") {
			t.Errorf("problem %q", got)
		}
		if want != "" && err == nil && !bytes.Contains(answer, []byte(want)) && !bytes.Contains(answer, []byte("hunked")) {
			t.Errorf("found %q, which is not there", want)
		}
	})
}

// FuzzContains compares the window with the whole.
func FuzzContains(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte("xxneedlexx"), []byte("needle"))
	f.Fuzz(func(t *testing.T, text, want []byte) {
		if len(want) == 0 {
			t.Skip("no check asks for nothing")
		}
		for _, r := range []io.Reader{bytes.NewReader(text), iotest.HalfReader(bytes.NewReader(text))} {
			if got, err := contains(r, want); got != bytes.Contains(text, want) || err != nil {
				t.Errorf("contains = %t, %v", got, err)
			}
		}
	})
}

// FuzzDatagram: only the wanted beginning is good.
func FuzzDatagram(f *testing.F) {
	fuzzing.Wide(f)
	f.Add([]byte("pong"), []byte("po"))
	f.Fuzz(func(t *testing.T, answer, expect []byte) {
		good := len(answer) >= len(expect) && string(answer[:len(expect)]) == string(expect)
		if err := matchDatagram(answer, expect); (err == nil) != good {
			t.Errorf("matchDatagram = %v, want good = %t", err, good)
		}
	})
}
