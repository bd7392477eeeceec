package health

import "crypto/x509"

// means are the sources of askers: programs, VIPs and BFD sessions.
type means struct {
	run  Run
	vips VIPs
	bfd  *sessions
}

// asker returns the asker of c. It parses CAs through cas.
func (c *Check) asker(cas authorities, by means) (asker, error) {
	if err := c.valid(); err != nil {
		return nil, err
	}
	ask, err := c.ownAsker(cas, by)
	if len(c.VIPs) > 0 {
		ask = askVIPs(c.VIPs, ask, by.vips)
	}
	return ask, err
}

// ownAsker returns the asker of c for the backend's own address.
func (c *Check) ownAsker(cas authorities, by means) (asker, error) {
	var roots *x509.CertPool
	if c.Verify && c.CA != "" {
		var err error
		if roots, err = cas.parse(c.CA); err != nil {
			return nil, err
		}
	}
	switch c.Kind {
	case TLS:
		return askTLS(c.tlsConfig(roots)), nil
	case HTTP:
		return newPage(c).plain(), nil
	case HTTPS:
		return newPage(c).over(c.tlsConfig(roots, "http/1.1")), nil
	case GRPC:
		return askGRPC(c, roots), nil
	case UDP:
		return askUDP(c.Send, c.Expect), nil
	case DNS:
		q, err := c.question()
		return askDNS(q), err
	case SMTP:
		return askSMTP(c.Helo), nil
	case Ping:
		return askPing, nil
	case File:
		return askFile(c.File), nil
	case Exec:
		return askExec(c.Argv, by.run), nil
	case BFD:
		return by.bfd.ask, nil
	}
	return askTCP, nil
}
