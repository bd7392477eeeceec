package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
)

// askUDP sends a datagram and accepts the first reply as the answer. The socket is connected,
// so the kernel drops packets of other hosts, and returns "port unreachable" as an error at
// once.
func askUDP(send, expect []byte) asker {
	return overConn("udp", func(_ context.Context, conn net.Conn, t target) error {
		defer conn.Close()
		if _, err := conn.Write(send); err != nil {
			return fmt.Errorf("send to %s: %w", t.address, t.cause(err))
		}
		// The kernel truncates the datagram.
		answer := make([]byte, max(len(expect), 1))
		n, err := conn.Read(answer)
		if err != nil {
			return fmt.Errorf("receive from %s: %w", t.address, t.cause(err))
		}
		return matchDatagram(answer[:n], expect)
	})
}

var errDatagram = errors.New("answer does not begin as expected")

func matchDatagram(answer, expect []byte) error {
	if !bytes.HasPrefix(answer, expect) {
		return errDatagram
	}
	return nil
}
