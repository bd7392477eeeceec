package health

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// maxMessage limits a message of the server; a health answer has a few bytes.
const maxMessage = 64 << 10

// bufferSize is enough for both; gRPC would take 32 KiB for each.
const bufferSize = 2 << 10

func askGRPC(c *Check, roots *x509.CertPool) asker {
	opts := []grpc.DialOption{
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithUserAgent("weir"),
		grpc.WithMaxHeaderListSize(maxMessage),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	switch {
	case c.GRPCTLS:
		opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(c.tlsConfig(roots, "h2"))))
	case c.Host != "":
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(c.Host))
	default:
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	request := &grpc_health_v1.HealthCheckRequest{Service: c.GRPCService}
	return func(ctx context.Context, dial Dial, t target) error {
		return checkGRPC(ctx, dial, t, request, opts)
	}
}

func checkGRPC(ctx context.Context, dial Dial, t target, request *grpc_health_v1.HealthCheckRequest, opts []grpc.DialOption) error {
	// gRPC converts the dialer's error to text; this is the error itself.
	var dialed atomic.Pointer[error]
	dialer := func(dctx context.Context, _ string) (net.Conn, error) {
		conn, err := t.connect(dctx, dial, "tcp")
		if err != nil && ctx.Err() == nil {
			dialed.Store(&err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+t.address, append(opts[:len(opts):len(opts)], grpc.WithContextDialer(dialer))...)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, request)
	if err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
		return nil
	}
	if err == nil {
		return fmt.Errorf("grpc health is %s, want SERVING", answer.GetStatus())
	}
	if refused := dialed.Load(); refused != nil {
		return *refused
	}
	return t.grpcCause(err, request.Service)
}

func (t target) grpcCause(err error, service string) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded:
		return timeoutError(t.timeout)
	case codes.NotFound:
		return fmt.Errorf("grpc health knows no service %q", service)
	case codes.Unimplemented:
		return errors.New("grpc health is not implemented")
	case codes.Unavailable:
		return errors.New("grpc: " + plain(s.Message()))
	}
	return fmt.Errorf("grpc status %s", s.Code())
}

// plain removes the wrapping of the message of a broken transport: `connection error: desc =
// "transport: ..."`.
func plain(message string) string {
	if _, inner, ok := strings.Cut(message, `desc = "`); ok {
		message = strings.TrimSuffix(inner, `"`)
	}
	return strings.TrimPrefix(message, "transport: ")
}
