package health

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxDatagram is the maximum size of a UDP datagram over IPv4.
const maxDatagram = 65507

// Validate returns all errors of c, including those of its CA. A group with an invalid
// check is not checked: its backends are down.
func Validate(c Check) error {
	_, err := c.asker(authorities{}, means{})
	return err
}

// valid checks the values only.
func (c *Check) valid() error {
	errs := []error{c.validKind(), c.validTimes()}
	if len(c.VIPs) > 0 && (c.Kind == Ping || c.Kind == File || c.Kind == Exec || c.Kind == BFD) {
		errs = append(errs, fmt.Errorf("a check of type %s can't address a VIP", c.Kind))
	}
	switch c.Kind {
	case HTTP, HTTPS:
		errs = append(errs, c.validPage())
	case GRPC:
		errs = append(errs, validName("host", c.Host))
		if !utf8.ValidString(c.GRPCService) {
			errs = append(errs, fmt.Errorf("gRPC service %q is not UTF-8", c.GRPCService))
		}
	case UDP:
		if len(c.Send) > maxDatagram || len(c.Expect) > maxDatagram {
			errs = append(errs, fmt.Errorf("send and expect are at most %d bytes", maxDatagram))
		}
	case DNS:
		_, err := c.question()
		errs = append(errs, err)
	case SMTP:
		errs = append(errs, validName("helo", c.Helo))
	case File:
		errs = append(errs, absolute("file", c.File))
	case Exec:
		program := ""
		if len(c.Argv) > 0 {
			program = c.Argv[0]
		}
		errs = append(errs, absolute("program", program))
	case BFD:
		if b := c.BFD; b.MinTx <= 0 || b.IdleTx <= 0 || b.MinRx <= 0 || b.Multiplier == 0 || b.TTL == 0 {
			errs = append(errs, errors.New("the intervals, multiplier and TTL of BFD must be positive"))
		}
	}
	return errors.Join(append(errs, validName("server name", c.ServerName))...)
}

func (c *Check) validKind() error {
	switch c.Kind {
	case TCP, TLS, HTTP, HTTPS, GRPC, UDP, DNS, SMTP, Ping, File, Exec, BFD:
		return nil
	}
	return fmt.Errorf("unknown check %q; use tcp, tls, http, https, grpc, udp, dns, smtp, ping, file, exec or bfd", c.Kind)
}

func (c *Check) validTimes() error {
	var errs []error
	if c.Interval <= 0 {
		errs = append(errs, fmt.Errorf("interval %s is not positive", c.Interval))
	}
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("timeout %s is not positive", c.Timeout))
	}
	if !(c.Jitter >= 0 && c.Jitter <= 1) {
		errs = append(errs, fmt.Errorf("jitter %v is not from 0 to 1", c.Jitter))
	}
	if c.Rise < 1 || c.Fall < 1 {
		errs = append(errs, fmt.Errorf("rise %d and fall %d must be 1 or more", c.Rise, c.Fall))
	}
	return errors.Join(errs...)
}

func (c *Check) validPage() error {
	errs := []error{validName("host", c.Host)}
	if !strings.HasPrefix(c.Path, "/") || !visible(c.Path) {
		errs = append(errs, fmt.Errorf("path %q does not begin with / or has characters to be escaped", c.Path))
	}
	for _, r := range c.Status {
		if r.From < 100 || r.To > 999 || r.From > r.To {
			errs = append(errs, fmt.Errorf("status %d-%d is no range within 100-999", r.From, r.To))
		}
	}
	if len(c.Body) > maxBody {
		errs = append(errs, fmt.Errorf("body is longer than the %d bytes that are read", maxBody))
	}
	return errors.Join(errs...)
}

func absolute(what, name string) error {
	if !filepath.IsAbs(name) {
		return fmt.Errorf("%s %q is not an absolute path", what, name)
	}
	return nil
}

func validName(what, s string) error {
	if !visible(s) {
		return fmt.Errorf("%s %q has blanks or unprintable characters", what, s)
	}
	return nil
}

// visible reports whether s is safe in a request line or header.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
