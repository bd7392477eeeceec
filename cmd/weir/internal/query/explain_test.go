package query

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/cmd/weir/internal/config"
	"weir/lb"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	kernel := &lb.Fake{}
	kernel.HostAddrs = map[netip.Addr]string{netip.MustParseAddr("10.1.0.1"): "eth0"}
	rec := lb.NewReconciler(kernel, lb.Options{Base: lb.Base{Device: "kube-ipvs0", Families: []lb.Family{lb.IPv4}}}, config.Source)
	node := served(9)
	node.VIPs = []lb.VIP{{Addr: netip.IPv4Unspecified(), Kind: lb.NodePort}}
	node.Ports[0].NodePort = 30080
	services := append(parse(t, twoServices).Services, node)
	services[0].Ports = append(services[0].Ports, lb.Port{Proto: lb.UDP, Port: 53})
	rec.Update(lb.Update{Source: config.Source, Put: services, Synced: true})
	if _, err := rec.Sync(context.Background(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ vip, want string }{
		{"192.0.2.1", `192.0.2.1:53/udp  static/a  refused: static/a has no backends
192.0.2.1:80/tcp  static/a  served

details: weir explain 192.0.2.1:53 --proto udp
`},
		{"10.1.0.1", `10.1.0.1:30080/tcp  prod/shop/s9  served

details: weir explain 10.1.0.1:30080
`},
		{"192.0.2.7", `not served: no Service has this address as a VIP
nearest: 192.0.2.1:53/udp
nearest: 192.0.2.1:80/tcp
nearest: 192.0.2.2:80/tcp
`},
	} {
		var b strings.Builder
		Explain(rec, question(t, tt.vip), lb.Query{}).Table(&b, time.Now())
		if d := cmp.Diff(tt.want, b.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.vip, d)
		}
	}
	var b strings.Builder
	Explain(rec, question(t, "192.0.2.1:80"), lb.Query{}).Table(&b, time.Now())
	for _, part := range []string{"192.0.2.1:80/tcp from any outside client\n", "static/a has it", "10.0.0.2:8080 in use", "result      served"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%q is not in:\n%s", part, b.String())
		}
	}
}

func question(t *testing.T, vip string) Question {
	t.Helper()
	q, err := ParseQuestion(vip, "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestQuestionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ vip, proto, client, want string }{
		{"example.org:80", "tcp", "", `"example.org:80" is neither an address (192.0.2.1, 2001:db8::1) nor one with a port (192.0.2.1:80, [2001:db8::1]:80)`},
		{"192.0.2.1:80", "icmp", "", `unknown protocol "icmp"; use tcp, udp or sctp`},
		{"192.0.2.1:80", "tcp", "me", `--from "me" is not an address`},
		{"fwmark:web", "tcp", "", `"fwmark:web" is not a firewall mark: write for instance fwmark:7`},
		{"fwmark:7", "tcp", "me", `--from "me" is not an address`},
		{"192.0.2.1:80", "tcp", "2001:db8::1", "--from 2001:db8::1 is IPv6 and 192.0.2.1 is IPv4"},
	} {
		if _, err := ParseQuestion(tt.vip, tt.proto, tt.client); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	q, err := ParseQuestion("[::ffff:192.0.2.1]:80", "SCTP", "10.0.0.1")
	want := Question{netip.MustParseAddr("192.0.2.1"), 80, lb.SCTP, netip.MustParseAddr("10.0.0.1"), 0}
	if err != nil || q != want {
		t.Errorf("%+v, %v", q, err)
	}
}
