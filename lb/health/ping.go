package health

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// The types of ICMP messages.
const (
	echoRequest4, echoReply4, unreachable4 = 8, 0, 3
	echoRequest6, echoReply6, unreachable6 = 128, 129, 1
)

// askPing sends an ICMP echo request, and accepts the reply to it. The socket is raw and
// connected: it receives all ICMP messages of the backend, and ignores those of other checks.
func askPing(ctx context.Context, dial Dial, t target) error {
	a, err := netip.ParseAddrPort(t.address)
	if err != nil {
		return err
	}
	host := target{address: a.Addr().Unmap().String(), timeout: t.timeout}
	kind := echo{"ip4:icmp", echoRequest4, echoReply4, unreachable4}
	if a.Addr().Unmap().Is6() {
		kind = echo{"ip6:ipv6-icmp", echoRequest6, echoReply6, unreachable6}
	}
	conn, release, err := host.open(ctx, dial, kind.network)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer release()
	request := kind.message(rand.Uint32())
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("send to %s: %w", host.address, host.cause(err))
	}
	answer := make([]byte, 512)
	for {
		n, err := conn.Read(answer)
		if err != nil {
			return fmt.Errorf("receive from %s: %w", host.address, host.cause(err))
		}
		if own, err := kind.judge(answer[:n], request); own {
			return err
		}
	}
}

// echo has the message types of a family.
type echo struct {
	network                     string
	request, reply, unreachable byte
}

// message returns an echo request with a random identifier and sequence number. The kernel
// computes the checksum for IPv6.
func (e echo) message(number uint32) []byte {
	m := make([]byte, 16)
	m[0] = e.request
	binary.BigEndian.PutUint32(m[4:], number)
	copy(m[8:], "weir    ")
	if e.request == echoRequest4 {
		binary.BigEndian.PutUint16(m[2:], checksum(m))
	}
	return m
}

var errUnreachable = errors.New("destination unreachable")

// judge returns the fault of a message, and reports whether it is about the request.
func (e echo) judge(packet, request []byte) (own bool, fault error) {
	if e.request == echoRequest4 {
		packet = withoutHeader(packet)
	}
	const header = 8
	switch {
	case len(packet) < header:
		return false, nil
	case packet[0] == e.reply:
		return string(packet[4:header]) == string(request[4:header]), nil
	case packet[0] == e.unreachable: // with the start of the request behind its IP header
		return len(packet) > header && containsRequest(packet[header:], request), errUnreachable
	}
	return false, nil
}

// withoutHeader removes the IPv4 header, which a raw socket receives too.
func withoutHeader(packet []byte) []byte {
	if len(packet) == 0 {
		return nil
	}
	n := int(packet[0]&0x0f) * 4
	return packet[min(n, len(packet)):]
}

// containsRequest reports whether an ICMP error quotes the request.
func containsRequest(quoted, request []byte) bool {
	if len(quoted) > 0 && quoted[0]>>4 == 6 {
		const header = 40
		quoted = quoted[min(header, len(quoted)):]
	} else {
		quoted = withoutHeader(quoted)
	}
	return len(quoted) >= 8 && quoted[0] == request[0] && string(quoted[4:8]) == string(request[4:8])
}

// checksum is that of the Internet (RFC 1071).
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
