package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// askUDP sends a datagram and accepts the first reply as the answer. The socket is connected,
// so the kernel drops packets of other hosts, and returns "port unreachable" as an error at
// once.
func askUDP(send, expect []byte) asker {
	return func(ctx context.Context, dial Dial, t target) error {
		conn, release, err := t.open(ctx, dial, "udp")
		if err != nil {
			return err
		}
		defer conn.Close()
		defer release()
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
	}
}

var errDatagram = errors.New("answer does not begin as expected")

func matchDatagram(answer, expect []byte) error {
	if !bytes.HasPrefix(answer, expect) {
		return errDatagram
	}
	return nil
}
