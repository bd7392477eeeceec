package linux

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// Virtual servers as elements of maps in weir's table. The rules are the same for any number of
// virtual servers with the same number of slots, so a change of a backend is a few elements:
//
//	SERVICES --> VIRTUAL-SERVERS: SERVERS has the kind of the packet's frontend, and KINDS the
//	                              chain of the kind
//	         --> CHOOSE-3: a random slot from 0 to 2, to which BACKENDS has the backend --> DNAT
//	         --> CHOOSE-3-60: the backend that the client had within 60 s, else as above
//
// Each backend that takes connections has as many slots of its frontend as its share. Elements
// from parkedSlots are records of the others: no packet selects them. With affinity, backends also
// have an element from stickySlots, which they keep. Clients remember that, and lose it with the
// backend.
//
// The key of a virtual server by mark has the mark instead of the address, and port 0.

// serverMap is one of the maps of a family.
type serverMap uint8

const (
	// mapServers has the number of a kind for each virtual server, and its record as a comment.
	mapServers serverMap = iota
	// mapBackends has a backend for each slot. The comment has attributes other than the defaults.
	mapBackends
	// mapSticky has the number from stickySlots for each slot.
	mapSticky
	// mapKinds has the chain of each kind, by its number.
	mapKinds
	// mapClients has the last number from stickySlots of clients, until a timeout. Rules write it.
	mapClients
	numServerMaps
)

// frontendMaps are those with elements of single frontends.
var frontendMaps = [...]serverMap{mapServers, mapBackends, mapSticky}

func (n ruleNames) serverMap(m serverMap) string {
	name := [...]string{"SERVERS", "BACKENDS", "STICKY-SLOTS", "SERVER-KINDS", "STICKY-CLIENTS"}[m]
	if n.family == lb.IPv6 {
		name = "6-" + name
	}
	return n.chain(name)
}

// maxClients limits the clients with affinity of a family. A client beyond has a random backend.
const maxClients = 1 << 18

// serverMapKind returns the properties of a map.
func (n ruleNames) serverMapKind(m serverMap) (k nftKind) {
	addr := nftIPv4
	if n.family == lb.IPv6 {
		addr = nftIPv6
	}
	frontend, backend := []nftType{addr, nftProto, nftService}, []nftType{addr, nftService}
	number := []nftType{nftMark}
	of := func(key, data []nftType, flags uint32) {
		k.key, k.keyLen = concatenated(key)
		k.data, k.dataLen = concatenated(data)
		k.flags = flags | unix.NFT_SET_MAP
	}
	switch m {
	case mapServers:
		of(frontend, number, 0)
	case mapBackends:
		of(append(frontend, nftMark), backend, 0)
	case mapSticky:
		of(append(frontend, nftMark), number, 0)
	case mapKinds:
		of(number, []nftType{nftVerdict}, 0)
	case mapClients:
		of(append([]nftType{nftMark, addr}, frontend...), number, unix.NFT_SET_EVAL|unix.NFT_SET_TIMEOUT)
		k.maxElem = maxClients
	}
	return k
}

// serverKind is a kind of virtual server: all that its rules depend on.
type serverKind struct {
	slots, affinity uint32
	marked          bool
}

// choosePrefix begins the names of the chains of kinds.
const choosePrefix = "CHOOSE-"

// chain returns the name of the chain of a kind, without the prefix: CHOOSE-3, CHOOSE-MARK-3-60.
func (k serverKind) chain() string {
	name := choosePrefix
	if k.marked {
		name += "MARK-"
	}
	name += strconv.FormatUint(uint64(k.slots), 10)
	if k.affinity != 0 {
		name += "-" + strconv.FormatUint(uint64(k.affinity), 10)
	}
	return name
}

// parseKindChain is the inverse of chain.
func parseKindChain(name string) (k serverKind, ok bool) {
	rest, ok := strings.CutPrefix(name, choosePrefix)
	if !ok {
		return k, false
	}
	rest, k.marked = strings.CutPrefix(rest, "MARK-")
	slots, affinity, _ := strings.Cut(rest, "-")
	n, _ := strconv.ParseUint(slots, 10, 31)
	t, _ := strconv.ParseUint(affinity, 10, 32)
	k.slots, k.affinity = uint32(n), uint32(t)
	return k, k.slots != 0 && k.chain() == name
}

// The bits of a kind's number beside that of its slots. Those with affinity have consecutive
// numbers, in the order of their first use.
const (
	markedKind = 1 << 30
	stickyKind = 1 << 29
)

// number returns the number of a kind without affinity.
func (k serverKind) number() uint32 {
	if k.marked {
		return k.slots | markedKind
	}
	return k.slots
}

// The first numbers of slots that numgen never returns.
const (
	stickySlots = 1 << 30
	parkedSlots = 1 << 31
)

// frontendKey returns the key of a frontend.
func (n ruleNames) frontendKey(f lb.Frontend, marks marking) string {
	_, _, size := n.ipHeader()
	out := make([]byte, size+8)
	if f.Mark != 0 {
		copy(out, native32(marks.firewall(f.Mark)))
	} else {
		copy(out, f.Addr.AsSlice())
	}
	out[size] = byte(f.Proto)
	binary.BigEndian.PutUint16(out[size+4:], f.Port)
	return string(out)
}

// parseFrontendKey is the inverse of frontendKey. b has the key at its begin.
func (n ruleNames) parseFrontendKey(b string, marks marking) (f lb.Frontend, rest string, ok bool) {
	_, _, size := n.ipHeader()
	if len(b) < size+8 {
		return f, "", false
	}
	f.Addr, f.Proto, f.Port = keyAddr([]byte(b[:size])), lb.Protocol(b[size]), getBE16([]byte(b[size+4:]))
	if f.Port == 0 {
		f = lb.MarkFrontend(n.family, marks.number(getU32([]byte(b))))
		ok = f.Mark != 0
	} else {
		ok = true
	}
	return f, b[size+8:], ok && n.frontendKey(f, marks) == b[:size+8]
}

// backendKey returns an address and port as a value of mapBackends.
func backendKey(a netip.AddrPort) string {
	return string(append(a.Addr().AsSlice(), byte(a.Port()>>8), byte(a.Port()), 0, 0))
}

func parseBackendKey(b string) (a netip.AddrPort, ok bool) {
	if len(b) < 8 {
		return a, false
	}
	addr := keyAddr([]byte(b[:len(b)-4]))
	a = netip.AddrPortFrom(addr, getBE16([]byte(b[len(b)-4:])))
	return a, addr.IsValid() && backendKey(a) == b
}

// serverRecord returns the attributes of a virtual server: "rr 0x0 60 0".
func serverRecord(vs lb.VirtualServer) string {
	return fmt.Sprintf("%s %#x %d %d", vs.Scheduler.Name, uint32(vs.Scheduler.Flags), vs.Affinity, vs.Port)
}

func parseRecordOfServer(s string, f lb.Frontend) (vs lb.VirtualServer, ok bool) {
	words := strings.Fields(s)
	if len(words) != 4 {
		return vs, false
	}
	flags, err1 := strconv.ParseUint(words[1], 0, 32)
	affinity, err2 := strconv.ParseUint(words[2], 10, 32)
	port, err3 := strconv.ParseUint(words[3], 10, 16)
	vs = lb.VirtualServer{Frontend: f, Affinity: uint32(affinity), Port: uint16(port),
		Scheduler: lb.Scheduler{Name: words[0], Flags: lb.SchedulerFlag(flags)}}
	return vs, err1 == nil && err2 == nil && err3 == nil && serverRecord(vs) == s
}

// backendRecord returns the attributes of a real server, "" for the usual ones.
func backendRecord(rs lb.RealServer) string {
	if rs.Weight == 1 && rs.Upper == 0 && rs.Lower == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d %d", rs.Weight, rs.Upper, rs.Lower)
}

func parseBackendRecord(s string, rs *lb.RealServer) bool {
	if rs.Weight = 1; s == "" {
		return true
	}
	words := strings.Fields(s)
	if len(words) != 3 {
		return false
	}
	for i, v := range []*uint32{&rs.Weight, &rs.Upper, &rs.Lower} {
		n, err := strconv.ParseUint(words[i], 10, 32)
		if *v = uint32(n); err != nil {
			return false
		}
	}
	return backendRecord(*rs) == s
}
