package linux

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// From include/uapi/linux/netfilter/nf_tables.h: those that golang.org/x/sys/unix lacks.
const (
	nftSetConcat      = 0x80 // NFT_SET_CONCAT
	nftSetDescConcat  = 2    // NFTA_SET_DESC_CONCAT
	nftSetFieldLen    = 1    // NFTA_SET_FIELD_LEN
	nftSetElemKeyEnd  = 10   // NFTA_SET_ELEM_KEY_END
	nftElemCatchAll   = 2    // NFT_SET_ELEM_CATCHALL
	nftListElem       = 1    // NFTA_LIST_ELEM
	nftUserKeyOrder   = 0    // NFTNL_UDATA_SET_KEYBYTEORDER
	nftUserDataOrder  = 1    // NFTNL_UDATA_SET_DATABYTEORDER
	nftHostOrder      = 1    // BYTEORDER_HOST_ENDIAN
	nftBigEndianOrder = 2    // BYTEORDER_BIG_ENDIAN
)

// nftType is a type of a key or a part of one. The numbers are those of nft(8), which the kernel
// only stores: nft prints the elements by them.
type nftType uint32

const (
	nftIPv4    nftType = 7
	nftIPv6    nftType = 8
	nftProto   nftType = 12
	nftService nftType = 13
	nftMark    nftType = 19
	nftVerdict nftType = unix.NFT_DATA_VERDICT

	nftTypeBits = 6 // of each part in the number of a concatenation
)

func (t nftType) size() uint32 {
	return map[nftType]uint32{nftIPv4: 4, nftIPv6: 16, nftProto: 1, nftService: 2, nftMark: 4, nftVerdict: 16}[t]
}

// String returns the text of nft(8): "ipv4_addr . inet_service".
func (t nftType) String() string {
	if t == nftVerdict {
		return "verdict"
	}
	if t >= 1<<nftTypeBits {
		return (t >> nftTypeBits).String() + " . " + (t & (1<<nftTypeBits - 1)).String()
	}
	if s, ok := map[nftType]string{nftIPv4: "ipv4_addr", nftIPv6: "ipv6_addr", nftProto: "inet_proto",
		nftService: "inet_service", nftMark: "mark"}[t]; ok {
		return s
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// nftKind has the properties of a set of nf_tables that weir compares.
type nftKind struct {
	flags            uint32
	key, data        nftType
	keyLen, dataLen  uint32
	maxElem, timeout uint64 // 0 is none
}

func (k nftKind) intervals() bool { return k.flags&unix.NFT_SET_INTERVAL != 0 }
func (k nftKind) concat() bool    { return k.key >= 1<<nftTypeBits }
func (k nftKind) isMap() bool     { return k.flags&unix.NFT_SET_MAP != 0 }

// String returns the declaration in the syntax of nft(8).
func (k nftKind) String() string {
	s := k.key.String()
	if k.data != 0 {
		s += " : " + k.data.String()
	}
	var more []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.NFT_SET_CONSTANT, "constant"}, {unix.NFT_SET_INTERVAL, "interval"}, {unix.NFT_SET_TIMEOUT, "timeout"},
		{unix.NFT_SET_EVAL, "dynamic"}, {unix.NFT_SET_OBJECT, "objects"},
	} {
		if k.flags&f.bit != 0 {
			more = append(more, f.name)
		}
	}
	if len(more) > 0 {
		s += " flags " + strings.Join(more, ",")
	}
	if k.maxElem != 0 {
		s += fmt.Sprintf(" size %d", k.maxElem)
	}
	return s
}

// nftFields returns the parts of the keys of a set.
func nftFields(set lb.IPSet) []nftType {
	addr := nftIPv4
	if set.Family == lb.IPv6 {
		addr = nftIPv6
	}
	switch set.Set.Type() {
	case bitmapPort:
		return []nftType{nftService}
	case "hash:ip", "hash:net":
		return []nftType{addr}
	case "hash:ip,port":
		return []nftType{addr, nftProto, nftService}
	}
	return []nftType{addr, nftProto, nftService, addr}
}

// ofRanges reports whether the members of a set are ranges, which may include each other.
func ofRanges(set lb.Set) bool { return strings.HasSuffix(set.Type(), "net") }

// concatenated returns the type and the size of several fields. Each part of a concatenation
// begins at a register of four bytes.
func concatenated(fields []nftType) (t nftType, size uint32) {
	for _, f := range fields {
		t = t<<nftTypeBits | f
		size += f.size()
		if len(fields) > 1 {
			size = uint32(align(int(size)))
		}
	}
	return t, size
}

// nftKindOf returns the properties of one of weir's sets.
func nftKindOf(set lb.IPSet) (k nftKind) {
	fields := nftFields(set)
	k.key, k.keyLen = concatenated(fields)
	if ofRanges(set.Set) {
		k.flags |= unix.NFT_SET_INTERVAL
		if len(fields) > 1 {
			k.flags |= nftSetConcat
		}
	}
	if set.Set.MarksPackets() {
		k.flags |= unix.NFT_SET_MAP
		k.data, k.dataLen = nftMark, nftMark.size()
	}
	return k
}

func nftFamily(f lb.Family) uint8 {
	if f == lb.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// putNFTSet begins a message about a set or its elements: the attributes of the names have the
// same numbers in both.
func putNFTSet(e *encoder, cmd, flags uint16, family uint8, table, name string) {
	beginNFT(e, cmd, flags, family)
	e.str(unix.NFTA_SET_TABLE, table)
	e.str(unix.NFTA_SET_NAME, name)
}

// putNFTSetNew encodes the creation of a set, which fails if the name is in use.
func putNFTSetNew(e *encoder, set lb.IPSet, table, name string) {
	var ranges []nftType
	k := nftKindOf(set)
	if k.flags&nftSetConcat != 0 {
		ranges = nftFields(set)
	}
	putNFTSet(e, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE|unix.NLM_F_EXCL, nftFamily(set.Family), table, name)
	k.put(e, ranges)
}

// put encodes the properties. ranges are the parts of a concatenation with intervals.
func (k nftKind) put(e *encoder, ranges []nftType) {
	e.be32(unix.NFTA_SET_ID, 1)
	e.be32(unix.NFTA_SET_FLAGS, k.flags)
	e.be32(unix.NFTA_SET_KEY_TYPE, uint32(k.key))
	e.be32(unix.NFTA_SET_KEY_LEN, k.keyLen)
	// nft(8) prints the keys and marks by their byte order.
	order, data := uint32(nftBigEndianOrder), []byte(nil)
	if k.isMap() {
		e.be32(unix.NFTA_SET_DATA_TYPE, uint32(k.data))
		e.be32(unix.NFTA_SET_DATA_LEN, k.dataLen)
	}
	if k.data == nftMark {
		data = nftUserNumber(nftUserDataOrder, nftHostOrder)
	}
	switch {
	case k.concat():
		order = 0
	case k.key == nftMark:
		order = nftHostOrder
	}
	e.bytes(unix.NFTA_SET_USERDATA, append(nftUserNumber(nftUserKeyOrder, order), data...))
	if len(ranges) == 0 && k.maxElem == 0 {
		return
	}
	desc := e.nest(unix.NFTA_SET_DESC)
	defer e.end(desc)
	if k.maxElem != 0 {
		e.be32(unix.NFTA_SET_DESC_SIZE, uint32(k.maxElem))
	}
	if len(ranges) == 0 {
		return
	}
	concat := e.nest(nftSetDescConcat)
	for _, f := range ranges {
		one := e.nest(nftListElem)
		e.be32(nftSetFieldLen, f.size())
		e.end(one)
	}
	e.end(concat)
}

// nftUserNumber encodes a number of the data that only nft(8) uses, in the order of the machine.
func nftUserNumber(typ uint8, v uint32) []byte {
	return binary.NativeEndian.AppendUint32([]byte{typ, 4}, v)
}

// parseNFTSet decodes the properties of a set.
func parseNFTSet(body []byte) (k nftKind, ok bool) {
	if len(body) < 4 {
		return k, false
	}
	for typ, v := range attributes(body[4:]) {
		switch typ {
		case unix.NFTA_SET_FLAGS:
			k.flags = getBE32(v)
		case unix.NFTA_SET_KEY_TYPE:
			k.key, ok = nftType(getBE32(v)), true
		case unix.NFTA_SET_KEY_LEN:
			k.keyLen = getBE32(v)
		case unix.NFTA_SET_DATA_TYPE:
			k.data = nftType(getBE32(v))
		case unix.NFTA_SET_DATA_LEN:
			k.dataLen = getBE32(v)
		case unix.NFTA_SET_TIMEOUT:
			k.timeout = getBE64(v)
		case unix.NFTA_SET_DESC:
			k.maxElem = uint64(getBE32(attribute(v, unix.NFTA_SET_DESC_SIZE)))
		}
	}
	return k, ok
}
