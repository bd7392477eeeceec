package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// authorities are the CAs of one Set by their text, each parsed once.
type authorities map[string]*x509.CertPool

func (a authorities) parse(pem string) (*x509.CertPool, error) {
	if pool := a[pem]; pool != nil {
		return pool, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("the CA has no certificate")
	}
	a[pem] = pool
	return pool, nil
}

// serverName returns the name that is sent and verified; empty is none.
func (c *Check) serverName() string {
	if c.ServerName != "" {
		return c.ServerName
	}
	if host, _, err := net.SplitHostPort(c.Host); err == nil {
		return host
	}
	return c.Host
}

func (c *Check) tlsConfig(roots *x509.CertPool, protocols ...string) *tls.Config {
	cfg := &tls.Config{
		RootCAs:            roots,
		ServerName:         c.serverName(),
		NextProtos:         protocols,
		InsecureSkipVerify: !c.Verify,
		// Go's default list begins with a post-quantum exchange, which costs a third more and a
		// second packet. A check has no secret.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	}
	if c.Verify && cfg.ServerName == "" {
		// crypto/tls verifies all or nothing: here the chain, without a name.
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = verifyChain(roots)
	}
	return cfg
}

func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("tls: no certificate")
		}
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			opts.Intermediates.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(opts)
		return err
	}
}

func askTLS(cfg *tls.Config) asker {
	return overConn("tcp", func(ctx context.Context, conn net.Conn, t target) error {
		secure, err := t.handshake(conn, cfg)
		if err != nil {
			_ = conn.Close() // the handshake's error is the result
			return err
		}
		_ = secure.CloseWrite() // for servers that log a reset; errors have no effect
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		closeGracefully(ctx, conn)
		return nil
	})
}

// handshake has no context of its own: it ends with conn's deadline.
func (t target) handshake(conn net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	secure := tls.Client(conn, cfg)
	if err := secure.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", t.cause(err))
	}
	return secure, nil
}
