package linux

import (
	"math"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// memberBytes limits the members of one message: the length of their attribute has 16 bits.
const memberBytes = 24 << 10

// From include/uapi/linux/netfilter/ipset/ip_set.h: list a set without its members.
const listHeader = 1 << 2

// bitmapPort is the type of sets of port numbers.
const bitmapPort = "bitmap:port"

const errSetFull = syscall.Errno(nl.IPSET_ERR_TYPE_SPECIFIC) // IPSET_ERR_HASH_FULL

var ipsetErrors = map[syscall.Errno]string{
	nl.IPSET_ERR_PROTOCOL:        "ipset does not understand the message",
	nl.IPSET_ERR_FIND_TYPE:       "the kernel has no such set type",
	nl.IPSET_ERR_MAX_SETS:        "the kernel has too many sets",
	nl.IPSET_ERR_BUSY:            "the set is used by rules or sets",
	nl.IPSET_ERR_EXIST_SETNAME2:  "a set of the second name exists",
	nl.IPSET_ERR_TYPE_MISMATCH:   "the sets are of different types",
	nl.IPSET_ERR_EXIST:           "the member exists or does not",
	nl.IPSET_ERR_INVALID_CIDR:    "the prefix length is invalid (sets of networks hold no /0: two halves do)",
	nl.IPSET_ERR_INVALID_NETMASK: "the netmask is invalid",
	nl.IPSET_ERR_INVALID_FAMILY:  "the family is invalid",
	nl.IPSET_ERR_REFERENCED:      "the set is used by rules or sets",
	nl.IPSET_ERR_IPADDR_IPV4:     "an IPv4 address is needed",
	nl.IPSET_ERR_IPADDR_IPV6:     "an IPv6 address is needed",
	errSetFull:                   "the set is full",
	errSetFull + 2:               "the protocol is invalid",
	errSetFull + 3:               "the protocol is missing",
	errSetFull + 4:               "the range is too large",
}

// setInfo has the properties of a set.
type setInfo struct {
	typ      string
	family   uint8
	maxElem  uint32
	hashSize uint32
	lastPort uint16 // of a bitmap
	marks    bool   // its members may mark packets (skbinfo)
}

// bitmap reports whether the members are port numbers.
func (i setInfo) bitmap() bool { return i.typ == bitmapPort }

// sameKind reports whether one set can replace the other, whatever its size.
func (i setInfo) sameKind(other setInfo) bool {
	return i.typ == other.typ && i.family == other.family && i.lastPort == other.lastPort && i.marks == other.marks
}

func beginSet(e *encoder, cmd uint16, flags uint16) {
	e.message(unix.NFNL_SUBSYS_IPSET<<8|cmd, flags)
	e.raw(unix.AF_INET, unix.NFNETLINK_V0, 0, 0)
	e.u8(nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
}

func putSetCommand(e *encoder, cmd, flags uint16, name string) {
	beginSet(e, cmd, flags)
	e.str(nl.IPSET_ATTR_SETNAME, name)
}

// putTwoSets encodes the commands on two sets, swap and rename.
func putTwoSets(e *encoder, cmd uint16, name, other string) {
	putSetCommand(e, cmd, 0, name)
	e.str(nl.IPSET_ATTR_SETNAME2, other)
}

func putSetType(e *encoder, typ string, family uint8) {
	beginSet(e, nl.IPSET_CMD_TYPE, 0)
	e.str(nl.IPSET_ATTR_TYPENAME, typ)
	e.u8(nl.IPSET_ATTR_FAMILY, family)
}

func putSetCreate(e *encoder, name string, info setInfo, revision uint8) {
	putSetCommand(e, nl.IPSET_CMD_CREATE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
	e.str(nl.IPSET_ATTR_TYPENAME, info.typ)
	e.u8(nl.IPSET_ATTR_REVISION, revision)
	e.u8(nl.IPSET_ATTR_FAMILY, info.family)
	at := e.nest(nl.IPSET_ATTR_DATA)
	if info.bitmap() {
		e.be16(nl.IPSET_ATTR_PORT_FROM|unix.NLA_F_NET_BYTEORDER, 0)
		e.be16(nl.IPSET_ATTR_PORT_TO|unix.NLA_F_NET_BYTEORDER, info.lastPort)
	} else {
		e.be32(nl.IPSET_ATTR_HASHSIZE|unix.NLA_F_NET_BYTEORDER, info.hashSize)
		e.be32(nl.IPSET_ATTR_MAXELEM|unix.NLA_F_NET_BYTEORDER, info.maxElem)
	}
	if info.marks {
		e.be32(nl.IPSET_ATTR_CADT_FLAGS|unix.NLA_F_NET_BYTEORDER, nl.IPSET_FLAG_WITH_SKBINFO)
	}
	e.end(at)
}

// putMembers encodes one message that adds or removes members, as many as fit, and returns
// their number. Lines are numbered from 1, because the kernel reports the line of a refused
// member only if it is not 0 (call_ad in net/netfilter/ipset/ip_set_core.c). Without
// NLM_F_EXCL it is no error if a member exists already, or is gone.
func putMembers(e *encoder, cmd uint16, name string, members []lb.Member) int {
	putSetCommand(e, cmd, 0, name)
	e.u32(nl.IPSET_ATTR_LINENO, 0)
	at := e.nest(nl.IPSET_ATTR_ADT)
	n := 0
	for n < len(members) && len(e.b)-at < memberBytes {
		one := e.nest(nl.IPSET_ATTR_DATA)
		putMember(e, members[n])
		e.u32(nl.IPSET_ATTR_CADT_LINENO, uint32(n+1))
		e.end(one)
		n++
	}
	e.end(at)
	return n
}

// putMember encodes a member. Its Mark is a firewall mark here.
func putMember(e *encoder, m lb.Member) {
	if m.Set.Type() == bitmapPort {
		e.be16(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, m.Port)
		return
	}
	if !m.Addr.IsValid() {
		putSetAddr(e, nl.IPSET_ATTR_IP, m.Net.Addr())
		e.u8(nl.IPSET_ATTR_CIDR, uint8(m.Net.Bits()))
		return
	}
	putSetAddr(e, nl.IPSET_ATTR_IP, m.Addr)
	if m.Proto != 0 {
		e.be16(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, m.Port)
		e.u8(nl.IPSET_ATTR_PROTO, uint8(m.Proto))
	}
	if m.Mark != 0 {
		e.be64(nl.IPSET_ATTR_SKBMARK|unix.NLA_F_NET_BYTEORDER, uint64(m.Mark)<<32|math.MaxUint32)
	}
	if m.Net.IsValid() {
		putSetAddr(e, nl.IPSET_ATTR_IP2, m.Net.Addr())
		if m.Set.Type() == "hash:ip,port,net" {
			e.u8(nl.IPSET_ATTR_CIDR2, uint8(m.Net.Bits()))
		}
	}
}

func putSetAddr(e *encoder, typ uint16, a netip.Addr) {
	at := e.nest(typ)
	if a.Is4() {
		e.addr(nl.IPSET_ATTR_IPADDR_IPV4|unix.NLA_F_NET_BYTEORDER, a)
	} else {
		e.addr(nl.IPSET_ATTR_IPADDR_IPV6|unix.NLA_F_NET_BYTEORDER, a)
	}
	e.end(at)
}

// refusedMember returns the index of the refused member. In the echo of the message the kernel
// writes its line where the message had zero. ok is false if the whole message was refused.
func refusedMember(r *refusal) (index int, ok bool) {
	const headers = unix.NLMSG_HDRLEN + 4
	if len(r.echo) < headers {
		return 0, false
	}
	v := attribute(r.echo[headers:], nl.IPSET_ATTR_LINENO)
	if len(v) != 4 || getU32(v) == 0 {
		return 0, false
	}
	return int(getU32(v)) - 1, true
}

// parseSet decodes one message of a list of sets: the properties of the set, which only the
// first message about it has (typ is empty otherwise), and members.
func parseSet(body []byte, set lb.IPSet, each func(lb.Member)) (info setInfo) {
	if len(body) < 4 {
		return info
	}
	for typ, v := range attributes(body[4:]) {
		switch typ {
		case nl.IPSET_ATTR_TYPENAME:
			info.typ = unix.ByteSliceToString(v)
		case nl.IPSET_ATTR_FAMILY:
			info.family = getU8(v)
		case nl.IPSET_ATTR_DATA:
			info.hashSize = getBE32(attribute(v, nl.IPSET_ATTR_HASHSIZE))
			info.maxElem = getBE32(attribute(v, nl.IPSET_ATTR_MAXELEM))
			info.lastPort = getBE16(attribute(v, nl.IPSET_ATTR_PORT_TO))
			info.marks = getBE32(attribute(v, nl.IPSET_ATTR_CADT_FLAGS))&nl.IPSET_FLAG_WITH_SKBINFO != 0
		case nl.IPSET_ATTR_ADT:
			for _, one := range attributes(v) {
				if m, ok := parseMember(one, set); ok {
					each(m)
				}
			}
		}
	}
	return info
}

// parseMember decodes a member of a set. ok is false if its type can't have such a member.
func parseMember(b []byte, set lb.IPSet) (m lb.Member, ok bool) {
	var ip, ip2 netip.Addr
	var bits, bits2 = -1, -1
	for typ, v := range attributes(b) {
		switch typ {
		case nl.IPSET_ATTR_IP:
			ip = parseSetAddr(v)
		case nl.IPSET_ATTR_IP2:
			ip2 = parseSetAddr(v)
		case nl.IPSET_ATTR_CIDR:
			bits = int(getU8(v))
		case nl.IPSET_ATTR_CIDR2:
			bits2 = int(getU8(v))
		case nl.IPSET_ATTR_PORT:
			m.Port = getBE16(v)
		case nl.IPSET_ATTR_PROTO:
			m.Proto = lb.Protocol(getU8(v))
		case nl.IPSET_ATTR_SKBMARK:
			m.Mark = markOf(v)
		}
	}
	m.Set = set.Set
	switch set.Set.Type() {
	case bitmapPort:
		return lb.Member{Set: set.Set, Addr: unspecified(set.Family), Port: m.Port}, true
	case "hash:ip":
		m.Addr = ip
		return m, ip.IsValid()
	case "hash:net":
		m.Net = prefix(ip, bits)
		return m, m.Net.IsValid()
	case "hash:ip,port":
		m.Addr = ip
		return m, ip.IsValid()
	}
	m.Addr, m.Net = ip, prefix(ip2, bits2)
	return m, ip.IsValid() && m.Net.IsValid()
}

// unspecified returns the address of a member without one.
func unspecified(f lb.Family) netip.Addr {
	if f == lb.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// markOf decodes a mark with its mask. It returns 0 if the mask is partial, which weir never
// writes.
func markOf(v []byte) uint32 {
	both := getBE64(v)
	if uint32(both) != math.MaxUint32 {
		return 0
	}
	return uint32(both >> 32)
}

// prefix returns a network, or the single address without a length.
func prefix(a netip.Addr, bits int) netip.Prefix {
	if bits < 0 {
		bits = a.BitLen()
	}
	return netip.PrefixFrom(a, bits)
}

func parseSetAddr(b []byte) netip.Addr {
	for typ, v := range attributes(b) {
		switch typ {
		case nl.IPSET_ATTR_IPADDR_IPV4:
			return getAddr(unix.AF_INET, v)
		case nl.IPSET_ATTR_IPADDR_IPV6:
			return getAddr(unix.AF_INET6, v)
		}
	}
	return netip.Addr{}
}
