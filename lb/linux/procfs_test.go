package linux

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

const procIPVS = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C0000201:0050 wrr persistent 300 FFFFFFFF
  -> 0A000007:1F90      Masq    1      12         3
  -> 0A000008:1F90      Masq    65535  0          0
UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 rr
  -> [2001:0db8:0000:0000:0000:0000:0000:0007]:14E9      Masq    0      0          7
FWM  00000007 rr
  -> 0A000009:0000      Route   1      0          0
FWM  B4000001 rr
FWM  B4000002 wrr persistent 300 FFFFFFFF
  -> 0A000007:1F90      Masq    5      2          1
FWM  B4000002 rr
  -> [2001:0db8:0000:0000:0000:0000:0000:0007]:14E9      Masq    1      0          0
SCTP C0000202:0007 sh
TCP  C0000203:0015 rr ops
  -> 0A000009:0015      Route   1      0          0
`

var procMarks = ipvsMessages{marks: marking{0x4000}}.marked

func TestParseIPVS(t *testing.T) {
	t.Parallel()
	var got []dest
	must(t, parseIPVS(strings.NewReader(procIPVS), procMarks, func(d dest) { got = append(got, d) }))
	tcp, udp := frontend("192.0.2.1:80", lb.TCP), frontend("[2001:db8::1]:53", lb.UDP)
	want := []dest{
		{RealServer: lb.RealServer{Frontend: tcp, Addr: netip.MustParseAddrPort("10.0.0.7:8080"), Weight: 1}, conns: lb.Conns{Active: 12, Inactive: 3}},
		{RealServer: lb.RealServer{Frontend: tcp, Addr: netip.MustParseAddrPort("10.0.0.8:8080"), Weight: 65535}},
		{RealServer: lb.RealServer{Frontend: udp, Addr: netip.MustParseAddrPort("[2001:db8::7]:5353")}, conns: lb.Conns{Inactive: 7}},
		{RealServer: lb.RealServer{Frontend: lb.GivenFrontend(lb.IPv4, 7), Addr: netip.MustParseAddrPort("10.0.0.9:0"), Weight: 1, Forward: lb.DirectRouting}},
		{RealServer: lb.RealServer{Frontend: lb.MarkFrontend(lb.IPv4, 2), Addr: netip.MustParseAddrPort("10.0.0.7:8080"), Weight: 5}, conns: lb.Conns{Active: 2, Inactive: 1}},
		{RealServer: lb.RealServer{Frontend: lb.MarkFrontend(lb.IPv6, 2), Addr: netip.MustParseAddrPort("[2001:db8::7]:5353"), Weight: 1}},
		{RealServer: lb.RealServer{Frontend: frontend("192.0.2.3:21", lb.TCP), Addr: netip.MustParseAddrPort("10.0.0.9:21"), Weight: 1, Forward: lb.DirectRouting}},
	}
	if d := cmp.Diff(want, got, compareNetip, cmp.AllowUnexported(dest{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// One read counts the connections of all virtual servers. Those that it lacks, or all if it can't be read, are asked for.
func TestConnectionsAreCountedByOneRead(t *testing.T) {
	t.Parallel()
	tcp, ops, lacking := frontend("192.0.2.1:80", lb.TCP), frontend("192.0.2.3:21", lb.TCP), frontend("192.0.2.9:80", lb.TCP)
	for _, tt := range []struct {
		name, file string
		servers    []lb.Frontend
		conns      uint32 // of tcp
		asked      int
	}{
		{"all are in the file", procIPVS, []lb.Frontend{tcp, ops}, 15, 0},
		{"one is not", procIPVS, []lb.Frontend{tcp, lacking, ops}, 15, 1},
		{"no file", "", []lb.Frontend{tcp, lacking, ops}, 0, 3},
		{"not understood", procIPVS + "  -> 0A000009:0015      Route   many   0          0\n", []lb.Frontend{tcp, ops}, 0, 2},
	} {
		asked := 0
		ipvs, _ := playedConn(&played{kernel: func(m message) []byte {
			asked++
			return reply(m, unix.NLMSG_DONE, 0, 0, 0, 0)
		}})
		left := leftIPVS{table: newTable(ipvs, 1, marking{})}
		got, err := left.countedConns(t.Context(), strings.NewReader(tt.file), tt.servers)
		if err != nil || got[tcp] != tt.conns || got[ops] != 0 || asked != tt.asked {
			t.Errorf("%s: %v, %v; asked for %d, want %d", tt.name, got, err, asked, tt.asked)
		}
	}
}

func TestParseIPVSRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	bad := "TCP  C0000201:0050 wrr\n  -> 0A000007:1F90      Masq    many      12         3\n"
	err := parseIPVS(strings.NewReader(bad), procMarks, func(dest) {})
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v", err)
	}
}

const procConns = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0A000001 C8D4 C0000201 0050 0A000007 1F90 ESTABLISHED     899
UDP 2001:0db8:0000:0000:0000:0000:0000:0009 C8D4 2001:0db8:0000:0000:0000:0000:0000:0001 0035 2001:0db8:0000:0000:0000:0000:0000:0007 14E9 UDP             119
TCP 0A000001 0000 C0000201 0050 0A000007 1F90 NONE            299
IP  00000000 0000 00000007 0000 0A000007 1F90 NONE            299
`

func TestParseConnections(t *testing.T) {
	t.Parallel()
	var got []Connection
	err := parseConnections(strings.NewReader(procConns), func(c Connection) bool { got = append(got, c); return true })
	must(t, err)
	p := netip.MustParseAddrPort
	want := []Connection{
		{p("10.0.0.1:51412"), p("192.0.2.1:80"), p("10.0.0.7:8080"), lb.TCP, "ESTABLISHED", 899 * time.Second},
		{p("[2001:db8::9]:51412"), p("[2001:db8::1]:53"), p("[2001:db8::7]:5353"), lb.UDP, "UDP", 119 * time.Second},
		{p("10.0.0.1:0"), p("192.0.2.1:80"), p("10.0.0.7:8080"), lb.TCP, "NONE", 299 * time.Second},
	}
	if d := cmp.Diff(want, got, compareNetip); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	n := 0
	if err := parseConnections(strings.NewReader(procConns), func(Connection) bool { n++; return false }); err != nil || n != 1 {
		t.Errorf("after a no: %d more, %v", n-1, err)
	}
}

func FuzzParseIPVS(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(procIPVS)
	f.Fuzz(func(t *testing.T, s string) {
		parseIPVS(strings.NewReader(s), procMarks, func(d dest) {
			if !d.Frontend.Addr.IsValid() || !d.Addr.IsValid() {
				t.Errorf("a real server without an address: %v", d)
			}
		})
	})
}

func FuzzParseConnections(f *testing.F) {
	fuzzing.Wide(f)
	f.Add(procConns)
	f.Fuzz(func(t *testing.T, s string) {
		parseConnections(strings.NewReader(s), func(c Connection) bool {
			if !c.Client.IsValid() || !c.VIP.IsValid() || !c.Backend.IsValid() {
				t.Errorf("a connection without an address: %v", c)
			}
			return true
		})
	})
}
