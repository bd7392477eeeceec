package linux

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// From include/uapi/linux/ip_vs.h.
const (
	ipvsNewService = 1
	ipvsSetService = 2
	ipvsDelService = 3
	ipvsGetService = 4
	ipvsNewDest    = 5
	ipvsSetDest    = 6
	ipvsDelDest    = 7
	ipvsGetDest    = 8
	ipvsSetConfig  = 12
	ipvsGetConfig  = 13

	ipvsAttrService    = 1
	ipvsAttrDest       = 2
	ipvsAttrTimeoutTCP = 4
	ipvsAttrTimeoutFin = 5
	ipvsAttrTimeoutUDP = 6

	svcFamily    = 1
	svcProtocol  = 2
	svcAddr      = 3
	svcPort      = 4
	svcFWMark    = 5
	svcScheduler = 6
	svcFlags     = 7
	svcTimeout   = 8
	svcNetmask   = 9
	svcStats64   = 12

	destAddr     = 1
	destPort     = 2
	destForward  = 3
	destWeight   = 4
	destUpper    = 5
	destLower    = 6
	destActive   = 7
	destInactive = 8
	destFamily   = 11
	destStats64  = 12
	destTunType  = 13
	destTunPort  = 14
	destTunFlags = 15

	flagPersistent = 0x1
	flagHashed     = 0x2 // set by the kernel for a service in its table
)

// ipvsMessages encodes requests to IPVS and decodes its replies. family is its number in
// generic netlink.
type ipvsMessages struct {
	family uint16
	marks  marking
}

func (f ipvsMessages) begin(e *encoder, cmd byte, flags uint16) {
	e.message(f.family, flags)
	e.raw(cmd, 1, 0, 0)
}

// service encodes a command on a virtual server with all its attributes.
func (f ipvsMessages) service(e *encoder, cmd byte, vs lb.VirtualServer) {
	f.begin(e, cmd, 0)
	at := e.nest(ipvsAttrService)
	f.tuple(e, vs.Frontend)
	flags := uint32(vs.Scheduler.Flags)
	if vs.Affinity > 0 {
		flags |= flagPersistent
	}
	e.str(svcScheduler, vs.Scheduler.Name)
	e.u32s(svcFlags, flags, math.MaxUint32) // struct ip_vs_flags: value and mask
	e.u32(svcTimeout, vs.Affinity)
	e.u32(svcNetmask, netmask(vs.Frontend.Addr, vs.Mask))
	e.end(at)
}

// named encodes a command on a virtual server without its attributes.
func (f ipvsMessages) named(e *encoder, cmd byte, flags uint16, fe lb.Frontend) {
	f.begin(e, cmd, flags)
	at := e.nest(ipvsAttrService)
	f.tuple(e, fe)
	e.end(at)
}

// dest encodes a command on a real server.
func (f ipvsMessages) dest(e *encoder, cmd byte, rs lb.RealServer) {
	f.named(e, cmd, 0, rs.Frontend)
	at := e.nest(ipvsAttrDest)
	e.addr(destAddr, rs.Addr.Addr())
	e.be16(destPort, rs.Addr.Port())
	// Without it the kernel reads the address as one of the virtual server's family.
	e.u16(destFamily, addressFamily(rs.Addr.Addr()))
	if cmd != ipvsDelDest {
		e.u32(destForward, forwardFlags[rs.Forward])
		e.u32(destWeight, rs.Weight)
		e.u32(destUpper, rs.Upper)
		e.u32(destLower, rs.Lower)
		if rs.Forward == lb.Tunnel {
			e.u8(destTunType, byte(rs.Encap.Type))
			e.be16(destTunPort, rs.Encap.Port)
			e.u16(destTunFlags, uint16(rs.Encap.Checksum))
		}
	}
	e.end(at)
}

// dump encodes a request for all virtual servers.
func (f ipvsMessages) dump(e *encoder) { f.begin(e, ipvsGetService, unix.NLM_F_DUMP) }

// tuple encodes the identity of a virtual server: its address, or its mark.
func (f ipvsMessages) tuple(e *encoder, fe lb.Frontend) {
	e.u16(svcFamily, addressFamily(fe.Addr))
	switch {
	case fe.Given:
		e.u32(svcFWMark, fe.Mark)
		return
	case fe.Mark != 0:
		e.u32(svcFWMark, f.marks.firewall(fe.Mark))
		return
	}
	e.u16(svcProtocol, uint16(fe.Proto))
	e.addr(svcAddr, fe.Addr)
	e.be16(svcPort, fe.Port)
}

func addressFamily(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// netmask converts lb.VirtualServer.Mask to the kernel's persistence mask, and back: a
// netmask for IPv4, a prefix length for IPv6.
func netmask(a netip.Addr, mask uint32) uint32 {
	if a.Is4() {
		return ^mask
	}
	return 128 - mask
}

// server is a virtual server with its counters.
type server struct {
	lb.VirtualServer
	stats Stats
}

// parseService decodes the reply to ipvsGetService. ok is false for malformed ones.
func (f ipvsMessages) parseService(body []byte, withStats bool) (s server, ok bool) {
	if len(body) < unix.GENL_HDRLEN {
		return s, false
	}
	var family uint16
	var addr []byte
	var mark, flags, clients uint32
	for typ, v := range attributes(attribute(body[unix.GENL_HDRLEN:], ipvsAttrService)) {
		switch typ {
		case svcFamily:
			family = getU16(v)
		case svcProtocol:
			s.Frontend.Proto = lb.Protocol(getU16(v))
		case svcAddr:
			addr = v
		case svcPort:
			s.Frontend.Port = getBE16(v)
		case svcFWMark:
			mark = getU32(v)
		case svcScheduler:
			s.Scheduler.Name = schedulerName(v)
		case svcFlags:
			flags = getU32(v)
		case svcTimeout:
			s.Affinity = getU32(v)
		case svcNetmask:
			clients = getU32(v)
		case svcStats64:
			if withStats {
				s.stats = parseStats(v)
			}
		}
	}
	s.Frontend.Addr = getAddr(family, addr)
	if mark != 0 {
		s.Frontend = f.marked(family, mark)
	}
	if !s.Frontend.Addr.IsValid() {
		return s, false
	}
	// Unknown flags stay visible, so that a foreign change of weir's virtual server is a
	// difference.
	s.Scheduler.Flags = lb.SchedulerFlag(flags &^ (flagPersistent | flagHashed))
	if flags&flagPersistent == 0 {
		s.Affinity = 0
	} else {
		s.Mask = netmask(s.Frontend.Addr, clients)
	}
	return s, true
}

// marked returns the Frontend of a firewall mark, a given one if it is foreign.
func (f ipvsMessages) marked(family uint16, mark uint32) lb.Frontend {
	of := map[uint16]lb.Family{unix.AF_INET: lb.IPv4, unix.AF_INET6: lb.IPv6}[family]
	n := f.marks.number(mark)
	switch {
	case of == 0:
		return lb.Frontend{}
	case n != 0:
		return lb.MarkFrontend(of, n)
	}
	return lb.GivenFrontend(of, mark)
}

// schedulerName returns the shared copy of a known name: there are thousands of services and a
// dozen names.
func schedulerName(v []byte) string {
	for name := range lb.Schedulers {
		if len(v) == len(name)+1 && string(v[:len(name)]) == name {
			return name
		}
	}
	return unix.ByteSliceToString(v)
}

// dest is a real server with its connections and counters.
type dest struct {
	lb.RealServer
	conns lb.Conns
	stats Stats
}

// parseDest decodes the reply to ipvsGetDest for a frontend.
func parseDest(body []byte, fe lb.Frontend, withStats bool) (d dest, ok bool) {
	if len(body) < unix.GENL_HDRLEN {
		return d, false
	}
	d.Frontend = fe
	family := addressFamily(fe.Addr)
	var addr []byte
	var port uint16
	var forward uint32
	var encap lb.Encap
	for typ, v := range attributes(attribute(body[unix.GENL_HDRLEN:], ipvsAttrDest)) {
		switch typ {
		case destTunType:
			encap.Type = lb.EncapType(getU8(v))
		case destTunPort:
			encap.Port = getBE16(v)
		case destTunFlags:
			encap.Checksum = lb.EncapChecksum(getU16(v))
		case destFamily:
			family = getU16(v)
		case destAddr:
			addr = v
		case destPort:
			port = getBE16(v)
		case destForward:
			forward = getU32(v)
		case destWeight:
			d.Weight = getU32(v)
		case destUpper:
			d.Upper = getU32(v)
		case destLower:
			d.Lower = getU32(v)
		case destActive:
			d.conns.Active = getU32(v)
		case destInactive:
			d.conns.Inactive = getU32(v)
		case destStats64:
			if withStats {
				d.stats = parseStats(v)
			}
		}
	}
	a := getAddr(family, addr)
	d.Addr = netip.AddrPortFrom(a, port)
	if d.Forward = forwarding(forward); d.Forward == lb.Tunnel {
		d.Encap = encap
	}
	return d, a.IsValid()
}

// forwardFlags are the connection flags of each method. The others of the mask
// (IP_VS_CONN_F_BYPASS) are for connections only.
var forwardFlags = [...]uint32{lb.Masquerading: 0, lb.LocalNode: 1, lb.Tunnel: 2, lb.DirectRouting: 3}

const forwardMask = 0x7

// forwarding returns the method of connection flags.
func forwarding(flags uint32) lb.Forwarding {
	if i := slices.Index(forwardFlags[:], flags&forwardMask); i >= 0 {
		return lb.Forwarding(i)
	}
	return lb.LocalNode
}

// Stats is the traffic of a virtual server or a real server since its creation.
type Stats struct {
	Conns, PacketsIn, PacketsOut, BytesIn, BytesOut uint64
}

// parseStats decodes IPVS_SVC_ATTR_STATS64: five counters, numbered from 1, then rates.
func parseStats(b []byte) (s Stats) {
	counters := [...]*uint64{nil, &s.Conns, &s.PacketsIn, &s.PacketsOut, &s.BytesIn, &s.BytesOut}
	for typ, v := range attributes(b) {
		if typ > 0 && int(typ) < len(counters) {
			*counters[typ] = getU64(v)
		}
	}
	return s
}

// Timeouts are the timeouts of idle connections in IPVS, in seconds. SetTimeouts ignores a
// zero.
type Timeouts struct {
	TCP, TCPFin, UDP uint32
}

func (t Timeouts) String() string {
	return fmt.Sprintf("tcp %ds, tcpfin %ds, udp %ds", t.TCP, t.TCPFin, t.UDP)
}

func (f ipvsMessages) setTimeouts(e *encoder, t Timeouts) {
	f.begin(e, ipvsSetConfig, 0)
	e.u32(ipvsAttrTimeoutTCP, t.TCP)
	e.u32(ipvsAttrTimeoutFin, t.TCPFin)
	e.u32(ipvsAttrTimeoutUDP, t.UDP)
}

func parseTimeouts(body []byte) (t Timeouts) {
	if len(body) < unix.GENL_HDRLEN {
		return t
	}
	for typ, v := range attributes(body[unix.GENL_HDRLEN:]) {
		switch typ {
		case ipvsAttrTimeoutTCP:
			t.TCP = getU32(v)
		case ipvsAttrTimeoutFin:
			t.TCPFin = getU32(v)
		case ipvsAttrTimeoutUDP:
			t.UDP = getU32(v)
		}
	}
	return t
}
