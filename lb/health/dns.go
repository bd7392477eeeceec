package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsTypes are the types of a query.
var dnsTypes = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "MX": dnsmessage.TypeMX,
	"NS": dnsmessage.TypeNS, "PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV, "TXT": dnsmessage.TypeTXT,
}

// maxDNS is the maximum size of a response over UDP without EDNS.
const maxDNS = 512

// question returns the question of a check.
func (c *Check) question() (dnsmessage.Question, error) {
	kind, ok := dnsTypes[c.DNSType]
	if !ok {
		return dnsmessage.Question{}, fmt.Errorf("unknown DNS type %q", c.DNSType)
	}
	name, err := dnsmessage.NewName(strings.TrimSuffix(c.DNSName, ".") + ".")
	q := dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}
	if err == nil {
		_, err = (&dnsmessage.Message{Questions: []dnsmessage.Question{q}}).Pack()
	}
	if err != nil {
		return q, fmt.Errorf("DNS name %q: %w", c.DNSName, err)
	}
	return q, nil
}

// askDNS sends a query over UDP, and accepts a response with the status NOERROR.
func askDNS(q dnsmessage.Question) asker {
	return overConn("udp", func(_ context.Context, conn net.Conn, t target) error {
		defer conn.Close()
		id := uint16(rand.Uint32())
		query := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true}, Questions: []dnsmessage.Question{q}}
		packet, err := query.Pack()
		if err != nil {
			return err
		}
		if _, err := conn.Write(packet); err != nil {
			return fmt.Errorf("send to %s: %w", t.address, t.cause(err))
		}
		answer := make([]byte, maxDNS)
		for {
			n, err := conn.Read(answer)
			if err != nil {
				return fmt.Errorf("receive from %s: %w", t.address, t.cause(err))
			}
			if own, err := judgeDNS(answer[:n], id); own {
				return err
			}
		}
	})
}

var errNotDNS = errors.New("answer is not DNS")

// judgeDNS returns the fault of a response, and reports whether it is the response to the
// query with an ID. A late response to an earlier query is not.
func judgeDNS(packet []byte, id uint16) (own bool, fault error) {
	var p dnsmessage.Parser
	h, err := p.Start(packet)
	switch {
	case err != nil || !h.Response:
		return true, errNotDNS
	case h.ID != id:
		return false, nil
	case h.RCode != dnsmessage.RCodeSuccess:
		return true, fmt.Errorf("DNS status is %s, want NOERROR", rcode(h.RCode))
	}
	return true, nil
}

// rcode returns the name of a status in the form of RFC 8499.
func rcode(code dnsmessage.RCode) string {
	names := map[dnsmessage.RCode]string{1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
	if name, ok := names[code]; ok {
		return name
	}
	return fmt.Sprint(uint16(code))
}
