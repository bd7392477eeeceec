package gather

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/cmd/weir/internal/doctor/facts"
)

// A path that drops large packets without ICMP answers a small echo request and not a
// large one.

const (
	echo4, echo6   = 8, 128
	head4, head6   = 20 + 8, 40 + 8 // of IP and of the echo
	small, large   = 1, 2           // the sequence numbers
	largestToProbe = 9216
	// One lost or late packet is no finding: a request without an answer after probeTimeout is sent
	// again, attempts times in all.
	probeTimeout = 700 * time.Millisecond
	attempts     = 3
)

// echoes sends small and large echo requests to a backend.
func echoes(ctx context.Context, w *facts.Way) {
	network := "ip4:icmp"
	if w.Backend.Is6() {
		network = "ip6:ipv6-icmp"
	}
	d := net.Dialer{Timeout: probeTimeout, Control: neverFragment(w.Backend.Is6())}
	conn, err := d.DialContext(ctx, network, w.Backend.String())
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // answers that come late are not waited for
	ask(conn, w)
}

// ask sends what has no answer, up to attempts times. A backend to which that is impossible counts as
// not probed.
func ask(conn net.Conn, w *facts.Way) {
	for range attempts {
		if w.Small && w.Large {
			return
		}
		if w.Probed = request(conn, w); !w.Probed {
			return
		}
		receive(conn, w)
	}
}

// request sends the requests that have no answer yet. It reports whether that is possible.
func request(conn net.Conn, w *facts.Way) bool {
	head := head4
	if w.Backend.Is6() {
		head = head6
	}
	for _, m := range []struct {
		seq      uint16
		payload  int
		answered bool
	}{{small, 8, w.Small}, {large, min(w.MTU, largestToProbe) - head, w.Large}} {
		if m.answered {
			continue
		}
		message := echo(w.Backend.Is6(), echoID(), m.seq, m.payload)
		_, err := conn.Write(message)
		if errors.Is(err, syscall.EMSGSIZE) { // of an earlier request: this one has not been sent
			w.Large = true
			if m.seq == large {
				continue
			}
			_, err = conn.Write(message)
		}
		if err != nil {
			return false
		}
	}
	return true
}

// receive takes in replies until both came, or probeTimeout has passed.
func receive(conn net.Conn, w *facts.Way) {
	if err := conn.SetReadDeadline(time.Now().Add(probeTimeout)); err != nil {
		return
	}
	buf := make([]byte, largestToProbe)
	for !w.Small || !w.Large {
		n, err := conn.Read(buf)
		if errors.Is(err, syscall.EMSGSIZE) {
			w.Large = true // an ICMP error: senders receive it too
			continue
		}
		if _, pending := errors.AsType[syscall.Errno](err); pending {
			continue // of an ICMP error; an answer may come
		}
		if err != nil {
			return
		}
		answered(w, buf[:n], echoID())
	}
}

// echoID is the identifier of this process's requests.
func echoID() uint16 {
	return uint16(os.Getpid())
}

// answered takes in an echo reply, which for IPv4 comes with or without its IP header.
func answered(w *facts.Way, b []byte, id uint16) {
	if w.Backend.Is4() && len(b) > 20 && b[0]>>4 == 4 {
		b = b[min(int(b[0]&0xf)*4, len(b)):]
	}
	reply := byte(0)
	if w.Backend.Is6() {
		reply = 129
	}
	if len(b) < 8 || b[0] != reply || binary.BigEndian.Uint16(b[4:]) != id {
		return
	}
	switch binary.BigEndian.Uint16(b[6:]) {
	case small:
		w.Small = true
	case large:
		w.Large = true
	}
}

// echo is an ICMP echo request. The kernel fills in the checksum of ICMPv6.
func echo(v6 bool, id, seq uint16, payload int) []byte {
	b := make([]byte, 8+max(payload, 0))
	b[0] = echo4
	if v6 {
		b[0] = echo6
	}
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	if !v6 {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// neverFragment sets "don't fragment" regardless of the known path MTU (ip(7):
// IP_PMTUDISC_PROBE). For IPv6 that hides ICMP errors about the size (rawv6_err in net/ipv6/raw.c),
// unless they are requested.
func neverFragment(v6 bool) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			if v6 {
				set = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
				return
			}
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		})
		return errors.Join(err, set)
	}
}
