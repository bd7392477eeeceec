package lab_test

import (
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// TestNoPacketWaits sends datagrams through a box that has nothing else to do, each when the one before was answered. A
// kernel that has not seen a packet would see it with the next one only.
func TestNoPacketWaits(t *testing.T) {
	lab.Require(t, lab.UML)
	site := lab.Start(t, balanced(lab.UML))
	server, err := site.Host("web1").ListenPacket("udp4", ":7000")
	must(t, err)
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
	must(t, err)
	defer client.Close()
	waited := 0
	for i := range 2000 {
		client.SetDeadline(time.Now().Add(time.Second))
		_, err := client.Write([]byte("."))
		if err == nil {
			_, err = client.Read(make([]byte, 10))
		}
		if err != nil {
			waited++
			t.Logf("datagram %d: %v", i, err)
		}
		time.Sleep(time.Duration(i%8) * time.Millisecond)
	}
	if waited > 0 {
		t.Errorf("%d datagrams were not answered within a second", waited)
	}
}
