package lb_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"weir/lb"
)

// others changes the kernel by other programs than weir, and Fake alike.
func (h *history) others() {
	if !h.byRules() && h.Chance(4) {
		h.program("", "ipvsadm", "-C")
		clear(h.unordered)
		for id := range h.fake.Objects() {
			if vs, ok := id.(lb.VirtualServer); ok {
				h.fake.Remove(vs)
			}
		}
		return
	}
	for range 1 + h.IntN(2) {
		switch o := h.universe[h.IntN(len(h.universe))].(type) {
		case lb.VirtualServer:
			h.otherServer(o)
		case lb.RealServer:
			h.otherBackend(o)
		case lb.Member:
			h.otherMember(o)
		case lb.Address:
			h.otherAddress(o)
		case lb.PoolRoute:
			h.otherRoute(o)
		case lb.Device:
			if h.holds(o) {
				h.program("", "ip", "link", "del", o.Name)
				h.fake.Remove(o)
			}
		case lb.Rules:
			h.flush(o)
		}
	}
}

func (h *history) holds(id lb.Object) bool {
	_, ok := h.fake.Objects()[id]
	return ok
}

// program runs a program that must succeed.
func (h *history) program(stdin, name string, args ...string) {
	h.Helper()
	h.log = append(h.log, fmt.Sprintf("%s %s %q", name, strings.Join(args, " "), stdin))
	h.foreign = h.foreign || name == "nft"
	h.must(stdin, name, args...)
}

// service returns the arguments by which ipvsadm(8) knows a frontend.
func service(f lb.Frontend) []string {
	to := net.JoinHostPort(f.Addr.String(), strconv.Itoa(int(f.Port)))
	return []string{map[lb.Protocol]string{lb.TCP: "-t", lb.UDP: "-u", lb.SCTP: "--sctp-service"}[f.Proto], to}
}

func (h *history) otherServer(vs lb.VirtualServer) {
	if vs.Frontend.Mark != 0 || h.byRules() {
		return // its number in the kernel is lb/linux's
	}
	vs.Scheduler, vs.Affinity = lb.Scheduler{Name: "wlc"}, 0
	verb := "-A"
	if h.holds(vs.ID()) {
		if verb = "-E"; h.Chance(50) {
			h.program("", "ipvsadm", append([]string{"-D"}, service(vs.Frontend)...)...)
			h.fake.Remove(vs.ID())
			delete(h.unordered, vs.Frontend)
			return
		}
	}
	h.program("", "ipvsadm", append(append([]string{verb}, service(vs.Frontend)...), "-s", "wlc")...)
	h.fake.Put(vs)
	h.unordered[vs.Frontend] = true
}

func (h *history) otherBackend(rs lb.RealServer) {
	if rs.Frontend.Mark != 0 || h.byRules() || !h.holds(lb.VirtualServer{Frontend: rs.Frontend}) {
		return
	}
	verb := "-a"
	h.unordered[rs.Frontend] = true
	to := []string{"-r", rs.Addr.String()}
	if h.holds(rs.ID()) {
		if verb = "-e"; h.Chance(50) {
			h.program("", "ipvsadm", append(append([]string{"-d"}, service(rs.Frontend)...), to...)...)
			h.fake.Remove(rs.ID())
			return
		}
	}
	rs.Weight, rs.Upper, rs.Lower, rs.Forward = uint32(h.IntN(4)), 0, 0, lb.Masquerading
	h.program("", "ipvsadm", append(append(append([]string{verb}, service(rs.Frontend)...), to...), "-m", "-w", strconv.Itoa(int(rs.Weight)))...)
	h.fake.Put(rs)
}

func (h *history) otherMember(m lb.Member) {
	if !h.holds(lb.IPSet{Set: m.Set, Family: m.Family()}) {
		return
	}
	change := h.ofSet
	if h.inNFTables() {
		if h.overlaps(m) {
			return // nf_tables has one element for both
		}
		change = h.ofNFTSet
	}
	if h.holds(m.ID()) {
		change("del", m)
		h.fake.Remove(m.ID())
	} else if m.Mark == 0 { // its number in the kernel is lb/linux's
		change("add", m)
		h.fake.Put(m)
	}
}

// ofSet adds a member to an ipset, or deletes it.
func (h *history) ofSet(verb string, m lb.Member) {
	h.Helper()
	h.program("", "ipset", verb, m.Set.Name("KUBE", m.Family()), strings.Join(entry(m, ":"), ","))
}

// ofNFTSet does so in nf_tables.
func (h *history) ofNFTSet(verb string, m lb.Member) {
	h.Helper()
	verb = map[string]string{"add": "add", "del": "delete"}[verb]
	h.program("", "nft", fmt.Sprintf("%s element %s weir %s { %s }", verb, nftFamily(m.Family()), m.Set.Name("KUBE", m.Family()), strings.Join(entry(m, " . "), " . ")))
}

func nftFamily(f lb.Family) string {
	if f == lb.IPv6 {
		return "ip6"
	}
	return "ip"
}

// overlaps reports whether another member of the same frontend shares addresses with the range of m.
func (h *history) overlaps(m lb.Member) bool {
	for _, o := range h.fake.Objects() {
		other, ok := o.(lb.Member)
		if ok && other.ID() != m.ID() && other.Set == m.Set && other.Addr == m.Addr && other.Port == m.Port && other.Proto == m.Proto && other.Net.Overlaps(m.Net) {
			return true
		}
	}
	return false
}

// entry returns the parts of a member as ipset(8) and nft(8) know them, with the protocol and the port as one.
func entry(m lb.Member, between string) (parts []string) {
	switch typ := m.Set.Type(); {
	case typ == "bitmap:port":
		return []string{strconv.Itoa(int(m.Port))}
	case m.Addr.IsValid():
		parts = append(parts, m.Addr.String())
		if typ != "hash:ip" {
			parts = append(parts, fmt.Sprintf("%s%s%d", m.Proto, between, m.Port))
		}
	}
	if m.Net.IsSingleIP() {
		parts = append(parts, m.Net.Addr().String())
	} else if m.Net.IsValid() {
		parts = append(parts, m.Net.String())
	}
	return parts
}

func (h *history) otherAddress(a lb.Address) {
	if !h.holds(lb.Device{Name: "kube-ipvs0"}) {
		return
	}
	at := fmt.Sprintf("%s/%d", a.Addr, a.Addr.BitLen())
	if h.holds(a) {
		h.program("", "ip", "addr", "del", at, "dev", "kube-ipvs0")
		h.fake.Remove(a)
		return
	}
	h.program("", "ip", "addr", "add", at, "dev", "kube-ipvs0")
	h.fake.Put(a)
}

func (h *history) otherRoute(r lb.PoolRoute) {
	route := []string{"local", r.Prefix.String(), "dev", "lo", "table", "local", "proto", strconv.Itoa(87)}
	family := "-4"
	if r.Prefix.Addr().Is6() {
		family = "-6"
	}
	if h.holds(r.ID()) {
		h.program("", "ip", append([]string{family, "route", "del"}, route...)...)
		h.fake.Remove(r.ID())
		return
	}
	h.program("", "ip", append([]string{family, "route", "add"}, route...)...)
	h.fake.Put(r.ID())
}

// flush takes all rules of a family away.
func (h *history) flush(r lb.Rules) {
	if h.inNFTables() {
		h.program("", "nft", "flush table "+nftFamily(r.Family)+" weir")
		h.fake.Remove(r)
		return
	}
	name := "iptables-"
	if r.Family == lb.IPv6 {
		name = "ip6tables-"
	}
	h.program("*mangle\nCOMMIT\n*nat\nCOMMIT\n*filter\nCOMMIT\n", name+string(h.k.Backend(r.Family))+"-restore")
	h.fake.Remove(r)
}

// loseTable does to Fake what a kernel with nf_tables does with the rules of a family: it removes their sets. The next
// table has no owner either.
func (h *history) loseTable(f lb.Family) {
	h.Helper()
	for id := range h.fake.Objects() {
		if set, ok := id.(lb.IPSet); ok && set.Family == f {
			h.fake.Remove(set)
		}
	}
	h.program("", "nft", "add table "+nftFamily(f)+" weir")
}
