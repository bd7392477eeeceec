package linux

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weir/lb"
)

const (
	// nftMessageBytes limits the elements of one message: the length of their attribute has 16
	// bits.
	nftMessageBytes = 60 << 10
	// nftElementBytes is the size of the largest element, and nftHeaderBytes that of a message
	// without elements.
	nftElementBytes = 112
	nftHeaderBytes  = 100
)

// nftKey is a key, with zeros after its length. The longest has two IPv6 addresses.
type nftKey [40]byte

// nftElement is an element of a set: a range of keys, or one key if both ends are equal.
type nftElement struct {
	first, last nftKey
	mark        uint32 // of a map
	// open reports that a set of single addresses has no end for the range: it goes up to the
	// next range.
	open bool
	// catchAll is the element for all other keys, which weir never makes.
	catchAll bool
}

// elementOf returns the element of a member. Its Mark is a firewall mark here.
func elementOf(m lb.Member) nftElement {
	el := nftElement{mark: m.Mark}
	switch {
	case m.Set.Type() == bitmapPort:
		binary.BigEndian.PutUint16(el.first[:], m.Port)
		el.last = el.first
	case m.Set.Type() == "hash:ip":
		putKeyAddr(el.first[:], m.Addr)
		el.last = el.first
	case !m.Addr.IsValid():
		from, to := rangeOf(m.Net)
		putKeyAddr(el.first[:], from)
		putKeyAddr(el.last[:], to)
		el.open = !to.Next().IsValid()
	default:
		n := putKeyAddr(el.first[:], m.Addr)
		el.first[n] = byte(m.Proto)
		binary.BigEndian.PutUint16(el.first[n+4:], m.Port)
		el.last = el.first
		if len(nftFields(lb.IPSet{Set: m.Set})) == 4 {
			from, to := rangeOf(m.Net)
			putKeyAddr(el.first[n+8:], from)
			putKeyAddr(el.last[n+8:], to)
		}
	}
	return el
}

// member returns the member of an element. ok is false if no member has exactly this element:
// another program made it.
func (el nftElement) member(set lb.IPSet) (m lb.Member, ok bool) {
	m = lb.Member{Set: set.Set, Mark: el.mark}
	n := 4
	if set.Family == lb.IPv6 {
		n = 16
	}
	switch typ := set.Set.Type(); typ {
	case bitmapPort:
		m.Addr, m.Port = unspecified(set.Family), binary.BigEndian.Uint16(el.first[:])
	case "hash:ip":
		m.Addr = keyAddr(el.first[:n])
	case "hash:net":
		m.Net = prefixBetween(keyAddr(el.first[:n]), keyAddr(el.last[:n]))
	default:
		m.Addr = keyAddr(el.first[:n])
		m.Proto = lb.Protocol(el.first[n])
		m.Port = binary.BigEndian.Uint16(el.first[n+4:])
		if typ != "hash:ip,port" {
			m.Net = prefixBetween(keyAddr(el.first[n+8:n+8+n]), keyAddr(el.last[n+8:n+8+n]))
		}
	}
	return m, elementOf(m) == el
}

func putKeyAddr(b []byte, a netip.Addr) int { return copy(b, a.AsSlice()) }

func keyAddr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// rangeOf returns the first and the last address of a network.
func rangeOf(p netip.Prefix) (from, to netip.Addr) {
	p = p.Masked()
	b := p.Addr().AsSlice()
	for i := range b {
		if kept := p.Bits() - 8*i; kept < 8 {
			b[i] |= 0xff >> max(0, kept)
		}
	}
	return p.Addr(), keyAddr(b)
}

// prefixBetween returns the longest network that has both addresses.
func prefixBetween(from, to netip.Addr) netip.Prefix {
	a, b := from.AsSlice(), to.AsSlice()
	bits := 0
	for bits < 8*len(a) && (a[bits/8]^b[bits/8])&(0x80>>(bits%8)) == 0 {
		bits++
	}
	p, _ := from.Prefix(bits)
	return p
}

// putNFTElements encodes one message that adds or deletes elements, as many as fit, and returns
// their number.
func putNFTElements(e *encoder, cmd uint16, set lb.IPSet, table, name string, elements []nftElement) int {
	kind := nftKindOf(set)
	putNFTSet(e, cmd, 0, nftFamily(set.Family), table, name)
	if cmd == unix.NFT_MSG_NEWSETELEM {
		e.flag(unix.NLM_F_CREATE)
	}
	at := e.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	n := 0
	for n < len(elements) && len(e.b)-at < nftMessageBytes {
		putNFTElement(e, cmd, kind, elements[n])
		n++
	}
	e.end(at)
	return n
}

func putNFTElement(e *encoder, cmd uint16, kind nftKind, el nftElement) {
	one := e.nest(nftListElem)
	if el.catchAll {
		e.be32(unix.NFTA_SET_ELEM_FLAGS, nftElemCatchAll)
		e.end(one)
		return
	}
	putNFTData(e, unix.NFTA_SET_ELEM_KEY, el.first[:kind.keyLen])
	if kind.flags&nftSetConcat != 0 {
		putNFTData(e, nftSetElemKeyEnd, el.last[:kind.keyLen])
	}
	if kind.isMap() && cmd == unix.NFT_MSG_NEWSETELEM {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], el.mark)
		putNFTData(e, unix.NFTA_SET_ELEM_DATA, b[:])
	}
	e.end(one)
	if kind.intervals() && !kind.concat() && !el.open {
		one := e.nest(nftListElem)
		e.be32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		putNFTData(e, unix.NFTA_SET_ELEM_KEY, keyAddr(el.last[:kind.keyLen]).Next().AsSlice())
		e.end(one)
	}
}

func putNFTData(e *encoder, typ uint16, v []byte) {
	at := e.nest(typ)
	e.bytes(unix.NFTA_DATA_VALUE, v)
	e.end(at)
}

// nftElements decodes the elements of one set. A range in a set of single addresses is two
// elements, in any order, so those come with done.
type nftElements struct {
	kind nftKind
	each func(nftElement)
	ends []nftEnd
}

// nftEnd is an element of a set of ranges of single addresses: the first one of a range, or the
// first one after it.
type nftEnd struct {
	at    netip.Addr
	after bool
}

// parse decodes one message.
func (p *nftElements) parse(body []byte) {
	if len(body) < 4 {
		return
	}
	for _, one := range attributes(attribute(body[4:], unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
		p.element(one)
	}
}

func (p *nftElements) element(b []byte) {
	var el nftElement
	var flags uint32
	ok, whole := false, false
	for typ, v := range attributes(b) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			ok = p.key(&el.first, v)
		case nftSetElemKeyEnd:
			whole = p.kind.intervals() && p.key(&el.last, v)
		case unix.NFTA_SET_ELEM_DATA:
			if p.kind.isMap() {
				el.mark = getU32(attribute(v, unix.NFTA_DATA_VALUE))
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			flags = getBE32(v)
		}
	}
	switch {
	case flags&nftElemCatchAll != 0:
		p.each(nftElement{catchAll: true})
	case !ok:
	case p.kind.intervals() && !p.kind.concat():
		p.ends = append(p.ends, nftEnd{keyAddr(el.first[:p.kind.keyLen]), flags&unix.NFT_SET_ELEM_INTERVAL_END != 0})
	default:
		if !whole {
			el.last = el.first
		}
		p.each(el)
	}
}

func (p *nftElements) key(k *nftKey, v []byte) bool {
	b := attribute(v, unix.NFTA_DATA_VALUE)
	return len(b) == int(p.kind.keyLen) && copy(k[:], b) == len(b)
}

// done ends the decoding. A range without an end goes up to the next one, as the kernel matches
// it.
func (p *nftElements) done() {
	slices.SortFunc(p.ends, func(a, b nftEnd) int {
		if c := a.at.Compare(b.at); c != 0 || a.after == b.after {
			return c
		}
		if a.after {
			return -1
		}
		return 1
	})
	for i, end := range p.ends {
		if end.after {
			continue
		}
		el := nftElement{open: true}
		putKeyAddr(el.first[:], end.at)
		if i+1 < len(p.ends) {
			putKeyAddr(el.last[:], p.ends[i+1].at.Prev())
			el.open = !p.ends[i+1].after
		} else {
			for j := range el.last[:p.kind.keyLen] {
				el.last[j] = 0xff
			}
		}
		p.each(el)
	}
}
