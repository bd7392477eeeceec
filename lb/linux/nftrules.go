package linux

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// Rules as expressions of nf_tables.

func (r rule) nft(n ruleNames) (out []expression) {
	for _, m := range r.matches {
		out = append(out, m.nft(n)...)
	}
	return append(out, r.action.nft(n)...)
}

// ipHeader has the places of addresses in the header of a family.
func (n ruleNames) ipHeader() (source, destination, size int) {
	if n.family == lb.IPv6 {
		return 8, 24, 16
	}
	return 12, 16, 4
}

// The places of ports and others in the header of the transport.
const (
	sourcePortAt, destinationPortAt = 0, 2
	icmpTypeAt, tcpFlagsAt          = 0, 13
	checksumTCPAt, checksumUDPAt    = 16, 6
)

// key loads the fields of a member into consecutive registers from regKey.
func (m inSet) key(n ruleNames) (out []expression) {
	from, to, size := n.ipHeader()
	at := 0
	load := func(base uint32, offset, size int) {
		out = append(out, loadPayload(reg32(at), base, offset, size))
		at += (size + 3) / 4
	}
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(m.set.Type(), "hash:"), "bitmap:"), ",")
	for i, dim := range strings.Split(m.dims, ",") {
		address, port := to, destinationPortAt
		if dim == "src" {
			address, port = from, sourcePortAt
		}
		if parts[i] != "port" {
			load(unix.NFT_PAYLOAD_NETWORK_HEADER, address, size)
			continue
		}
		if len(parts) > 1 { // a port of one protocol
			out = append(out, loadMeta(reg32(at), unix.NFT_META_L4PROTO))
			at++
		}
		load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, port, 2)
	}
	return out
}

func (m inSet) nft(n ruleNames) []expression {
	name := m.set.Name(n.prefix, n.family)
	if m.set.MarksPackets() { // before Linux 6.5 the value of a map must be loaded
		return append(m.key(n), lookupMap(name, regKey, reg32(scratch)))
	}
	return append(m.key(n), lookup(name, regKey, m.not))
}

// scratch is a register of 4 bytes behind the longest key: two IPv6 addresses, a protocol and
// a port.
const scratch = 12

func (m markFrom) nft(n ruleNames) []expression {
	in := to(lb.Set(m))
	return append(in.nft(n), storeMeta(reg32(scratch), unix.NFT_META_MARK))
}

var protocolNumbers = map[protocol]byte{
	"icmp": unix.IPPROTO_ICMP, "ipv6-icmp": unix.IPPROTO_ICMPV6, "tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP,
}

func (p protocol) nft(ruleNames) []expression {
	return []expression{loadMeta(regKey, unix.NFT_META_L4PROTO), compare(regKey, false, []byte{protocolNumbers[p]})}
}

func (t icmpType) nft(ruleNames) []expression {
	return []expression{loadPayload(regKey, unix.NFT_PAYLOAD_TRANSPORT_HEADER, icmpTypeAt, 1), compare(regKey, false, []byte{byte(t)})}
}

// The bits of a connection's state in a rule: 1 << (enum ip_conntrack_info + 1), and of its
// status: enum ip_conntrack_status.
var stateBits = map[string]uint32{"INVALID": 1, "ESTABLISHED": 2, "RELATED": 4, "NEW": 8}

func (s state) nft(ruleNames) []expression {
	key, mask := uint32(unix.NFT_CT_STATE), uint32(0)
	for _, name := range strings.Split(string(s), ",") {
		mask |= stateBits[name]
	}
	if s == "DNAT" {
		key, mask = unix.NFT_CT_STATUS, statusDNAT
	}
	return []expression{loadConn(regKey, key), maskXor(regKey, native32(mask), native32(0)), compare(regKey, true, native32(0))}
}

func (isReply) nft(ruleNames) []expression {
	return []expression{loadConn(regKey, unix.NFT_CT_DIRECTION), compare(regKey, false, []byte{1})}
}

func (p source) nft(n ruleNames) []expression {
	from, _, size := n.ipHeader()
	prefix := netip.Prefix(p)
	out := []expression{loadPayload(regKey, unix.NFT_PAYLOAD_NETWORK_HEADER, from, size)}
	if prefix.Bits() < 8*size {
		out = append(out, maskXor(regKey, maskOf(prefix.Bits(), size), make([]byte, size)))
	}
	return append(out, compare(regKey, false, prefix.Masked().Addr().AsSlice()))
}

// maskOf returns a mask of so many bits.
func maskOf(bits, size int) []byte {
	out := make([]byte, size)
	for i := range bits {
		out[i/8] |= 0x80 >> (i % 8)
	}
	return out
}

func (o ownSource) nft(ruleNames) []expression {
	return []expression{loadSourceType(regKey), compare(regKey, o.not, native32(unix.RTN_LOCAL))}
}

func (i inputInterface) nft(ruleNames) []expression {
	name, prefix := strings.CutSuffix(string(i), "+")
	v := []byte(name)
	if !prefix {
		v = append(v, make([]byte, unix.IFNAMSIZ-len(v))...)
	}
	return []expression{loadMeta(regKey, unix.NFT_META_IIFNAME), compare(regKey, false, v)}
}

// The flags of TCP.
const flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16

func (notFirst) nft(ruleNames) []expression {
	return []expression{
		loadPayload(regKey, unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlagsAt, 1),
		maskXor(regKey, []byte{flagFIN | flagSYN | flagRST | flagACK}, []byte{0}), compare(regKey, true, []byte{flagSYN}),
	}
}

func (accepting) nft(ruleNames) []expression {
	return []expression{
		loadPayload(regKey, unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlagsAt, 1),
		maskXor(regKey, []byte{flagSYN | flagACK}, []byte{0}), compare(regKey, false, []byte{flagSYN | flagACK}),
	}
}

func (c checksummed) nft(ruleNames) []expression {
	return []expression{loadPayload(regKey, unix.NFT_PAYLOAD_TRANSPORT_HEADER, checksumUDPAt, 2), compare(regKey, !c.not, []byte{0, 0})}
}

func (b bits) compare(not bool) []expression {
	return []expression{maskXor(regKey, native32(b.mask), native32(0)), compare(regKey, not, native32(b.value))}
}

func (m mark) nft(ruleNames) []expression {
	return append([]expression{loadMeta(regKey, unix.NFT_META_MARK)}, m.compare(m.not)...)
}

func (m connMark) nft(ruleNames) []expression {
	return append([]expression{loadConn(regKey, unix.NFT_CT_MARK)}, bits(m).compare(false)...)
}

func (r result) nft(ruleNames) []expression {
	return []expression{decide(map[result]int32{pass: unix.NFT_RETURN, drop: nfDrop, accept: nfAccept}[r], "")}
}

const nfDrop, nfAccept = 0, 1 // include/uapi/linux/netfilter.h

func (j jump) nft(n ruleNames) []expression {
	return []expression{decide(unix.NFT_JUMP, n.chain(string(j)))}
}

func (g goTo) nft(n ruleNames) []expression {
	return []expression{decide(unix.NFT_GOTO, n.chain(string(g)))}
}

func (r refuse) nft(n ruleNames) []expression {
	const portUnreachable, portUnreachable6 = 3, 4
	switch {
	case r.reset:
		return []expression{{"reject", []attr{be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST)}}}
	case n.family == lb.IPv6:
		return refuseWith(portUnreachable6)
	}
	return refuseWith(portUnreachable)
}

func refuseWith(code byte) []expression {
	return []expression{{"reject", []attr{
		be32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH), {typ: unix.NFTA_REJECT_ICMP_CODE, value: []byte{code}},
	}}}
}

func (b bits) change(load, store expression) []expression {
	return []expression{load, maskXor(regKey, native32(^b.mask), native32(b.value)), store}
}

func (s setMark) nft(ruleNames) []expression {
	return bits(s).change(loadMeta(regKey, unix.NFT_META_MARK), storeMeta(regKey, unix.NFT_META_MARK))
}

func (s setConnMark) nft(ruleNames) []expression {
	return bits(s).change(loadConn(regKey, unix.NFT_CT_MARK), storeConn(regKey, unix.NFT_CT_MARK))
}

func (m masquerade) nft(ruleNames) []expression {
	if m.random {
		return []expression{{"masq", []attr{be32(unix.NFTA_MASQ_FLAGS, natRandomFully)}}}
	}
	return []expression{{"masq", nil}}
}

const natRandomFully = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY

func (a sourceNAT) nft(n ruleNames) []expression {
	return []expression{loadValue(regKey, netip.Addr(a).AsSlice()), n.natTo(unix.NFT_NAT_SNAT, be32(unix.NFTA_NAT_REG_ADDR_MIN, regKey))}
}

func (p destinationPort) nft(n ruleNames) []expression {
	port := binary.BigEndian.AppendUint16(nil, uint16(p))
	return []expression{loadValue(regKey, port), n.natTo(unix.NFT_NAT_DNAT, be32(unix.NFTA_NAT_REG_PROTO_MIN, regKey))}
}

func (m setSegment) nft(ruleNames) []expression {
	return []expression{loadValue(regKey, binary.BigEndian.AppendUint16(nil, uint16(m))), storeSegment(regKey)}
}

// nft also corrects the checksums, that of IPv4 and that of TCP or UDP.
func (originalAddress) nft(n ruleNames) []expression {
	const checksumIPv4At = 10
	from, _, size := n.ipHeader()
	key, sums := uint32(unix.NFT_CT_DST_IP6), []attr{be32(unix.NFTA_PAYLOAD_CSUM_FLAGS, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR)}
	if n.family == lb.IPv4 {
		key = unix.NFT_CT_DST_IP
		sums = append(sums, be32(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET), be32(unix.NFTA_PAYLOAD_CSUM_OFFSET, checksumIPv4At))
	}
	return []expression{loadOriginal(regKey, key), storePayload(regKey, unix.NFT_PAYLOAD_NETWORK_HEADER, from, size, sums...)}
}

func (p originalPort) nft(ruleNames) []expression {
	sums := []attr{be32(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_NONE)}
	if at, ok := map[protocol]uint32{"tcp": checksumTCPAt, "udp": checksumUDPAt}[protocol(p)]; ok {
		sums = []attr{be32(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET), be32(unix.NFTA_PAYLOAD_CSUM_OFFSET, at)}
	}
	return []expression{
		loadOriginal(regKey, unix.NFT_CT_PROTO_DST), storePayload(regKey, unix.NFT_PAYLOAD_TRANSPORT_HEADER, sourcePortAt, 2, sums...),
	}
}

// nft ends nat for the connection: other tables come later. A destination NAT to the address
// that the packet has changes nothing, but counts as done.
func (keepDestination) nft(n ruleNames) []expression {
	_, to, size := n.ipHeader()
	return []expression{
		loadPayload(regKey, unix.NFT_PAYLOAD_NETWORK_HEADER, to, size),
		n.natTo(unix.NFT_NAT_DNAT, be32(unix.NFTA_NAT_REG_ADDR_MIN, regKey)),
	}
}

func (n ruleNames) natTo(kind uint32, reg attr) expression {
	return expression{"nat", []attr{be32(unix.NFTA_NAT_TYPE, kind), be32(unix.NFTA_NAT_FAMILY, uint32(nftFamily(n.family))), reg}}
}
