package linux

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"weir/lb"
)

// parseIPVS parses /proc/net/ip_vs (ip_vs_info_seq_show in ip_vs_ctl.c) and calls each for
// every real server. The file has no limits. It has no family of a service by firewall mark
// either: that of its real servers counts, which is wrong for tunnels of the other family. marked
// returns the Frontend of a mark; real servers without one are ignored.
//
//	TCP  C0000201:0050 wrr persistent 300 FFFFFFFF
//	  -> 0A000007:0050      Masq    1      0          0
//	TCP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0050 rr
//	  -> [2001:0db8:0000:0000:0000:0000:0000:0007]:0050      Masq    1      0          0
//	FWM  B4000001 rr
//	  -> 0A000007:0050      Masq    1      0          0
func parseIPVS(r io.Reader, marked func(family uint16, mark uint32) lb.Frontend, each func(dest)) error {
	var fe lb.Frontend
	var mark uint32
	scan := bufio.NewScanner(r)
	for n := 1; scan.Scan(); n++ {
		var fields [8][]byte
		f := splitFields(fields[:0], scan.Bytes())
		if len(f) < 2 {
			continue
		}
		if string(f[0]) != "->" {
			fe, mark = parseProcService(f)
			continue
		}
		if !fe.Addr.IsValid() && mark == 0 || string(f[1]) == "RemoteAddress:Port" {
			continue
		}
		d, ok := parseProcDest(f)
		if !ok {
			return fmt.Errorf("line %d: %q", n, scan.Bytes())
		}
		d.Frontend = fe
		if mark != 0 {
			d.Frontend = marked(addressFamily(d.Addr.Addr()), mark)
		}
		if d.Frontend.Addr.IsValid() {
			each(d)
		}
	}
	return scan.Err()
}

// parseProcService returns the Frontend of a service or its firewall mark, and neither for
// other lines.
func parseProcService(f [][]byte) (fe lb.Frontend, mark uint32) {
	if string(f[0]) == "FWM" {
		v, err := strconv.ParseUint(string(f[1]), 16, 32)
		if err != nil {
			return fe, 0
		}
		return fe, uint32(v)
	}
	proto, err := lb.ParseProtocol(string(f[0]))
	if err != nil {
		return fe, 0
	}
	a, ok := parseHexAddrPort(f[1])
	if !ok {
		return fe, 0
	}
	return lb.Frontend{Addr: a.Addr(), Port: a.Port(), Proto: proto}, 0
}

func parseProcDest(f [][]byte) (d dest, ok bool) {
	if len(f) < 6 {
		return d, false
	}
	if d.Addr, ok = parseHexAddrPort(f[1]); !ok {
		return d, false
	}
	switch string(f[2]) {
	case "Masq":
	case "Local":
		d.Forward = lb.LocalNode
	case "Tunnel":
		d.Forward = lb.Tunnel
	default: // Route
		d.Forward = lb.DirectRouting
	}
	for i, p := range []*uint32{&d.Weight, &d.conns.Active, &d.conns.Inactive} {
		v, err := strconv.ParseUint(string(f[3+i]), 10, 32)
		if err != nil {
			return d, false
		}
		*p = uint32(v)
	}
	return d, true
}

// parseHexAddrPort reads C0000201:0050 or [2001:...:0001]:0050.
func parseHexAddrPort(b []byte) (netip.AddrPort, bool) {
	i := bytes.LastIndexByte(b, ':')
	if i < 0 {
		return netip.AddrPort{}, false
	}
	host := b[:i]
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	a, ok := parseHexAddr(host)
	port, portOK := parseHexPort(b[i+1:])
	return netip.AddrPortFrom(a, port), ok && portOK
}

// parseHexAddr parses C0000201, or an IPv6 address with all its zeros.
func parseHexAddr(b []byte) (netip.Addr, bool) {
	if len(b) == 8 {
		var a [4]byte
		if _, err := hex.Decode(a[:], b); err != nil {
			return netip.Addr{}, false
		}
		return netip.AddrFrom4(a), true
	}
	var digits [32]byte
	var out [16]byte
	if len(b) != 39 {
		return netip.Addr{}, false
	}
	n := 0
	for i, c := range b {
		if i%5 == 4 {
			if c != ':' {
				return netip.Addr{}, false
			}
			continue
		}
		digits[n] = c
		n++
	}
	if _, err := hex.Decode(out[:], digits[:]); err != nil {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16(out), true
}

func parseHexPort(b []byte) (uint16, bool) {
	var p [2]byte
	if len(b) != 4 {
		return 0, false
	}
	_, err := hex.Decode(p[:], b)
	return uint16(p[0])<<8 | uint16(p[1]), err == nil
}

// splitFields is bytes.Fields into an existing slice.
func splitFields(out [][]byte, b []byte) [][]byte {
	for i := 0; i < len(b) && len(out) < cap(out); {
		if b[i] == ' ' {
			i++
			continue
		}
		end := i
		for end < len(b) && b[end] != ' ' {
			end++
		}
		out = append(out, b[i:end])
		i = end
	}
	return out
}

// Connection is an entry of IPVS's connection table.
type Connection struct {
	Client  netip.AddrPort
	VIP     netip.AddrPort
	Backend netip.AddrPort
	Proto   lb.Protocol
	// State is the kernel's name: ESTABLISHED, FIN_WAIT, ...; NONE or ASSURED for the template of
	// a client with affinity (ip_vs_state_name in ip_vs_proto.c).
	State   string
	Expires time.Duration
}

// Frontend returns the frontend of the connection.
func (c Connection) Frontend() lb.Frontend {
	return lb.Frontend{Addr: c.VIP.Addr(), Port: c.VIP.Port(), Proto: c.Proto}
}

// parseConnections parses /proc/net/ip_vs_conn (ip_vs_conn_seq_show in ip_vs_conn.c) until
// each returns false. Lines of other protocols are ignored.
//
//	Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
//	TCP 0A000001 C8D4 C0000201 0050 0A000007 0050 ESTABLISHED     899
func parseConnections(r io.Reader, each func(Connection) bool) error {
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		var fields [9][]byte
		f := splitFields(fields[:0], scan.Bytes())
		if c, ok := parseConnection(f); ok && !each(c) {
			return nil
		}
	}
	return scan.Err()
}

func parseConnection(f [][]byte) (c Connection, ok bool) {
	if len(f) < 9 {
		return c, false
	}
	proto, err := lb.ParseProtocol(string(f[0]))
	if err != nil {
		return c, false
	}
	c.Proto = proto
	for i, p := range []*netip.AddrPort{&c.Client, &c.VIP, &c.Backend} {
		a, okA := parseHexAddr(f[1+2*i])
		port, okP := parseHexPort(f[2+2*i])
		if !okA || !okP {
			return c, false
		}
		*p = netip.AddrPortFrom(a, port)
	}
	c.State = string(f[7])
	seconds, err := strconv.ParseUint(string(f[8]), 10, 32)
	c.Expires = time.Duration(seconds) * time.Second
	return c, err == nil
}

// Open reports whether the connection can still carry data. A template is for later connections
// of a client with affinity, and carries none.
func (c Connection) Open() bool {
	return !c.ended() && c.State != "NONE" && c.State != "ASSURED"
}

// ended reports whether both sides have closed the connection.
func (c Connection) ended() bool {
	return c.State == "TIME_WAIT" || c.State == "CLOSE" || c.State == "CLOSED"
}
