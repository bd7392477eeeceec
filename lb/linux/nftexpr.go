package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Expressions of nf_tables. A rule is a list of them; each works on registers and ends the
// rule if it does not match (include/uapi/linux/netfilter/nf_tables.h).

// expression is one of them, with its attributes.
type expression struct {
	name  string
	attrs []attr
}

// attr is an attribute with a value, or with others.
type attr struct {
	typ   uint16
	value []byte
	inner []attr
}

// The registers. Those of 4 bytes are parts of those of 16: register 1 begins at reg32(0). A
// key of several fields is in consecutive registers.
const (
	regResult = unix.NFT_REG_VERDICT
	regKey    = unix.NFT_REG_1
)

// reg32 returns the n-th register of 4 bytes, by the number that the kernel reports for it.
func reg32(n int) uint32 {
	if n%4 == 0 {
		return uint32(unix.NFT_REG_1 + n/4)
	}
	return uint32(unix.NFT_REG32_00 + n)
}

// be32 and native return an attribute of four bytes: numbers of nf_tables have the byte order
// of the network, contents of registers that of the machine.
func be32(typ uint16, v uint32) attr {
	return attr{typ: typ, value: binary.BigEndian.AppendUint32(nil, v)}
}

func native32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func text(typ uint16, s string) attr { return attr{typ: typ, value: append([]byte(s), 0)} }

// data is content of a register.
func data(typ uint16, v []byte) attr {
	return attr{typ: typ, inner: []attr{{typ: unix.NFTA_DATA_VALUE, value: v}}}
}

// loadPayload loads bytes of the packet, from its header of network or transport.
func loadPayload(reg, base uint32, offset, size int) expression {
	return expression{"payload", []attr{
		be32(unix.NFTA_PAYLOAD_DREG, reg), be32(unix.NFTA_PAYLOAD_BASE, base),
		be32(unix.NFTA_PAYLOAD_OFFSET, uint32(offset)), be32(unix.NFTA_PAYLOAD_LEN, uint32(size)),
	}}
}

// storePayload stores bytes in the packet. sums select the checksums that the kernel corrects.
func storePayload(reg, base uint32, offset, size int, sums ...attr) expression { //nolint:unparam // the expression has a register
	return expression{"payload", append([]attr{
		be32(unix.NFTA_PAYLOAD_SREG, reg), be32(unix.NFTA_PAYLOAD_BASE, base),
		be32(unix.NFTA_PAYLOAD_OFFSET, uint32(offset)), be32(unix.NFTA_PAYLOAD_LEN, uint32(size)),
	}, sums...)}
}

func loadMeta(reg, key uint32) expression {
	return expression{"meta", []attr{be32(unix.NFTA_META_DREG, reg), be32(unix.NFTA_META_KEY, key)}}
}

func storeMeta(reg, key uint32) expression { //nolint:unparam // the expression has a key
	return expression{"meta", []attr{be32(unix.NFTA_META_KEY, key), be32(unix.NFTA_META_SREG, reg)}}
}

func loadConn(reg, key uint32) expression { //nolint:unparam // the expression has a register
	return expression{"ct", []attr{be32(unix.NFTA_CT_DREG, reg), be32(unix.NFTA_CT_KEY, key)}}
}

// loadOriginal loads a part of the packets that began the connection.
func loadOriginal(reg, key uint32) expression { //nolint:unparam // the expression has a register
	const original = 0 // IP_CT_DIR_ORIGINAL
	return expression{"ct", append(loadConn(reg, key).attrs, attr{typ: unix.NFTA_CT_DIRECTION, value: []byte{original}})}
}

func storeConn(reg, key uint32) expression {
	return expression{"ct", []attr{be32(unix.NFTA_CT_KEY, key), be32(unix.NFTA_CT_SREG, reg)}}
}

// storeSegment lowers the largest segment in the options of TCP to the value in a register.
func storeSegment(reg uint32) expression {
	const segmentOption, valueAt, size = 2, 2, 2
	return expression{"exthdr", []attr{
		be32(unix.NFTA_EXTHDR_SREG, reg), {typ: unix.NFTA_EXTHDR_TYPE, value: []byte{segmentOption}},
		be32(unix.NFTA_EXTHDR_OFFSET, valueAt), be32(unix.NFTA_EXTHDR_LEN, size), be32(unix.NFTA_EXTHDR_OP, unix.NFT_EXTHDR_OP_TCPOPT),
	}}
}

// loadSourceType loads the type of the packet's source address: RTN_LOCAL and others.
func loadSourceType(reg uint32) expression {
	return expression{"fib", []attr{
		be32(unix.NFTA_FIB_DREG, reg), be32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE),
		be32(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_SADDR),
	}}
}

// maskXor computes reg & mask ^ xor.
func maskXor(reg uint32, mask, xor []byte) expression {
	return expression{"bitwise", []attr{
		be32(unix.NFTA_BITWISE_SREG, reg), be32(unix.NFTA_BITWISE_DREG, reg), be32(unix.NFTA_BITWISE_LEN, uint32(len(mask))),
		data(unix.NFTA_BITWISE_MASK, mask), data(unix.NFTA_BITWISE_XOR, xor),
	}}
}

// compare ends the rule unless a register is (not) v.
func compare(reg uint32, not bool, v []byte) expression { //nolint:unparam // the expression has a register
	op := uint32(unix.NFT_CMP_EQ)
	if not {
		op = unix.NFT_CMP_NEQ
	}
	return expression{"cmp", []attr{be32(unix.NFTA_CMP_SREG, reg), be32(unix.NFTA_CMP_OP, op), data(unix.NFTA_CMP_DATA, v)}}
}

// lookup ends the rule unless a set has (not) the key in a register.
func lookup(set string, key uint32, not bool) expression {
	e := expression{"lookup", []attr{text(unix.NFTA_LOOKUP_SET, set), be32(unix.NFTA_LOOKUP_SREG, key)}}
	if not {
		e.attrs = append(e.attrs, be32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV))
	}
	return e
}

// lookupMap loads what a map has for the key in a register, or ends the rule. In regResult it is
// a chain, to which the packet goes.
func lookupMap(set string, key, to uint32) expression {
	return expression{"lookup", []attr{
		text(unix.NFTA_LOOKUP_SET, set), be32(unix.NFTA_LOOKUP_SREG, key), be32(unix.NFTA_LOOKUP_DREG, to),
	}}
}

// loadRandom loads a number from 0 to below.
func loadRandom(reg, below uint32) expression {
	return expression{"numgen", []attr{
		be32(unix.NFTA_NG_DREG, reg), be32(unix.NFTA_NG_MODULUS, below), be32(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM),
	}}
}

const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE, since Linux 5.4

// remember adds the key in regKey to a map for some seconds, or renews it.
func remember(set string, value, seconds uint32) expression {
	return expression{"dynset", []attr{
		text(unix.NFTA_DYNSET_SET_NAME, set), be32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE),
		be32(unix.NFTA_DYNSET_SREG_KEY, regKey), be32(unix.NFTA_DYNSET_SREG_DATA, value),
		{typ: unix.NFTA_DYNSET_TIMEOUT, value: binary.BigEndian.AppendUint64(nil, 1000*uint64(seconds))},
	}}
}

// forget removes the key in regKey from a map. The kernel also wants a value, and ignores it.
func forget(set string, value uint32) expression {
	return expression{"dynset", []attr{
		text(unix.NFTA_DYNSET_SET_NAME, set), be32(unix.NFTA_DYNSET_OP, dynsetDelete),
		be32(unix.NFTA_DYNSET_SREG_KEY, regKey), be32(unix.NFTA_DYNSET_SREG_DATA, value),
	}}
}

func loadValue(reg uint32, v []byte) expression {
	return expression{"immediate", []attr{be32(unix.NFTA_IMMEDIATE_DREG, reg), data(unix.NFTA_IMMEDIATE_DATA, v)}}
}

// decide ends the rule with a result: unix.NFT_JUMP and NFT_GOTO have a chain.
func decide(code int32, chain string) expression {
	return expression{"immediate", []attr{
		be32(unix.NFTA_IMMEDIATE_DREG, regResult),
		{typ: unix.NFTA_IMMEDIATE_DATA, inner: []attr{resultAttr(code, chain)}},
	}}
}

// resultAttr returns a result as content of regResult.
func resultAttr(code int32, chain string) attr {
	inner := []attr{be32(unix.NFTA_VERDICT_CODE, uint32(code))}
	if chain != "" {
		inner = append(inner, text(unix.NFTA_VERDICT_CHAIN, chain))
	}
	return attr{typ: unix.NFTA_DATA_VERDICT, inner: inner}
}

// put appends an expression as an element of a list.
func (x expression) put(e *encoder) {
	at := e.nest(unix.NFTA_LIST_ELEM)
	e.str(unix.NFTA_EXPR_NAME, x.name)
	putAttrs(e, unix.NFTA_EXPR_DATA, x.attrs)
	e.end(at)
}

func putAttrs(e *encoder, typ uint16, attrs []attr) {
	at := e.nest(typ)
	for _, a := range attrs {
		if a.inner != nil {
			putAttrs(e, a.typ, a.inner)
		} else {
			e.bytes(a.typ, a.value)
		}
	}
	e.end(at)
}

// sameExpressions reports whether the kernel's list of expressions is this one. The kernel
// adds attributes with their defaults, which do not count.
func sameExpressions(want []expression, have []byte) bool {
	n := 0
	for _, element := range attributes(have) {
		if n >= len(want) || !want[n].same(element) {
			return false
		}
		n++
	}
	return n == len(want)
}

func (x expression) same(have []byte) bool {
	name := attribute(have, unix.NFTA_EXPR_NAME)
	return string(bytes.TrimRight(name, "\x00")) == x.name && sameAttrs(x.attrs, attribute(have, unix.NFTA_EXPR_DATA))
}

func sameAttrs(want []attr, have []byte) bool {
	for _, w := range want {
		got := attribute(have, w.typ)
		if w.inner == nil && !bytes.Equal(got, w.value) || w.inner != nil && !sameAttrs(w.inner, got) {
			return false
		}
	}
	return true
}

func (x expression) String() string { return fmt.Sprintf("%s %v", x.name, x.attrs) }
