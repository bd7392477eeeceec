package linux

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"
)

// encoder appends netlink messages to one buffer, so that many of them go to the kernel in one
// system call. It allocates nothing once the buffer has grown.
//
// Netlink has the byte order of the machine, except for some attributes. Lengths of messages
// and attributes are filled in at their end.
type encoder struct {
	b     []byte
	start int // where the last message begins
	seq   uint32
	count int
}

// reset empties the buffer; the first message will have seq.
func (e *encoder) reset(seq uint32) {
	e.b, e.start, e.seq, e.count = e.b[:0], 0, seq, 0
}

// message ends the message before and begins the next one.
func (e *encoder) message(typ, flags uint16) {
	e.finish()
	e.start = len(e.b)
	e.b = binary.NativeEndian.AppendUint32(e.b, 0)
	e.b = binary.NativeEndian.AppendUint16(e.b, typ)
	e.b = binary.NativeEndian.AppendUint16(e.b, flags|unix.NLM_F_REQUEST)
	e.b = binary.NativeEndian.AppendUint32(e.b, e.seq)
	e.b = binary.NativeEndian.AppendUint32(e.b, 0)
	e.seq++
	e.count++
}

// finish writes the length of the last message.
func (e *encoder) finish() {
	if e.count > 0 {
		binary.NativeEndian.PutUint32(e.b[e.start:], uint32(len(e.b)-e.start))
	}
}

// flag adds flags to the last message.
func (e *encoder) flag(flags uint16) {
	at := e.start + 6
	old := binary.NativeEndian.Uint16(e.b[at:])
	binary.NativeEndian.PutUint16(e.b[at:], old|flags)
}

// raw appends a fixed header of a message; its length is a multiple of four.
func (e *encoder) raw(b ...byte) { e.b = append(e.b, b...) }

// nest begins an attribute with nested attributes, end ends it.
func (e *encoder) nest(typ uint16) int {
	at := len(e.b)
	e.b = binary.NativeEndian.AppendUint16(e.b, 0)
	e.b = binary.NativeEndian.AppendUint16(e.b, typ|unix.NLA_F_NESTED)
	return at
}

func (e *encoder) end(at int) {
	binary.NativeEndian.PutUint16(e.b[at:], uint16(len(e.b)-at))
}

func (e *encoder) header(typ uint16, size int) {
	e.b = binary.NativeEndian.AppendUint16(e.b, uint16(4+size))
	e.b = binary.NativeEndian.AppendUint16(e.b, typ)
}

func (e *encoder) u8(typ uint16, v uint8) {
	e.header(typ, 1)
	e.b = append(e.b, v, 0, 0, 0)
}

func (e *encoder) u16(typ uint16, v uint16) {
	e.header(typ, 2)
	e.b = binary.NativeEndian.AppendUint16(e.b, v)
	e.b = append(e.b, 0, 0)
}

func (e *encoder) u32(typ uint16, v uint32) {
	e.header(typ, 4)
	e.b = binary.NativeEndian.AppendUint32(e.b, v)
}

func (e *encoder) u32s(typ uint16, values ...uint32) {
	e.header(typ, 4*len(values))
	for _, v := range values {
		e.b = binary.NativeEndian.AppendUint32(e.b, v)
	}
}

// be16, be32 and be64 are for attributes in the byte order of the network.
func (e *encoder) be16(typ uint16, v uint16) {
	e.header(typ, 2)
	e.b = binary.BigEndian.AppendUint16(e.b, v)
	e.b = append(e.b, 0, 0)
}

func (e *encoder) be32(typ uint16, v uint32) {
	e.header(typ, 4)
	e.b = binary.BigEndian.AppendUint32(e.b, v)
}

func (e *encoder) be64(typ uint16, v uint64) {
	e.header(typ, 8)
	e.b = binary.BigEndian.AppendUint64(e.b, v)
}

func (e *encoder) bytes(typ uint16, v []byte) {
	e.header(typ, len(v))
	e.b = append(e.b, v...)
	e.pad()
}

// str appends a string with its final zero.
func (e *encoder) str(typ uint16, v string) {
	e.header(typ, len(v)+1)
	e.b = append(e.b, v...)
	e.b = append(e.b, 0)
	e.pad()
}

func (e *encoder) addr(typ uint16, a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		e.bytes(typ, v[:])
		return
	}
	v := a.As16()
	e.bytes(typ, v[:])
}

func (e *encoder) pad() {
	for len(e.b)%4 != 0 {
		e.b = append(e.b, 0)
	}
}

// attributes returns the attributes in b. It ends at the first truncated or malformed one.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			size := int(binary.NativeEndian.Uint16(b))
			typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if size < 4 || size > len(b) || !yield(typ, b[4:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// attribute returns one attribute, nil without one.
func attribute(b []byte, typ uint16) []byte {
	for t, v := range attributes(b) {
		if t == typ {
			return v
		}
	}
	return nil
}

func align(n int) int { return (n + 3) &^ 3 }

// The readers of numbers return zero for an attribute that is too short or missing, as the
// kernel's accessors do.

func getU8(b []byte) uint8    { return number(b, 1, func(b []byte) uint8 { return b[0] }) }
func getU16(b []byte) uint16  { return number(b, 2, binary.NativeEndian.Uint16) }
func getU32(b []byte) uint32  { return number(b, 4, binary.NativeEndian.Uint32) }
func getU64(b []byte) uint64  { return number(b, 8, binary.NativeEndian.Uint64) }
func getBE16(b []byte) uint16 { return number(b, 2, binary.BigEndian.Uint16) }
func getBE32(b []byte) uint32 { return number(b, 4, binary.BigEndian.Uint32) }
func getBE64(b []byte) uint64 { return number(b, 8, binary.BigEndian.Uint64) }

func number[T any](b []byte, size int, read func([]byte) T) (n T) {
	if len(b) >= size {
		n = read(b)
	}
	return n
}

// getAddr decodes an address of a family (unix.AF_INET, unix.AF_INET6). IPVS has IPv4
// addresses in a field of 16 bytes.
func getAddr(family uint16, b []byte) netip.Addr {
	switch {
	case family == unix.AF_INET && len(b) >= 4:
		return netip.AddrFrom4([4]byte(b))
	case family == unix.AF_INET6 && len(b) >= 16:
		return netip.AddrFrom16([16]byte(b))
	}
	return netip.Addr{}
}

// message is a received netlink message. Its body is valid until the next one is read.
type message struct {
	typ, flags uint16
	seq        uint32
	body       []byte
}

// messages returns the messages of one datagram.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return
			}
			m := message{
				typ:   binary.NativeEndian.Uint16(b[4:]),
				flags: binary.NativeEndian.Uint16(b[6:]),
				seq:   binary.NativeEndian.Uint32(b[8:]),
				body:  b[unix.NLMSG_HDRLEN:size],
			}
			if !yield(m) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}
