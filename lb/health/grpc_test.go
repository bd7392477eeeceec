package health

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"weir/lb"
)

// grpcServer knows the services "good" and "bad", and itself is good.
func grpcServer(t testing.TB, opts ...grpc.ServerOption) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	known := health.NewServer()
	known.SetServingStatus("good", grpc_health_v1.HealthCheckResponse_SERVING)
	known.SetServingStatus("bad", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	s := grpc.NewServer(opts...)
	grpc_health_v1.RegisterHealthServer(s, known)
	serveGRPC(t, s, l)
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.Addr().(*net.TCPAddr).AddrPort().Port())
}

func serveGRPC(t testing.TB, s *grpc.Server, l net.Listener) {
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	id := newIdentity(t)
	server := grpcServer(t)
	secure := grpcServer(t, grpc.Creds(credentials.NewServerTLSFromCert(&id.cert)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	serveGRPC(t, grpc.NewServer(), l)
	withoutHealth := l.Addr().(*net.TCPAddr).AddrPort()

	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty SETTINGS frame

	tests := []struct {
		name  string
		check Check
		addr  netip.AddrPort
		want  string // its beginning
	}{
		{"the server as a whole", Check{}, server, ""},
		{"a good service", Check{GRPCService: "good"}, server, ""},
		{"with a host", Check{Host: "example.com"}, server, ""},
		{"a bad service", Check{GRPCService: "bad"}, server, "grpc health is NOT_SERVING, want SERVING"},
		{"a service that is not there", Check{GRPCService: "none"}, server, `grpc health knows no service "none"`},
		{"a server without health", Check{}, withoutHealth, "grpc health is not implemented"},
		{"TLS", Check{GRPCTLS: true}, secure, ""},
		{"TLS, verified", Check{GRPCTLS: true, Verify: true, CA: id.ca, Host: "example.com"}, secure, ""},
		{"TLS, verified without a name", Check{GRPCTLS: true, Verify: true, CA: id.ca}, secure, ""},
		{"TLS, wrong name", Check{GRPCTLS: true, Verify: true, CA: id.ca, ServerName: "example.org"}, secure, "grpc: authentication handshake failed: tls: failed to verify certificate"},
		{"no TLS there", Check{GRPCTLS: true}, server, "grpc: authentication handshake failed"},
		{"refused", Check{}, unused(t), "connect ADDR: connection refused"},
		{"silent", Check{Timeout: hurry}, serve(t, "127.0.0.1", silent), "no answer within 150ms"},
		{"HTTP/1", Check{}, serve(t, "127.0.0.1", replies("HTTP/1.1 400 Bad Request\r\n\r\n")), "grpc: "},
		{"closes", Check{}, serve(t, "127.0.0.1", func(net.Conn) {}), "grpc: "},
		{"speaks and never answers", Check{Timeout: hurry}, serve(t, "127.0.0.1", repliesForEver("", settings, 5*time.Millisecond)), "no answer within 150ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check.Kind = GRPC
			got := once(t, tt.check, tt.addr)
			if !same(got, tt.want) && (tt.want == "" || !strings.HasPrefix(got, tt.want)) {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNothingIsLeftBehind can't be parallel: it counts all goroutines.
func TestNothingIsLeftBehind(t *testing.T) {
	id := newIdentity(t)
	var groups []Group
	for i, to := range []struct {
		check Check
		addr  netip.AddrPort
	}{
		{Check{Kind: TCP}, serve(t, "127.0.0.1", silent)},
		{Check{Kind: TLS}, serve(t, "127.0.0.1", id.secure(silent))},
		{Check{Kind: HTTP, Path: "/ok"}, site(t)},
		{Check{Kind: HTTP, Path: "/"}, serve(t, "127.0.0.1", silent)},
		{Check{Kind: HTTPS, Path: "/"}, serve(t, "127.0.0.1", id.secure(silent))},
		{Check{Kind: GRPC}, grpcServer(t)},
		{Check{Kind: GRPC}, unused(t)},
		{Check{Kind: GRPC}, serve(t, "127.0.0.1", silent)},
		{Check{Kind: UDP, Send: []byte("ping")}, unused(t)},
	} {
		to.check.Interval, to.check.Timeout, to.check.Rise, to.check.Fall = time.Millisecond, hurry, 1, 1
		groups = append(groups, Group{
			Service: lb.ServiceID{Source: "static", Name: string(rune('a' + i))}, Check: to.check, Quorum: 1,
			Ports: []lb.Port{{Port: 80, Proto: lb.TCP, Backends: []lb.Backend{{Addr: to.addr, Weight: 1}}}},
		})
	}
	before := runtime.NumGoroutine()
	c := New(Options{})
	c.Set(groups)
	if now := runtime.NumGoroutine(); now > before { // those of the servers may end
		t.Errorf("%d goroutines before Run, want %d at most", now, before)
	}
	stop := running(t, c)
	must(t, c.Ready(t.Context()))
	stop()
	// What gRPC and the servers have is closed, but may not have ended yet.
	deadline := time.After(5 * time.Second)
	for runtime.NumGoroutine() > before {
		select {
		case <-deadline:
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		default:
			runtime.Gosched()
		}
	}
}
