package linux

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftServers are the virtual servers of one family as elements of maps. It remembers the
// elements of the kernel, so that a change is one transaction of the elements that change.
type nftServers struct {
	*nftRules
	marks marking
	have  map[lb.Frontend]*serverElements
	// maps are those that the kernel had at the last read or write, kinds the chains of kinds with
	// whether mapKinds has them.
	maps  map[serverMap]nftKind
	kinds map[serverKind]bool
	uses  map[serverKind]int // virtual servers of each kind
	// numbers are those of kinds with affinity.
	numbers map[serverKind]uint32
	// dead are frontends with elements, but without a virtual server.
	dead map[lb.Frontend]bool
	// foreign are elements of no frontend.
	foreign [numServerMaps][]mapElement
	stable  bool // no change since the last read
	seed    maphash.Seed
}

// serverElements are the elements of one frontend.
type serverElements struct {
	there  bool   // in mapServers
	number uint32 // of the kind
	record string
	slots  []slot            // sorted
	sticky map[uint32]uint32 // numbers from stickySlots, by slot
	kind   serverKind        // counted in uses
}

// mapElement is an element with its contents as the kernel has them.
type mapElement struct{ key, data, comment string }

func newNFTServers(r *nftRules, marks marking) *nftServers {
	r.servers = emptyServers(r, marks, maphash.MakeSeed())
	return r.servers
}

func emptyServers(r *nftRules, marks marking, seed maphash.Seed) *nftServers {
	return &nftServers{nftRules: r, marks: marks, seed: seed, maps: map[serverMap]nftKind{}, kinds: map[serverKind]bool{}, numbers: map[serverKind]uint32{},
		have: map[lb.Frontend]*serverElements{}, uses: map[serverKind]int{}, dead: map[lb.Frontend]bool{}}
}

// read reads all maps, and returns the virtual servers. damaged are those with other elements
// than weir writes. A failed read changes nothing of what s remembers: a kind without a virtual server is
// removed with the next change.
func (s *nftServers) read(ctx context.Context) (services map[lb.Frontend]natService, damaged map[lb.Frontend]bool, err error) {
	next := emptyServers(s.nftRules, s.marks, s.seed)
	next.stable = s.stable
	if err := next.readElements(ctx); err != nil {
		return nil, nil, err
	}
	services, damaged = next.services()
	*s = *next
	s.extra = s.kindChains()
	return services, damaged, nil
}

// readElements reads all maps.
func (s *nftServers) readElements(ctx context.Context) (err error) {
	if s.maps, err = s.findMaps(ctx); err != nil {
		return err
	}
	if err := s.readKinds(ctx); err != nil {
		return err
	}
	for _, m := range frontendMaps {
		all, err := s.list(ctx, m)
		if err != nil {
			return err
		}
		for _, el := range all {
			s.sort(m, el)
		}
	}
	s.stable = true
	return nil
}

// services returns the virtual servers of the elements, and counts their kinds. A kind that another
// program has removed is wanted all the same.
func (s *nftServers) services() (services map[lb.Frontend]natService, damaged map[lb.Frontend]bool) {
	services, damaged = map[lb.Frontend]natService{}, map[lb.Frontend]bool{}
	for f, have := range s.have {
		sortSlots(have.slots)
		p, ok := have.service(f)
		if !ok {
			s.dead[f] = true
			continue
		}
		services[f] = p
		want := s.wanted(&p, have.slots)
		if !have.equal(want) {
			damaged[f] = true
		}
		have.kind = want.kind
		s.uses[have.kind]++
		if have.kind.slots != 0 && !s.kinds[have.kind] {
			s.kinds[have.kind] = false
		}
	}
	return services, damaged
}

// findMaps returns the maps that the kernel has.
func (s *nftServers) findMaps(ctx context.Context) (map[serverMap]nftKind, error) {
	names, out := map[string]serverMap{}, map[serverMap]nftKind{}
	for m := range numServerMaps {
		names[s.names.serverMap(m)] = m
	}
	put := func(e *encoder) {
		s.message(e, unix.NFT_MSG_GETSET, unix.NLM_F_DUMP)
		e.str(unix.NFTA_SET_TABLE, s.table)
	}
	err := s.conn.query(ctx, put, func() { clear(out) }, func(m message) {
		if len(m.body) < 4 || cString(attribute(m.body[4:], unix.NFTA_SET_TABLE)) != s.table {
			return
		}
		which, ours := names[cString(attribute(m.body[4:], unix.NFTA_SET_NAME))]
		if kind, ok := parseNFTSet(m.body); ok && ours {
			out[which] = kind
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return map[serverMap]nftKind{}, nil
	}
	return out, err
}

// ready reports whether all maps exist as weir makes them.
func (s *nftServers) ready() bool {
	for m := range numServerMaps {
		if s.maps[m] != s.names.serverMapKind(m) {
			return false
		}
	}
	return true
}

// readKinds finds the chains of kinds, and their elements of mapKinds.
func (s *nftServers) readKinds(ctx context.Context) error {
	chains, err := s.chains(ctx)
	if err != nil {
		return err
	}
	for name := range chains {
		if k, ok := parseKindChain(strings.TrimPrefix(name, s.names.chain(""))); ok {
			s.kinds[k] = false
		}
	}
	all, err := s.list(ctx, mapKinds)
	if err != nil {
		return err
	}
	for _, el := range all {
		k, ok := parseKindChain(strings.TrimPrefix(el.data, s.names.chain("")))
		number := getU32([]byte(el.key))
		if ok && k.affinity != 0 && s.numbers[k] == 0 && number&stickyKind != 0 && number&markedKind != 0 == k.marked {
			s.numbers[k] = number
		}
		if !ok || number != s.number(k) {
			s.foreign[mapKinds] = append(s.foreign[mapKinds], el)
			continue
		}
		s.kinds[k] = true
	}
	return nil
}

// number returns the number of a kind.
func (s *nftServers) number(k serverKind) uint32 {
	if k.affinity == 0 || k.slots == 0 {
		return k.number()
	}
	if n, known := s.numbers[k]; known {
		return n
	}
	used := map[uint32]bool{}
	for _, n := range s.numbers {
		used[n&^markedKind] = true
	}
	next := serverKind{slots: stickyKind, marked: k.marked}
	for used[next.slots] {
		next.slots++
	}
	s.numbers[k] = next.number()
	return next.number()
}

// kindChains returns the chains of all kinds, sorted.
func (s *nftServers) kindChains() (out []nftChain) {
	for k := range s.kinds {
		out = append(out, s.names.kindChain(k, s.marks))
	}
	slices.SortFunc(out, func(a, b nftChain) int { return strings.Compare(a.name, b.name) })
	return out
}

// list returns the elements of a map; none if it is missing or of another kind.
func (s *nftServers) list(ctx context.Context, m serverMap) (all []mapElement, err error) {
	if s.maps[m] != s.names.serverMapKind(m) {
		return nil, nil
	}
	// As nftSets.list: until two lists are equal.
	before := uint64(0)
	for i := range maxLists {
		sum := uint64(0)
		all, err = s.elements(ctx, m)
		for _, el := range all {
			sum += maphash.Comparable(s.seed, el)
		}
		if err != nil || s.stable || i > 0 && sum == before {
			break
		}
		before = sum
	}
	if err != nil {
		return nil, fmt.Errorf("list map %s: %w", s.names.serverMap(m), err)
	}
	return all, nil
}

// elements reads the elements of a map.
func (r *nftRules) elements(ctx context.Context, m serverMap) (all []mapElement, err error) {
	put := func(e *encoder) { r.putMap(e, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, m) }
	err = r.conn.query(ctx, put, func() { all = all[:0] }, func(m message) {
		if len(m.body) < 4 {
			return
		}
		for _, one := range attributes(attribute(m.body[4:], unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			all = append(all, parseMapElement(one))
		}
	})
	return all, err
}

func parseMapElement(b []byte) (el mapElement) {
	for typ, v := range attributes(b) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			el.key = string(attribute(v, unix.NFTA_DATA_VALUE))
		case unix.NFTA_SET_ELEM_DATA:
			if result := attribute(v, unix.NFTA_DATA_VERDICT); result != nil {
				el.data = cString(attribute(result, unix.NFTA_VERDICT_CHAIN))
				continue
			}
			el.data = string(attribute(v, unix.NFTA_DATA_VALUE))
		case unix.NFTA_SET_ELEM_USERDATA:
			if len(v) > 2 && v[0] == 0 {
				el.comment = cString(v[2:])
			}
		}
	}
	return el
}

// sort puts an element to its frontend.
func (s *nftServers) sort(m serverMap, el mapElement) {
	f, rest, ok := s.names.parseFrontendKey(el.key, s.marks)
	ok = ok && len(rest) == map[serverMap]int{mapBackends: 4, mapSticky: 4}[m]
	have := s.have[f]
	if have == nil {
		have = &serverElements{}
	}
	switch {
	case !ok:
	case m == mapServers:
		have.there, have.number, have.record = true, getU32([]byte(el.data)), el.comment
	case m == mapBackends:
		var at slot
		at.number, at.record = getU32([]byte(rest)), el.comment
		if at.addr, ok = parseBackendKey(el.data); ok {
			have.slots = append(have.slots, at)
		}
	default:
		if have.sticky == nil {
			have.sticky = map[uint32]uint32{}
		}
		have.sticky[getU32([]byte(rest))] = getU32([]byte(el.data))
	}
	if !ok {
		s.foreign[m] = append(s.foreign[m], el)
		return
	}
	s.have[f] = have
}

// service returns the virtual server of elements; false without one.
func (h *serverElements) service(f lb.Frontend) (p natService, ok bool) {
	if !h.there {
		return p, false
	}
	if p.server, ok = parseRecordOfServer(h.record, f); !ok {
		return p, false
	}
	for _, at := range h.slots {
		rs := lb.RealServer{Frontend: f, Addr: at.addr}
		if parseBackendRecord(at.record, &rs) {
			p.add(rs)
		}
	}
	return p, true
}

// wanted returns the elements of a virtual server. Slots of have keep their backend as far as
// possible.
func (s *nftServers) wanted(p *natService, have []slot) *serverElements {
	out := &serverElements{there: true, record: serverRecord(p.server), slots: arrange(p, have)}
	out.kind = serverKind{affinity: p.server.Affinity, marked: p.server.Frontend.Mark != 0}
	for _, at := range out.slots {
		if at.number < stickySlots {
			out.kind.slots++
		}
	}
	out.number = s.number(out.kind)
	for i, number := range stickyNumbers(out.slots) {
		if out.sticky == nil {
			out.sticky = map[uint32]uint32{}
		}
		out.sticky[uint32(i)] = number
	}
	return out
}

func (h *serverElements) equal(o *serverElements) bool {
	return h.there == o.there && h.number == o.number && h.record == o.record && slices.Equal(h.slots, o.slots) && maps.Equal(h.sticky, o.sticky)
}

// elements returns the elements of one map. A missing virtual server has none.
func (h *serverElements) elements(m serverMap, key string) (out []mapElement) {
	if h == nil {
		return nil
	}
	switch m {
	case mapServers:
		if h.there {
			out = []mapElement{{key, string(native32(h.number)), h.record}}
		}
	case mapBackends:
		out = make([]mapElement, len(h.slots))
		for i, at := range h.slots {
			out[i] = mapElement{key + string(native32(at.number)), backendKey(at.addr), at.record}
		}
	case mapSticky:
		for _, at := range slices.Sorted(maps.Keys(h.sticky)) {
			out = append(out, mapElement{key + string(native32(at)), string(native32(h.sticky[at])), ""})
		}
	}
	return out
}

// clean reports whether the kernel has no element without a virtual server, and all maps and
// elements of kinds.
func (s *nftServers) clean() bool {
	for _, all := range s.foreign {
		if len(all) > 0 {
			return false
		}
	}
	for _, there := range s.kinds {
		if !there {
			return false
		}
	}
	return s.ready() && len(s.dead) == 0
}

// putMap begins a message about a map or its elements.
func (r *nftRules) putMap(e *encoder, cmd, flags uint16, m serverMap) {
	putNFTSet(e, cmd, flags, nftFamily(r.names.family), r.table, r.names.serverMap(m))
}
