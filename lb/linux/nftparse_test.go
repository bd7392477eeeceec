package linux

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/fuzzing"
	"weir/lb"
)

// ruleParser reads expressions of nf_tables as the rule values that weir renders as such.
type ruleParser struct {
	ruleNames
	left []expression
}

// parse returns the rule of expressions; false if they are of no rule.
func (p *ruleParser) parse() (r rule, ok bool) {
	for len(p.left) > 0 {
		if m := p.match(); m != nil {
			r.matches = append(r.matches, m)
			continue
		}
		r.action = p.action()
		return r, r.action != nil && len(p.left) == 0
	}
	return r, false
}

// is reports whether the next expressions have these names, and returns them.
func (p *ruleParser) is(names ...string) []expression {
	if len(p.left) < len(names) {
		return nil
	}
	for i, name := range names {
		if p.left[i].name != name {
			return nil
		}
	}
	return p.left[:len(names)]
}

func (p *ruleParser) took(n int) { p.left = p.left[n:] }

// value returns an attribute, nil without one. Those of data are the content.
func (x expression) value(typ uint16) []byte {
	for _, a := range x.attrs {
		if a.typ == typ && a.inner != nil {
			return a.inner[0].value
		} else if a.typ == typ {
			return a.value
		}
	}
	return nil
}

func (x expression) number(typ uint16) uint32 { return getBE32(x.value(typ)) }

func (x expression) not() bool { return x.number(unix.NFTA_CMP_OP) == unix.NFT_CMP_NEQ }

func (p *ruleParser) match() match {
	if m := p.inSet(); m != nil {
		return m
	}
	if x := p.is("meta", "cmp"); x != nil {
		v := x[1].value(unix.NFTA_CMP_DATA)
		switch x[0].number(unix.NFTA_META_KEY) {
		case unix.NFT_META_L4PROTO:
			for name, number := range protocolNumbers {
				if bytes.Equal(v, []byte{number}) {
					p.took(2)
					return name
				}
			}
		case unix.NFT_META_IIFNAME:
			p.took(2)
			if len(v) == unix.IFNAMSIZ {
				return inputInterface(cString(v))
			}
			return inputInterface(string(v) + "+")
		}
	}
	if x := p.is("ct", "cmp"); x != nil && x[0].number(unix.NFTA_CT_KEY) == unix.NFT_CT_DIRECTION {
		p.took(2)
		return isReply{}
	}
	if x := p.is("fib", "cmp"); x != nil {
		p.took(2)
		return ownSource{x[1].not()}
	}
	if x := p.is("payload", "cmp"); x != nil {
		v := x[1].value(unix.NFTA_CMP_DATA)
		p.took(2)
		if x[0].number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_TRANSPORT_HEADER && len(v) == 2 {
			return checksummed{!x[1].not()}
		}
		if x[0].number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
			return icmpType(v[0])
		}
		return source(netip.PrefixFrom(keyAddr(v), 8*len(v)))
	}
	return p.masked()
}

// masked reads matches of some bits of a value.
func (p *ruleParser) masked() match {
	for _, load := range []string{"payload", "meta", "ct"} {
		x := p.is(load, "bitwise", "cmp")
		if x == nil {
			continue
		}
		mask, v := x[1].value(unix.NFTA_BITWISE_MASK), x[2].value(unix.NFTA_CMP_DATA)
		some := bits{getU32(v), getU32(mask)}
		p.took(3)
		switch {
		case load == "payload" && len(v) == 1 && v[0] == flagSYN|flagACK:
			return accepting{}
		case load == "payload" && len(v) == 1:
			return notFirst{}
		case load == "payload":
			ones := 0
			for _, b := range mask {
				for ; b != 0; b <<= 1 {
					ones++
				}
			}
			return source(netip.PrefixFrom(keyAddr(v), ones))
		case load == "meta":
			return mark{some, x[2].not()}
		case x[0].number(unix.NFTA_CT_KEY) == unix.NFT_CT_MARK:
			return connMark(some)
		case x[0].number(unix.NFTA_CT_KEY) == unix.NFT_CT_STATUS:
			return state("DNAT")
		}
		for _, s := range someStates {
			want := s.nft(p.ruleNames)[1].value(unix.NFTA_BITWISE_MASK)
			if s != "DNAT" && bytes.Equal(want, mask) {
				return s
			}
		}
	}
	return nil
}

// key reads the fields of a key: their number of expressions and their dims.
func (p *ruleParser) key() (n int, dims []string) {
	from, _, size := p.ipHeader()
	for n < len(p.left) {
		x := p.left[n]
		switch {
		case x.name == "meta" && x.number(unix.NFTA_META_KEY) == unix.NFT_META_L4PROTO && n > 0:
			n++
			continue
		case x.name != "payload":
			return n, dims
		}
		dim, offset := "dst", x.number(unix.NFTA_PAYLOAD_OFFSET)
		address := x.number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_NETWORK_HEADER && x.number(unix.NFTA_PAYLOAD_LEN) == uint32(size)
		if address && offset == uint32(from) || !address && offset == sourcePortAt {
			dim = "src"
		}
		dims = append(dims, dim)
		n++
	}
	return n, dims
}

// set returns the set of a lookup.
func (p *ruleParser) set(x expression) lb.Set {
	for _, s := range lb.Sets() {
		if s.Name(p.prefix, p.family) == cString(x.value(unix.NFTA_LOOKUP_SET)) {
			return s
		}
	}
	return lb.Set(0xff)
}

func (p *ruleParser) inSet() match {
	n, dims := p.key()
	if n == 0 || n >= len(p.left) || p.left[n].name != "lookup" {
		return nil
	}
	x := p.left[n]
	if n+1 < len(p.left) && p.left[n+1].name == "meta" && p.left[n+1].value(unix.NFTA_META_SREG) != nil {
		return nil // markFrom
	}
	p.took(n + 1)
	return inSet{p.set(x), strings.Join(dims, ","), x.value(unix.NFTA_LOOKUP_FLAGS) != nil}
}

func (p *ruleParser) action() action {
	if x := p.is("immediate", "nat"); x != nil {
		v := x[0].value(unix.NFTA_IMMEDIATE_DATA)
		p.took(2)
		if x[1].number(unix.NFTA_NAT_TYPE) == unix.NFT_NAT_SNAT {
			return sourceNAT(keyAddr(v))
		}
		return destinationPort(binary.BigEndian.Uint16(v))
	}
	if x := p.is("immediate", "exthdr"); x != nil {
		p.took(2)
		return setSegment(binary.BigEndian.Uint16(x[0].value(unix.NFTA_IMMEDIATE_DATA)))
	}
	if x := p.is("ct", "payload"); x != nil {
		p.took(2)
		if x[1].number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_NETWORK_HEADER {
			return originalAddress{}
		}
		if x[1].number(unix.NFTA_PAYLOAD_CSUM_TYPE) == unix.NFT_PAYLOAD_CSUM_NONE {
			return originalPort("")
		}
		return originalPort(map[uint32]string{checksumTCPAt: "tcp", checksumUDPAt: "udp"}[x[1].number(unix.NFTA_PAYLOAD_CSUM_OFFSET)])
	}
	if p.is("payload", "nat") != nil {
		p.took(2)
		return keepDestination{}
	}
	for _, load := range []string{"meta", "ct"} {
		x := p.is(load, "bitwise", load)
		if x == nil {
			continue
		}
		p.took(3)
		change := bits{getU32(x[1].value(unix.NFTA_BITWISE_XOR)), ^getU32(x[1].value(unix.NFTA_BITWISE_MASK))}
		if load == "ct" {
			return setConnMark(change)
		}
		return setMark(change)
	}
	if n, _ := p.key(); n > 0 && len(p.left) == n+2 && p.left[n].name == "lookup" {
		x := p.left[n]
		p.took(n + 2)
		return markFrom(p.set(x))
	}
	if len(p.left) != 1 {
		return nil
	}
	x := p.left[0]
	p.took(1)
	switch x.name {
	case "reject":
		return refuse{x.number(unix.NFTA_REJECT_TYPE) == unix.NFT_REJECT_TCP_RST}
	case "masq":
		return masquerade{len(x.attrs) > 0}
	case "immediate":
		return p.verdict(x)
	}
	return nil
}

func (p *ruleParser) verdict(x expression) action {
	result := x.attrs[1].inner[0].inner
	chain := ""
	if len(result) > 1 {
		chain = strings.TrimPrefix(cString(result[1].value), p.chain(""))
	}
	switch int32(getBE32(result[0].value)) {
	case unix.NFT_RETURN:
		return pass
	case nfDrop:
		return drop
	case nfAccept:
		return accept
	case unix.NFT_JUMP:
		return jump(chain)
	}
	return goTo(chain)
}

var someStates = []state{"NEW", "RELATED", "INVALID", "RELATED,ESTABLISHED", "INVALID,NEW,ESTABLISHED", "DNAT"}

// someRule returns a rule of every kind that weir has, with other values.
func someRule(r *rand.Rand, family lb.Family) rule {
	some := func() bits {
		mask := r.Uint32() | 1
		return bits{r.Uint32() & mask, mask}
	}
	addr := keyAddr(binary.BigEndian.AppendUint32(nil, r.Uint32()))
	if family == lb.IPv6 {
		addr = keyAddr(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.Uint64()), r.Uint64()))
	}
	sets := lb.Sets()
	dims := func(s lb.Set) string {
		var out []string
		for range strings.Split(s.Type(), ",") {
			out = append(out, []string{"dst", "src"}[r.IntN(2)])
		}
		return strings.Join(out, ",")
	}
	names := slices.Sorted(maps.Keys(protocolNumbers))
	var ms []match
	for range r.IntN(4) {
		ms = append(ms, []func() match{
			func() match {
				s := sets[r.IntN(len(sets))]
				return inSet{s, dims(s), r.IntN(2) == 0 && !s.MarksPackets()}
			},
			func() match { return names[r.IntN(len(names))] },
			func() match { return icmpType(r.IntN(256)) },
			func() match { return someStates[r.IntN(len(someStates))] },
			func() match { return isReply{} },
			func() match { return source(netip.PrefixFrom(addr, 1+r.IntN(addr.BitLen())).Masked()) },
			func() match { return ownSource{r.IntN(2) == 0} },
			func() match { return inputInterface([]string{"eth0", "veth+", "bond0.100"}[r.IntN(3)]) },
			func() match { return notFirst{} },
			func() match { return accepting{} },
			func() match { return checksummed{r.IntN(2) == 0} },
			func() match { return mark{some(), r.IntN(2) == 0} },
			func() match { return connMark(some()) },
		}[r.IntN(13)]())
	}
	chain := "SERVICES"
	return when(ms...).then([]func() action{
		func() action { return []result{pass, drop, accept}[r.IntN(3)] },
		func() action { return jump(chain) },
		func() action { return goTo(chain) },
		func() action { return refuse{r.IntN(2) == 0} },
		func() action { return setMark(some()) },
		func() action { return setConnMark(some()) },
		func() action { return keepDestination{} },
		func() action { return markFrom(lb.SetInternal) },
		func() action { return masquerade{r.IntN(2) == 0} },
		func() action { return sourceNAT(addr) },
		func() action { return destinationPort(r.IntN(1 << 16)) },
		func() action { return setSegment(r.IntN(1 << 16)) },
		func() action { return originalAddress{} },
		func() action { return []originalPort{"tcp", "udp", ""}[r.IntN(3)] },
	}[r.IntN(14)]())
}

// FuzzRulesReadBack renders rules for nf_tables and reads them: none loses a part of its meaning.
func FuzzRulesReadBack(f *testing.F) {
	fuzzing.Wide(f)
	for seed := range uint64(200) {
		f.Add(seed, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, six bool) {
		n := ruleNames{"KUBE", lb.IPv4}
		if six {
			n.family = lb.IPv6
		}
		want := someRule(rand.New(rand.NewPCG(seed, 1)), n.family)
		p := ruleParser{n, want.nft(n)}
		if got, ok := p.parse(); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v is rendered as %v\nand read as %#v, %v", want, want.nft(n), got, ok)
		}
	})
}

// The rules of every configuration read back as well.
func TestAllRulesReadBack(t *testing.T) {
	t.Parallel()
	for name, c := range nftConfigs() {
		for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
			for _, s := range []stage{byIPVS, byDNAT, byBoth, afterIPVS} {
				n := ruleNames{c.Prefix, f}
				for _, table := range append(staticRules(c, f, s, insidePorts{lb.MarkFrontend(f, 3): 8080}), onlyNFT(c, f, s)...) {
					for _, chain := range table.chains {
						for _, want := range chain.rules {
							p := ruleParser{n, want.nft(n)}
							if got, ok := p.parse(); !ok || !reflect.DeepEqual(got, want) {
								t.Errorf("%s %s: %#v is read as %#v, %v", name, f, want, got, ok)
							}
						}
					}
				}
			}
		}
	}
}
