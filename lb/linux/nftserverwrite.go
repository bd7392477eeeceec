package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// serverChange is a part of a change that one transaction carries out.
type serverChange struct {
	next        map[lb.Frontend]*serverElements // nil removes
	remove, add [numServerMaps][]mapElement
	size        int
}

// change returns the parts of a change. Each virtual server is in one part.
func (s *nftServers) change(next map[lb.Frontend]*natService) (out []*serverChange) {
	part := &serverChange{next: map[lb.Frontend]*serverElements{}}
	for _, f := range slices.SortedFunc(maps.Keys(next), lb.Frontend.Compare) {
		if part.size >= nftBatchBytes {
			out, part = append(out, part), &serverChange{next: map[lb.Frontend]*serverElements{}}
		}
		part.put(s, f, next[f])
	}
	if part.size > 0 {
		out = append(out, part)
	}
	return out
}

// put adds the change of one virtual server. Elements that stay the same are not part of it.
func (c *serverChange) put(s *nftServers, f lb.Frontend, p *natService) {
	have := s.have[f]
	var want *serverElements
	if p != nil {
		var slots []slot
		if have != nil {
			slots = have.slots
		}
		want = s.wanted(p, slots)
	}
	key := s.names.frontendKey(f, s.marks)
	for _, m := range frontendMaps {
		from, to := have.elements(m, key), want.elements(m, key)
		gone, come := without(from, to), without(to, from)
		c.remove[m], c.add[m] = append(c.remove[m], gone...), append(c.add[m], come...)
		c.size += nftElementBytes * (len(gone) + len(come))
	}
	c.next[f] = want
}

// without returns the elements that others lacks.
func without(all, others []mapElement) (out []mapElement) {
	if len(all) == 0 || len(others) == 0 {
		return all
	}
	there := make(map[mapElement]struct{}, len(others))
	for _, el := range others {
		there[el] = struct{}{}
	}
	for _, el := range all {
		if _, ok := there[el]; !ok {
			out = append(out, el)
		}
	}
	return out
}

// write changes virtual servers, nil removes one. Each of them changes in one transaction, over
// which run decides.
func (s *nftServers) write(ctx context.Context, next map[lb.Frontend]*natService, run func(change func() error) error) error {
	parts, unused := s.change(next), s.unusedKinds()
	for _, part := range parts {
		for _, want := range part.next {
			if want != nil {
				delete(unused, want.kind)
			}
		}
	}
	for _, part := range parts {
		added := map[serverKind]bool{}
		for _, want := range part.next {
			if want != nil && want.kind.slots != 0 && !s.kinds[want.kind] {
				added[want.kind] = true
			}
		}
		s.stable = false
		err := run(func() error {
			if err := s.tables.create(ctx, s.names.family); err != nil {
				return err
			}
			return s.transact(ctx, func(e *encoder) { s.putChange(e, part, added, unused) })
		})
		if err != nil {
			return fmt.Errorf("change maps of table %s %s: %w", nftTableFamily(s.names.family), s.table, err)
		}
		s.noteMaps()
		before := len(s.kinds)
		for k := range added {
			s.kinds[k] = true
		}
		if len(unused) > 0 || len(s.kinds) > before {
			for k := range unused {
				delete(s.kinds, k)
				delete(s.numbers, k)
			}
			s.extra, unused = s.kindChains(), nil
		}
		for f, want := range part.next {
			s.remember(f, want)
		}
	}
	return nil
}

// remember records the elements of a frontend.
func (s *nftServers) remember(f lb.Frontend, want *serverElements) {
	if have := s.have[f]; have != nil && s.uses[have.kind] > 0 {
		s.uses[have.kind]--
	}
	delete(s.dead, f)
	if want == nil {
		delete(s.have, f)
		return
	}
	s.have[f] = want
	s.uses[want.kind]++
}

// unusedKinds returns the kinds without a virtual server. They go with the next change, not with
// the one that leaves them: packets that are on their way still find them.
func (s *nftServers) unusedKinds() map[serverKind]bool {
	out := map[serverKind]bool{}
	for k := range s.kinds {
		if s.uses[k] == 0 {
			out[k] = true
		}
	}
	return out
}

// noteMaps records that all maps exist.
func (s *nftServers) noteMaps() {
	for m := range numServerMaps {
		s.maps[m] = s.names.serverMapKind(m)
	}
}

func (s *nftServers) putChange(e *encoder, c *serverChange, added, unused map[serverKind]bool) {
	s.putMaps(e)
	for _, k := range sortedKinds(added) {
		if _, there := s.kinds[k]; !there {
			chain := s.names.kindChain(k, s.marks)
			s.putChain(e, chain)
			for _, rule := range chain.rules {
				s.putRule(e, chain.name, rule)
			}
		}
		s.putKind(e, unix.NFT_MSG_NEWSETELEM, k)
	}
	for _, m := range frontendMaps {
		s.putElements(e, unix.NFT_MSG_DELSETELEM, m, c.remove[m])
	}
	for _, m := range frontendMaps {
		s.putElements(e, unix.NFT_MSG_NEWSETELEM, m, c.add[m])
	}
	for _, k := range sortedKinds(unused) {
		if s.kinds[k] {
			s.putKind(e, unix.NFT_MSG_DELSETELEM, k)
		}
		name := s.names.chain(k.chain())
		for _, typ := range []uint16{unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELCHAIN} {
			s.message(e, typ, 0)
			e.str(unix.NFTA_RULE_TABLE, s.table) // as NFTA_CHAIN_TABLE
			if typ == unix.NFT_MSG_DELRULE {
				e.str(unix.NFTA_RULE_CHAIN, name)
			} else {
				e.str(unix.NFTA_CHAIN_NAME, name)
			}
		}
	}
}

func sortedKinds(kinds map[serverKind]bool) []serverKind {
	return slices.SortedFunc(maps.Keys(kinds), func(a, b serverKind) int { return strings.Compare(a.chain(), b.chain()) })
}

// putMaps creates the missing maps.
func (s *nftServers) putMaps(e *encoder) {
	if s.ready() {
		return
	}
	for m := range numServerMaps {
		s.putMap(e, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, m)
		s.names.serverMapKind(m).put(e, nil)
	}
}

// putElements adds or deletes elements of a map.
func (r *nftRules) putElements(e *encoder, cmd uint16, m serverMap, all []mapElement) {
	kind := r.names.serverMapKind(m)
	for len(all) > 0 {
		flags := uint16(0)
		if cmd == unix.NFT_MSG_NEWSETELEM {
			flags = unix.NLM_F_CREATE
		}
		r.putMap(e, cmd, flags, m)
		at, n := e.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS), 0
		for n < len(all) && len(e.b)-at < nftMessageBytes {
			all[n].put(e, cmd, kind)
			n++
		}
		e.end(at)
		all = all[n:]
	}
}

func (el mapElement) put(e *encoder, cmd uint16, kind nftKind) {
	one := e.nest(nftListElem)
	defer e.end(one)
	if el.key == "" {
		e.be32(unix.NFTA_SET_ELEM_FLAGS, nftElemCatchAll)
		return
	}
	putNFTData(e, unix.NFTA_SET_ELEM_KEY, []byte(el.key))
	if cmd != unix.NFT_MSG_NEWSETELEM {
		return
	}
	if kind.data == nftVerdict {
		putAttrs(e, unix.NFTA_SET_ELEM_DATA, []attr{resultAttr(unix.NFT_GOTO, el.data)})
	} else if kind.isMap() {
		putNFTData(e, unix.NFTA_SET_ELEM_DATA, []byte(el.data))
	}
	if el.comment != "" {
		e.bytes(unix.NFTA_SET_ELEM_USERDATA, nftComment(el.comment))
	}
}

// putKind adds or deletes the element of a kind.
func (s *nftServers) putKind(e *encoder, cmd uint16, k serverKind) {
	s.putElements(e, cmd, mapKinds, []mapElement{{key: string(native32(s.number(k))), data: s.names.chain(k.chain())}})
}

// beforeChains and afterRules are the parts of the maps in a transaction that writes all rules:
// mapKinds releases the old chains, and has the new ones at the end. Maps of another kind
// than weir's are replaced.
func (s *nftServers) beforeChains(e *encoder) {
	if _, there := s.maps[mapKinds]; there {
		s.putMap(e, unix.NFT_MSG_DELSETELEM, 0, mapKinds)
	}
	for m, kind := range s.maps {
		if kind != s.names.serverMapKind(m) {
			s.putMap(e, unix.NFT_MSG_DELSET, 0, m)
		}
	}
}

func (s *nftServers) afterRules(e *encoder) {
	for _, k := range sortedKinds(s.kinds) {
		s.putKind(e, unix.NFT_MSG_NEWSETELEM, k)
	}
}

// wrote records a transaction that has written all rules.
func (s *nftServers) wrote() {
	s.noteMaps()
	s.foreign[mapKinds] = nil
	for k := range s.kinds {
		s.kinds[k] = true
	}
}

// sweep removes elements without a virtual server.
func (s *nftServers) sweep(ctx context.Context, run func(change func() error) error) error {
	foreign := s.foreign
	if slices.ContainsFunc(foreign[:], func(all []mapElement) bool { return len(all) > 0 }) {
		err := run(func() error {
			return s.transact(ctx, func(e *encoder) {
				for m := range numServerMaps {
					s.putElements(e, unix.NFT_MSG_DELSETELEM, m, foreign[m])
				}
			})
		})
		if err != nil {
			return fmt.Errorf("remove foreign elements of maps: %w", err)
		}
		s.foreign = [numServerMaps][]mapElement{}
	}
	dead := map[lb.Frontend]*natService{}
	for f := range s.dead {
		dead[f] = nil
	}
	return s.write(ctx, dead, run)
}

// removeMaps removes all maps. No rule may use them any more.
func (s *nftServers) removeMaps(ctx context.Context, run func(change func() error) error) error {
	maps, err := s.findMaps(ctx)
	if err != nil || len(maps) == 0 {
		return err
	}
	err = run(func() error {
		return s.transact(ctx, func(e *encoder) {
			for m := range maps {
				s.putMap(e, unix.NFT_MSG_DELSET, 0, m)
			}
		})
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove maps: %w", err)
	}
	return nil
}
