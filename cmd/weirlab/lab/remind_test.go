package lab_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestNoPacketWaits sends datagrams through a box that has nothing else to do, each after the answer to the one before. A
// packet that the kernel has not seen would stay until the next one comes.
func TestNoPacketWaits(t *testing.T) {
	lab.Require(t, lab.UML)
	site := lab.Start(t, balanced(lab.UML))
	server, err := site.Host("web1").ListenPacket("udp4", ":7000")
	lab.Must(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		buf := make([]byte, 10)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			server.WriteTo(buf[:n], from)
		}
	}()
	client, err := site.Host("client").DialContext(within(t), "udp", "10.2.0.11:7000")
	lab.Must(t, err)
	defer client.Close()
	waited, lost := 0, 0
	const next = 1 << 20 // no other datagram has this number
	for i := range uint32(3000) {
		if answers(client, i, i) {
			continue
		}
		if answers(client, next, i) {
			waited++
		} else {
			lost++ // by a busy machine
		}
	}
	t.Logf("%d datagrams waited, %d were lost", waited, lost)
	if waited > 0 {
		t.Errorf("%d of 3000 datagrams waited for the next one", waited)
	}
}

// answers sends a number, and reports whether another one is received within a second.
func answers(c net.Conn, send, want uint32) bool {
	time.Sleep(time.Duration(send%8) * time.Millisecond)
	if _, err := c.Write(binary.BigEndian.AppendUint32(nil, send)); err != nil {
		return false
	}
	c.SetReadDeadline(time.Now().Add(time.Second))
	for buf := make([]byte, 10); ; {
		n, err := c.Read(buf)
		if err != nil {
			return false
		}
		if n == 4 && binary.BigEndian.Uint32(buf) == want {
			return true
		}
	}
}
