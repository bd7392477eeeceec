package linux

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weir/lb"
)

// natRule is a rule of table nat of one of the forms that NAT services have. Zero fields are
// absent. Its text is that of iptables-save:
//
//	-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-...
//	-p tcp -m mark --mark 0x2d000001/0xffff3fff -j KUBE-SVC-...
//	-m comment --comment "weir: 192.0.2.1:80/tcp rr 0 60"
//	-m recent --rcheck --seconds 60 --reap --name KUBE-SEP-... -j KUBE-SEP-...
//	-m statistic --mode random --probability 0.5 -m comment --comment "weir: 10.0.0.1:80 1 0 0" -j KUBE-SEP-...
//	-p tcp -m recent --set --name KUBE-SEP-... -m comment --comment "..." -j DNAT --to-destination 10.0.0.1:80
type natRule struct {
	dst        netip.Addr
	proto      lb.Protocol
	port       uint16
	mark, mask uint32
	// remembers is the list of clients that the rule reads, or with seconds 0 writes.
	remembers string
	seconds   uint32
	// chance is the probability of a match, of 1<<31; 0 is always.
	chance  uint32
	comment string
	to      netip.AddrPort
	jump    string
}

// always is a chance of 1.
const always = 1 << 31

func (r natRule) String() string {
	var b strings.Builder
	if r.dst.IsValid() {
		fmt.Fprintf(&b, "-d %s ", netip.PrefixFrom(r.dst, r.dst.BitLen()))
	}
	if r.proto != 0 {
		fmt.Fprintf(&b, "-p %s ", r.proto)
	}
	if r.port != 0 {
		fmt.Fprintf(&b, "-m %s --dport %d ", r.proto, r.port)
	}
	if r.mask != 0 {
		fmt.Fprintf(&b, "-m mark --mark %#x/%#x ", r.mark, r.mask)
	}
	if r.remembers != "" {
		how := "--set"
		if r.seconds != 0 {
			how = fmt.Sprintf("--rcheck --seconds %d --reap", r.seconds)
		}
		fmt.Fprintf(&b, "-m recent %s --name %s ", how, r.remembers)
	}
	if r.chance != 0 {
		fmt.Fprintf(&b, "-m statistic --mode random --probability %.11f ", float64(r.chance)/always)
	}
	if r.comment != "" {
		fmt.Fprintf(&b, "-m comment --comment %q ", r.comment)
	}
	switch {
	case r.to.IsValid():
		fmt.Fprintf(&b, "-j DNAT --to-destination %s ", r.to)
	case r.jump != "":
		fmt.Fprintf(&b, "-j %s ", r.jump)
	}
	return strings.TrimSuffix(b.String(), " ")
}

// parseNAT parses a rule of iptables-save. One of another form is foreign or was changed.
func parseNAT(spec string) (r natRule, ok bool) {
	words := splitRule(spec)
	asks := slices.Contains(words, "--rcheck")
	for len(words) > 0 {
		n := r.take(words)
		if n == 0 {
			return natRule{}, false
		}
		words = words[n:]
	}
	return r, asks == (r.seconds != 0)
}

// take parses the option at the start of words, and returns the number of words that it has
// used; 0 for an unknown one.
func (r *natRule) take(words []string) int {
	option, arg := words[0], ""
	if len(words) > 1 {
		arg = strings.Trim(words[1], `"`)
	}
	var ok bool
	switch option {
	case "--reap", "--rsource", "--set", "--rcheck":
		return 1
	case "-d":
		p, err := netip.ParsePrefix(arg)
		r.dst, ok = p.Addr(), err == nil && p.IsSingleIP()
	case "-p":
		proto, err := lb.ParseProtocol(arg)
		r.proto, ok = proto, err == nil
	case "-m":
		ok = slices.Contains([]string{"tcp", "udp", "sctp", "mark", "recent", "statistic", "comment"}, arg)
	case "--dport":
		n, err := strconv.ParseUint(arg, 10, 16)
		r.port, ok = uint16(n), err == nil
	case "--mark":
		r.mark, r.mask, ok = parseMark(arg)
	case "--name":
		r.remembers, ok = arg, plain(arg) && !strings.Contains(arg, " ")
	case "--seconds":
		n, err := strconv.ParseUint(arg, 10, 32)
		r.seconds, ok = uint32(n), err == nil
	case "--mask": // single clients, the default
		a, err := netip.ParseAddr(arg)
		ok = err == nil && a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || arg == fullMask6
	case "--mode":
		ok = arg == "random"
	case "--probability":
		p, err := strconv.ParseFloat(arg, 64)
		r.chance, ok = uint32(math.Round(p*always)), err == nil && p > 0 && p <= 1
	case "--comment":
		r.comment, ok = arg, plain(arg)
	case "--to-destination":
		a, err := netip.ParseAddrPort(arg)
		r.to, ok = a, err == nil
	case "-j":
		if r.jump, ok = arg, plain(arg) && !strings.Contains(arg, " "); arg == "DNAT" {
			r.jump = ""
		}
	default:
		return 0
	}
	if !ok {
		return 0
	}
	return 2
}

// plain reports whether weir's quotes are enough for a word.
func plain(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' })
}

const fullMask6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

// parseMark parses 0x1/0xff.
func parseMark(s string) (mark, mask uint32, ok bool) {
	value, of, found := strings.Cut(s, "/")
	if !found {
		of = "0xffffffff"
	}
	v, err1 := strconv.ParseUint(value, 0, 32)
	m, err2 := strconv.ParseUint(of, 0, 32)
	return uint32(v), uint32(m), err1 == nil && err2 == nil
}

// natService is a virtual server with its real servers, as chains of table nat.
type natService struct {
	server lb.VirtualServer
	reals  []lb.RealServer // sorted by address
}

// natNames has the names of the chains of NAT services, and their marks.
type natNames struct {
	prefix string
	marks  marking
}

// virtualServers is the chain with the jumps to NAT services, without the prefix.
const virtualServers = "VIRTUAL-SERVERS"

// dispatch returns the name of that chain.
func (n natNames) dispatch() string { return n.prefix + "-" + virtualServers }

// server returns the chain of a virtual server: KUBE-SVC- and a hash.
func (n natNames) server(f lb.Frontend) string {
	return n.prefix + "-SVC-" + nameHash(frontendText(f))
}

// real returns the chain of a real server: KUBE-SEP- (service endpoint) and a hash. The list
// of its clients with affinity has the same name.
func (n natNames) real(f lb.Frontend, a netip.AddrPort) string {
	return n.prefix + "-SEP-" + nameHash(frontendText(f)+" "+a.String())
}

// named reports whether a chain has the name of one of a NAT service.
func (n natNames) named(chain string) bool {
	return strings.HasPrefix(chain, n.prefix+"-SVC-") || strings.HasPrefix(chain, n.prefix+"-SEP-")
}

// nameHash returns 80 bits of a hash for a chain's name: enough against collisions.
func nameHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// frontendText returns the name of a frontend in records: "192.0.2.1:80/tcp", "mark:7".
func frontendText(f lb.Frontend) string {
	if f.Mark != 0 {
		return fmt.Sprintf("mark:%d/%s", f.Mark, lb.FamilyOf(f.Addr))
	}
	return f.String()
}

func parseFrontendText(s string, family lb.Family) (f lb.Frontend, ok bool) {
	addr, proto, _ := strings.Cut(s, "/")
	if number, found := strings.CutPrefix(addr, "mark:"); found {
		n, err := strconv.ParseUint(number, 10, 32)
		f = lb.MarkFrontend(family, uint32(n))
		return f, err == nil && n > 0 && n <= lb.MaxMark && frontendText(f) == s
	}
	a, err1 := netip.ParseAddrPort(addr)
	p, err2 := lb.ParseProtocol(proto)
	f = lb.Frontend{Addr: a.Addr(), Port: a.Port(), Proto: p}
	return f, err1 == nil && err2 == nil && lb.FamilyOf(f.Addr) == family && frontendText(f) == s
}

// recordWord begins the comments with the attributes that rules can't show.
const recordWord = "weir:"

// dispatchRule returns the rule that jumps to a NAT service.
func (n natNames) dispatchRule(f lb.Frontend) natRule {
	r := natRule{proto: f.Proto, jump: n.server(f)}
	if f.Mark != 0 {
		r.mark, r.mask = n.marks.firewall(f.Mark), ^n.marks.reserved()
		return r
	}
	r.dst, r.port = f.Addr, f.Port
	return r
}

// chains returns the rules of a NAT service: first the chain of the virtual server, which
// begins with its record, then those of real servers that take connections. One that takes
// none has only a record: its connections survive in conntrack. The list of its clients with
// affinity goes with its chain.
func (n natNames) chains(p natService) []chain {
	f := p.server.Frontend
	s := p.server.Scheduler
	chances := chances(shares(p))
	var ask, pick []string
	out := []chain{{name: n.server(f)}}
	for i, rs := range p.reals {
		note := fmt.Sprintf("%s %s %d %d %d", recordWord, rs.Addr, rs.Weight, rs.Upper, rs.Lower)
		if chances[i] == 0 {
			pick = append(pick, natRule{comment: note}.String())
			continue
		}
		name := n.real(f, rs.Addr)
		to := natRule{proto: f.Proto, to: rs.Addr, comment: fmt.Sprintf("%s %s", recordWord, frontendText(f))}
		if p.server.Affinity != 0 {
			ask = append(ask, natRule{remembers: name, seconds: p.server.Affinity, jump: name}.String())
			to.remembers = name
		}
		pick = append(pick, natRule{chance: chances[i] % always, comment: note, jump: name}.String())
		out = append(out, chain{name, []string{to.String()}})
	}
	record := fmt.Sprintf("%s %s %s %#x %d", recordWord, frontendText(f), s.Name, uint32(s.Flags), p.server.Affinity)
	if p.server.Port != 0 { // rules need none: they set port and address
		record += fmt.Sprintf(" %d", p.server.Port)
	}
	out[0].rules = slices.Concat([]string{natRule{comment: record}.String()}, ask, pick)
	return out
}

// shares returns the share of new connections of each real server. Scheduler rr knows no
// weights but 0, and fo gives all to the first of those with the highest weight, as in IPVS.
// All others are spread by weight.
func shares(p natService) []uint32 {
	out := make([]uint32, len(p.reals))
	best := -1
	for i, rs := range p.reals {
		if out[i] = rs.Weight; p.server.Scheduler.Name == "rr" {
			out[i] = min(rs.Weight, 1)
		}
		if best < 0 || rs.Weight > p.reals[best].Weight {
			best = i
		}
	}
	if p.server.Scheduler.Name == "fo" && best >= 0 {
		share := min(out[best], 1)
		clear(out)
		out[best] = share
	}
	return out
}

// chances returns the probabilities of consecutive rules that give each real server its share:
// a part of the connections that the rules before have left. The last gets all of these.
func chances(shares []uint32) []uint32 {
	out := make([]uint32, len(shares))
	left := uint64(0)
	for i, share := range slices.Backward(shares) {
		if left += uint64(share); share > 0 {
			out[i] = uint32(math.Round(float64(share) / float64(left) * always))
		}
	}
	return out
}

// parseNATService parses the chain of a virtual server. exact reports that its rules are
// exactly those of its records.
func (n natNames) parseNATService(family lb.Family, specs []string) (p natService, exact, ok bool) {
	var have []string
	exact = true
	for i, spec := range specs {
		r, known := parseNAT(spec)
		have = append(have, r.String())
		exact = exact && known
		words := strings.Fields(r.comment)
		switch {
		case len(words) == 0 || words[0] != recordWord:
		case i == 0:
			p.server, ok = parseServerRecord(words[1:], family)
		case ok:
			rs, good := parseRealRecord(words[1:], p.server.Frontend)
			if exact = exact && good; good {
				p.add(rs)
			}
		}
	}
	if !ok {
		return natService{}, false, false
	}
	return p, exact && slices.Equal(have, n.chains(p)[0].rules), true
}

func parseServerRecord(words []string, family lb.Family) (vs lb.VirtualServer, ok bool) {
	if len(words) != 4 && len(words) != 5 {
		return vs, false
	}
	f, ok := parseFrontendText(words[0], family)
	if len(words) == 5 {
		port, err := strconv.ParseUint(words[4], 10, 16)
		vs.Port, ok = uint16(port), ok && err == nil && port != 0
	}
	flags, err1 := strconv.ParseUint(words[2], 0, 32)
	affinity, err2 := strconv.ParseUint(words[3], 10, 32)
	vs.Frontend, vs.Affinity = f, uint32(affinity)
	vs.Scheduler = lb.Scheduler{Name: words[1], Flags: lb.SchedulerFlag(flags)}
	return vs, ok && err1 == nil && err2 == nil
}

func parseRealRecord(words []string, f lb.Frontend) (rs lb.RealServer, ok bool) {
	if len(words) != 4 {
		return rs, false
	}
	a, err := netip.ParseAddrPort(words[0])
	rs = lb.RealServer{Frontend: f, Addr: a}
	ok = err == nil && lb.FamilyOf(a.Addr()) == lb.FamilyOf(f.Addr)
	for i, v := range []*uint32{&rs.Weight, &rs.Upper, &rs.Lower} {
		n, err := strconv.ParseUint(words[1+i], 10, 32)
		*v = uint32(n)
		ok = ok && err == nil
	}
	return rs, ok
}

// add adds a real server, or replaces its attributes.
func (p *natService) add(rs lb.RealServer) {
	i, found := p.find(rs.Addr)
	if found {
		p.reals[i] = rs
		return
	}
	p.reals = slices.Insert(p.reals, i, rs)
}

func (p *natService) remove(a netip.AddrPort) {
	if i, found := p.find(a); found {
		p.reals = slices.Delete(p.reals, i, i+1)
	}
}

func (p *natService) find(a netip.AddrPort) (int, bool) {
	return slices.BinarySearchFunc(p.reals, a, func(rs lb.RealServer, a netip.AddrPort) int { return rs.Addr.Compare(a) })
}

func (p natService) clone() natService {
	p.reals = slices.Clone(p.reals)
	return p
}
