package health

import "crypto/x509"

// asker returns the asker of c. It reads CA files through cas.
func (c *Check) asker(cas authorities) (asker, error) {
	if err := c.valid(); err != nil {
		return nil, err
	}
	var roots *x509.CertPool
	if c.Verify && c.CAFile != "" {
		var err error
		if roots, err = cas.read(c.CAFile); err != nil {
			return nil, err
		}
	}
	switch c.Kind {
	case TLS:
		return askTLS(c.tlsConfig(roots)), nil
	case HTTP:
		return newPage(c).ask, nil
	case HTTPS:
		return newPage(c).over(c.tlsConfig(roots, "http/1.1")), nil
	case GRPC:
		return askGRPC(c, roots), nil
	case UDP:
		return askUDP(c.Send, c.Expect), nil
	}
	return askTCP, nil
}
