package e2e

import (
	"testing"

	"weir/cmd/weirlab/lab"
)

// TestExample shows how to write a packet test: state the Services, then who reaches what. To see
// the packets, run only this test, with -v and tcpdump on the box: s.box.Must(t, "tcpdump", ...).
//
//	go test ./cmd/weirlab/e2e -run TestExample -v
func TestExample(t *testing.T) {
	k := newKit(t, plain(lab.UML))
	k.given(service("shop", ""))
	k.want("client1", "tcp 192.0.2.10:80", "web1 web2 web3 masq")
	k.want("client2", "tcp [2001:db8:2::10]:80", "web1 web2 web3 masq")
	k.want("box", "tcp 192.0.2.10:80", "web1 web2 web3 masq")
	k.want("client1", "tcp 192.0.2.10:81", "refused")
	k.want("client1", "udp 192.0.2.10:80", "refused")

	held := k.holds("client2", "tcp 192.0.2.10:80")
	k.given(service("shop", `source_ranges = ["10.1.0.3/32"]`))
	k.want("client1", "tcp 192.0.2.10:80", "dropped")
	k.want("client2", "tcp 192.0.2.10:80", "web1 web2 web3 masq")
	held.wantAlive(k.kit)
}
