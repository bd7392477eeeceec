package gather

import (
	"bufio"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weirlab/fuzzing"
	"weir/lb/linux"
)

func TestParseSysctls(t *testing.T) {
	got := parseSysctls("f", "# no\n; neither\n\n-net.ipv4.ip_forward = 0\nnet/ipv4/conf/eth0.100/rp_filter=1\nnet.ipv4.tcp_rmem = 4096\t131072 6291456\nword\n=1\n")
	want := []facts.SysctlLine{
		{File: "f", Line: 4, Name: "net.ipv4.ip_forward", Value: "0"},
		{File: "f", Line: 5, Name: "net.ipv4.conf.eth0/100.rp_filter", Value: "1"},
		{File: "f", Line: 6, Name: "net.ipv4.tcp_rmem", Value: "4096 131072 6291456"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

const conntrackStat = `entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error
00000014  00000000 00000000 00000000 00000002 00000000 00000000 00000001 00000000 00000003 0000000a 00000000 00000000
00000014  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000002 00000000
`

func TestParseConntrackStat(t *testing.T) {
	if n, err := parseConntrackStat(conntrackStat); n != 3+10+1+2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := parseConntrackStat("drop\nmany\n"); err == nil {
		t.Error("many is a number")
	}
}

const netstat = "TcpExt: SyncookiesSent IPReversePathFilter TCPFoo\nTcpExt: 1 17 3\nIpExt: InNoRoutes IPReversePathFilter\nIpExt: 5\n"

func TestParseNetstat(t *testing.T) {
	if n := parseNetstat(netstat, "IPReversePathFilter"); n != 17 {
		t.Errorf("%d", n)
	}
	if n := parseNetstat(netstat, "InNoRoutes"); n != 0 {
		t.Errorf("%d of a line that is cut off", n)
	}
}

const procTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0A0200C0:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 123 1 0000000000000000 100 0 0 10 0
   1: 0100007F:A0C8 0100007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 124 1 0000000000000000 20 4 30 10 -1
`

const procTCP6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: B80D0120000002000000000010000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 125 1 0 100 0 0 10 0
`

func TestParseSockets(t *testing.T) {
	for _, tt := range []struct{ text, addr, inode string }{{procTCP, "192.0.2.10:80", "123"}, {procTCP6, "[2001:db8:2:0:0:0:0:10]:443", "125"}} {
		got, err := parseSockets(tt.text, "0A")
		if err != nil || len(got) != 1 || got[0].Addr != netip.MustParseAddrPort(tt.addr) || got[0].inode != tt.inode {
			t.Errorf("want %s: %+v, %v", tt.addr, got, err)
		}
	}
	if _, err := parseSockets("0: XX:0050 0 0A 0 0 0 0 0 1", "0A"); err == nil {
		t.Error("XX is an address")
	}
}

const procIPVS = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C000020A:0050 rr
  -> 0A02000B:1F90      Masq    1      3          12
  -> 0A02000C:1F90      Masq    1      4          1
`

func TestParseIPVS(t *testing.T) {
	buckets, conns, err := parseIPVS(bufio.NewScanner(strings.NewReader(procIPVS)))
	if buckets != 4096 || conns != 20 || err != nil {
		t.Errorf("%d, %d, %v", buckets, conns, err)
	}
}

func TestParseSmallFiles(t *testing.T) {
	if m := parseMeminfo("MemTotal:        2048000 kB\nMemFree: 5 kB\nMemAvailable:    1024000 kB\nbad\n"); m != (facts.MemoryFacts{Total: 2000, Available: 1000}) {
		t.Errorf("%+v", m)
	}
	if n := parseLimits("Limit  Soft  Hard\nMax open files            1024                 524288               files\n"); n != 1024 {
		t.Errorf("%d files", n)
	}
	if n := parseLimits("Max open files unlimited unlimited files\n"); n != 0 {
		t.Errorf("%d files of unlimited", n)
	}
	a := parseAccount("Name:\tweir\nUid:\t990\t991\t990\t990\nGid:\t980\t981\t980\t980\nGroups:\t27 44\n")
	if d := cmp.Diff(account{name: "991", uid: 991, gids: []uint32{981, 27, 44}}, a, cmp.AllowUnexported(account{}), cmpopts.IgnoreFields(account{}, "name")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Whatever a kernel or an operator has written, it is read without a panic, and what is
// read out of it was there.
func FuzzParse(f *testing.F) {
	fuzzing.Wide(f)
	for _, seed := range []string{conntrackStat, netstat, firewalldTable, procTCP, procTCP6, procIPVS, "net.ipv4.ip_forward=1\n-a/b = c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range parseSysctls("f", text) {
			if l.Name == "" || l.Line < 1 || l.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%+v", l)
			}
		}
		if objects, err := parseNFT([]byte(text)); err == nil {
			for _, h := range tableOf(nftTable{Family: "inet", Name: "t"}, objects).Hooks {
				if !slices.Contains(linux.FilterHooks, strings.ToLower(h.Hook)) {
					t.Errorf("%+v", h)
				}
			}
		}
		if list, err := parseSockets(text, "0A"); err == nil {
			for _, s := range list {
				if !s.Addr.IsValid() {
					t.Errorf("%+v", s)
				}
			}
		}
		if _, conns, err := parseIPVS(bufio.NewScanner(strings.NewReader(text))); err == nil && conns < 0 {
			t.Errorf("%d connections", conns)
		}
		_, _ = parseConntrackStat(text)
		_ = parseNetstat(text, "IPReversePathFilter")
		if m := parseMeminfo(text); m.Total < 0 || m.Available < 0 {
			t.Errorf("%+v", m)
		}
		_ = parseLimits(text)
		_ = parseAccount(text)
	})
}
