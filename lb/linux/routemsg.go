package linux

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// The fixed headers of rtnetlink, from include/uapi/linux/rtnetlink.h: struct
// ifinfomsg, ifaddrmsg and rtmsg.

func putIfInfo(e *encoder, typ, flags uint16, index int32) {
	e.message(typ, flags)
	e.raw(unix.AF_UNSPEC, 0, 0, 0)
	e.b = binary.NativeEndian.AppendUint32(e.b, uint32(index))
	e.raw(0, 0, 0, 0, 0, 0, 0, 0) // flags and their mask: no change
}

func putDevice(e *encoder, name string) {
	putIfInfo(e, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0)
	e.str(unix.IFLA_IFNAME, name)
	at := e.nest(unix.IFLA_LINKINFO)
	e.str(unix.IFLA_INFO_KIND, "dummy")
	e.end(at)
}

func putLinkIndex(e *encoder, typ uint16, index int32) { putIfInfo(e, typ, 0, index) }

func putLinkName(e *encoder, name string) {
	putIfInfo(e, unix.RTM_GETLINK, 0, 0)
	e.str(unix.IFLA_IFNAME, name)
}

func putLinkDump(e *encoder) { putIfInfo(e, unix.RTM_GETLINK, unix.NLM_F_DUMP, 0) }

// link is a network interface.
type link struct {
	index int32
	name  string
	kind  string // "dummy", "veth"; empty for hardware
	up    bool
	data  []byte // of the kind: IFLA_INFO_DATA
	conf  []byte // parameters of IPv4
}

func parseLink(body []byte) (l link) {
	if len(body) < unix.SizeofIfInfomsg {
		return l
	}
	l.index = int32(getU32(body[4:]))
	l.up = getU32(body[8:])&unix.IFF_UP != 0
	for typ, v := range attributes(body[unix.SizeofIfInfomsg:]) {
		switch typ {
		case unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(v)
		case unix.IFLA_LINKINFO:
			l.kind = unix.ByteSliceToString(attribute(v, unix.IFLA_INFO_KIND))
			l.data = attribute(v, unix.IFLA_INFO_DATA)
		case unix.IFLA_AF_SPEC:
			l.conf = attribute(attribute(v, unix.AF_INET), inetConf)
		}
	}
	return l
}

// putAddress encodes an address of one host. Duplicate detection is for links, and the dummy
// device has none.
func putAddress(e *encoder, typ, flags uint16, index int32, a netip.Addr) {
	e.message(typ, flags)
	e.raw(byte(addressFamily(a)), byte(a.BitLen()), unix.IFA_F_NODAD*boolByte(a.Is6()), unix.RT_SCOPE_UNIVERSE)
	e.b = binary.NativeEndian.AppendUint32(e.b, uint32(index))
	e.addr(unix.IFA_LOCAL, a)
	e.addr(unix.IFA_ADDRESS, a)
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func putAddressDump(e *encoder) {
	e.message(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	e.raw(unix.AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0)
}

// ifAddress is an address of an interface.
type ifAddress struct {
	index  int32
	prefix netip.Prefix
}

func parseAddress(body []byte) (f ifAddress, ok bool) {
	if len(body) < unix.SizeofIfAddrmsg {
		return f, false
	}
	family, bits := uint16(body[0]), int(body[1])
	f.index = int32(getU32(body[4:]))
	var local, address []byte
	for typ, v := range attributes(body[unix.SizeofIfAddrmsg:]) {
		switch typ {
		case unix.IFA_LOCAL:
			local = v
		case unix.IFA_ADDRESS:
			address = v
		}
	}
	if local == nil { // IPv6 has no peer address
		local = address
	}
	f.prefix = netip.PrefixFrom(getAddr(family, local), bits)
	return f, f.prefix.IsValid()
}

func putRoute(e *encoder, typ, flags uint16, index int32, r lb.PoolRoute) {
	a := r.Prefix.Masked().Addr()
	scope := byte(unix.RT_SCOPE_HOST)
	if a.Is6() {
		scope = unix.RT_SCOPE_UNIVERSE // the only one of IPv6
	}
	e.message(typ, flags)
	e.raw(byte(addressFamily(a)), byte(r.Prefix.Bits()), 0, 0,
		unix.RT_TABLE_LOCAL, RouteProtocol, scope, unix.RTN_LOCAL, 0, 0, 0, 0)
	e.addr(unix.RTA_DST, a)
	e.u32(unix.RTA_OIF, uint32(index))
	if r.Src.IsValid() && typ == unix.RTM_NEWROUTE {
		e.addr(unix.RTA_PREFSRC, r.Src)
	}
}

// unreachableMetric is the metric of weir's unreachable routes. It is the worst, so that
// another route for the same prefix, such as that of an interface, has precedence.
const unreachableMetric = 1<<31 - 1

func putUnreachable(e *encoder, typ, flags uint16, r lb.Unreachable) {
	a := r.Prefix.Masked().Addr()
	e.message(typ, flags)
	e.raw(byte(addressFamily(a)), byte(r.Prefix.Bits()), 0, 0,
		unix.RT_TABLE_MAIN, RouteProtocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNREACHABLE, 0, 0, 0, 0)
	e.addr(unix.RTA_DST, a)
	e.u32(unix.RTA_PRIORITY, unreachableMetric)
}

// parseUnreachable reads a route; ok is false for one that is not weir's.
func parseUnreachable(body []byte) (r lb.Unreachable, ok bool) {
	if len(body) < unix.SizeofRtMsg || body[4] != unix.RT_TABLE_MAIN || body[5] != RouteProtocol || body[7] != unix.RTN_UNREACHABLE {
		return r, false
	}
	for typ, v := range attributes(body[unix.SizeofRtMsg:]) {
		if typ == unix.RTA_DST {
			r.Prefix = netip.PrefixFrom(getAddr(uint16(body[0]), v), int(body[1]))
		}
	}
	return r, r.Prefix.IsValid()
}

// putRouteGet requests the route of the box to an address.
func putRouteGet(e *encoder, a netip.Addr) {
	e.message(unix.RTM_GETROUTE, 0)
	e.raw(byte(addressFamily(a)), byte(a.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	e.addr(unix.RTA_DST, a)
}

// parseRouteType returns the type of a route, unix.RTN_UNSPEC for anything else.
func parseRouteType(body []byte) byte {
	if len(body) < unix.SizeofRtMsg {
		return unix.RTN_UNSPEC
	}
	return body[7]
}

// parseRouteLink returns the index of the interface of a route, 0 without one.
func parseRouteLink(body []byte) (index uint32) {
	if len(body) < unix.SizeofRtMsg {
		return 0
	}
	for typ, v := range attributes(body[unix.SizeofRtMsg:]) {
		if typ == unix.RTA_OIF && len(v) == 4 {
			index = binary.NativeEndian.Uint32(v)
		}
	}
	return index
}

// putRouteDump requests weir's routes of a family, of one table and type. Kernels before 4.20
// return all routes: the parser filters them.
func putRouteDump(e *encoder, f lb.Family, table, typ byte) {
	family := byte(unix.AF_INET)
	if f == lb.IPv6 {
		family = unix.AF_INET6
	}
	e.message(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	e.raw(family, 0, 0, 0, table, RouteProtocol, 0, typ, 0, 0, 0, 0)
}

// parseRoute reads a route; ok is false for one that is not weir's.
func parseRoute(body []byte) (r lb.PoolRoute, ok bool) {
	if len(body) < unix.SizeofRtMsg {
		return r, false
	}
	family, bits := uint16(body[0]), int(body[1])
	if body[4] != unix.RT_TABLE_LOCAL || body[5] != RouteProtocol || body[7] != unix.RTN_LOCAL {
		return r, false
	}
	var dst netip.Addr
	for typ, v := range attributes(body[unix.SizeofRtMsg:]) {
		switch typ {
		case unix.RTA_DST:
			dst = getAddr(family, v)
		case unix.RTA_PREFSRC:
			r.Src = getAddr(family, v)
		}
	}
	r.Prefix = netip.PrefixFrom(dst, bits)
	return r, r.Prefix.IsValid()
}

// RouteProtocol marks weir's routes; `ip route` shows it as "proto 87". The number is free in
// /etc/iproute2/rt_protos.
const RouteProtocol = 87
