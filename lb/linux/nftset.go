package linux

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// nftSets are the sets of one prefix in a table of nf_tables, which has the same name in both
// families. The sets have the names of the ipsets (lb.Set.Name), and each set type of ipset has
// the type of nf_tables that matches the same packets:
//
//	hash:ip          set  ipv4_addr
//	hash:net         set  ipv4_addr, interval
//	hash:ip,port     set  ipv4_addr . inet_proto . inet_service
//	hash:ip,port,ip  set  ipv4_addr . inet_proto . inet_service . ipv4_addr
//	hash:ip,port,net set  ipv4_addr . inet_proto . inet_service . ipv4_addr, interval
//	bitmap:port      set  inet_service
//	SetInternal      map  ipv4_addr . inet_proto . inet_service : mark
//
// Sets with other names are foreign: they are never read or written.
type nftSets struct {
	conn          *conn
	tables        *nftTables
	table, prefix string
	marks         marking
	known         *nftKnown
}

// nftKnown is the known part of the kernel, which a reader shares. It is locked while a set is
// read or changed: a change would interrupt the list, which then begins again.
type nftKnown struct {
	mu     sync.Mutex
	ranges map[lb.IPSet]*nftRanges
	// stable are the sets without a change since two equal lists (list).
	stable map[lb.IPSet]bool
	seed   maphash.Seed
}

func newNFTSets(tables *nftTables, prefix string, marks marking) *nftSets {
	return &nftSets{conn: tables.conn, tables: tables, table: tables.name, prefix: prefix, marks: marks,
		known: &nftKnown{ranges: map[lb.IPSet]*nftRanges{}, stable: map[lb.IPSet]bool{}, seed: maphash.MakeSeed()}}
}

// reader returns the same sets, observed over another conn while this one changes them.
func (s *nftSets) reader(conn *conn) *nftSets {
	r := *s
	r.conn = conn
	return &r
}

func (s *nftSets) name(set lb.IPSet) string { return set.Set.Name(s.prefix, set.Family) }

// applySets creates and deletes sets. It creates the table for the first set, and deletes it after the last one if
// it has nothing else.
func (s *nftSets) applySets(ctx context.Context, ops []lb.Op) []error {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	errs := make([]error, len(ops))
	created := map[lb.Family]bool{}
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		created[f] = createNFTSets(ctx, s, f, ops)
	}
	deleted := map[lb.Family]bool{}
	for i, op := range ops {
		set := op.Object.(lb.IPSet)
		if op.Verb == lb.Delete {
			errs[i] = s.destroy(ctx, set)
			deleted[set.Family] = true
		} else if !created[set.Family] {
			errs[i] = s.create(ctx, set)
		}
	}
	for f := range deleted {
		s.tables.removeEmpty(ctx, f)
	}
	return errs
}

// createNFTSets creates the sets of a family in one transaction, and reports whether it did. After the
// removal of a table no packet is served until all its sets are back. If one of them exists or is
// refused, nothing has changed.
func createNFTSets(ctx context.Context, s *nftSets, f lb.Family, ops []lb.Op) bool {
	var all []lb.IPSet
	for _, op := range ops {
		if set := op.Object.(lb.IPSet); op.Verb != lb.Delete && set.Family == f {
			all = append(all, set)
		}
	}
	if len(all) < 2 || s.tables.create(ctx, f) != nil {
		return false
	}
	errs, err := s.conn.transaction(ctx, func(e *encoder) {
		for _, set := range all {
			putNFTSetNew(e, set, s.table, s.name(set))
		}
	})
	if err != nil || firstError(errs) != nil {
		return false
	}
	for _, set := range all {
		delete(s.known.ranges, set)
	}
	return true
}

func (s *nftSets) create(ctx context.Context, set lb.IPSet) error {
	if err := s.tables.create(ctx, set.Family); err != nil {
		return fmt.Errorf("create table %s %s: %w", nftTableFamily(set.Family), s.table, err)
	}
	errs, err := s.conn.transaction(ctx, func(e *encoder) { putNFTSetNew(e, set, s.table, s.name(set)) })
	switch {
	case err != nil:
		return err
	case errs[0] == nil:
		delete(s.known.ranges, set)
		return nil
	case errors.Is(errs[0], unix.ENOENT): // another program has removed the table; in the trial it is a missing feature
		return errs[0]
	case !errors.Is(errs[0], unix.EEXIST):
		return missingSet(set, errs[0])
	}
	have, err := s.head(ctx, set)
	if err != nil {
		return err
	}
	if want := nftKindOf(set); have != want {
		return fmt.Errorf("set %s of table %s %s exists as %s (wanted: %s) and is of another kind: remove it, or give weir another name_prefix",
			s.name(set), nftTableFamily(set.Family), s.table, have, want)
	}
	return s.removeForeign(ctx, set)
}

// head returns the properties of a set. The error wraps unix.ENOENT if there is no such set or
// table.
func (s *nftSets) head(ctx context.Context, set lb.IPSet) (k nftKind, err error) {
	put := func(e *encoder) {
		putNFTSet(e, unix.NFT_MSG_GETSET, 0, nftFamily(set.Family), s.table, s.name(set))
	}
	found := false
	err = s.conn.query(ctx, put, func() { found = false }, func(m message) {
		if got, ok := parseNFTSet(m.body); ok {
			k, found = got, true
		}
	})
	if noNFTables(err) || err == nil && !found {
		err = unix.ENOENT
	}
	return k, err
}

// noNFTables reports whether an error of a whole request is that of a kernel without nf_tables.
func noNFTables(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func (s *nftSets) destroy(ctx context.Context, set lb.IPSet) error {
	errs, err := s.conn.transaction(ctx, func(e *encoder) {
		putNFTSet(e, unix.NFT_MSG_DELSET, 0, nftFamily(set.Family), s.table, s.name(set))
	})
	if err == nil {
		err = errs[0]
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), noNFTables(err):
		delete(s.known.ranges, set)
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("the set is used by rules: %w", err)
	}
	return err
}

// read calls each for every element of a set of weir's kind, and again before it starts over.
func (s *nftSets) read(ctx context.Context, set lb.IPSet, again func(), each func(nftElement)) error {
	elements := nftElements{kind: nftKindOf(set), each: each}
	put := func(e *encoder) {
		putNFTSet(e, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, nftFamily(set.Family), s.table, s.name(set))
	}
	err := s.conn.query(ctx, put, func() {
		elements.ends = elements.ends[:0]
		again()
	}, func(m message) { elements.parse(m.body) })
	if err == nil {
		elements.done()
	}
	return err
}

// maxLists limits the lists of one set.
const maxLists = 10

// list is read for a set without ranges. The kernel's hash table grows and shrinks in the
// background after a change. A list meanwhile repeats elements and lacks others, and has no sign
// of that (nft_rhash_walk). So after a change the set is listed until two lists are equal.
func (s *nftSets) list(ctx context.Context, set lb.IPSet, again func(), each func(nftElement)) error {
	if s.known.stable[set] {
		return s.read(ctx, set, again, each)
	}
	before, err := s.sum(ctx, set, func() {}, func(nftElement) {})
	for range maxLists {
		if err != nil {
			return err
		}
		var now uint64
		now, err = s.sum(ctx, set, again, each)
		if err == nil && now == before {
			s.known.stable[set] = true
			return nil
		}
		before = now
	}
	return err
}

// sum is read with a sum of the elements, in any order.
func (s *nftSets) sum(ctx context.Context, set lb.IPSet, again func(), each func(nftElement)) (sum uint64, err error) {
	err = s.read(ctx, set, func() {
		sum = 0
		again()
	}, func(el nftElement) {
		sum += maphash.Comparable(s.known.seed, el)
		each(el)
	})
	return sum, err
}

// observe reads the sets of a family with their members into obs. A set of another kind with
// one of weir's names is left out: its creation will return an error. So is one with elements
// that are no members: its creation removes them.
func (s *nftSets) observe(ctx context.Context, f lb.Family, obs *lb.Observation) error {
	present, err := presentNFTSets(ctx, s, f)
	if err != nil {
		return fmt.Errorf("list the sets of table %s %s: %w", nftTableFamily(f), s.table, err)
	}
	for _, id := range present {
		s.known.mu.Lock()
		err := s.observeSet(ctx, id, obs)
		s.known.mu.Unlock()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("list set %s: %w", s.name(id), err)
		}
	}
	return nil
}

// presentNFTSets returns the sets of a family that the kernel has. Nothing is known of the others: it is
// dropped under the same lock, as a change may create one of them after that.
func presentNFTSets(ctx context.Context, s *nftSets, f lb.Family) (out []lb.IPSet, err error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	heads, err := nftSetHeads(ctx, s.conn, f, s.table)
	if err != nil {
		return nil, err
	}
	for _, set := range lb.Sets() {
		id := lb.IPSet{Set: set, Family: f}
		if heads[s.name(id)] == nftKindOf(id) {
			out = append(out, id)
		} else {
			delete(s.known.ranges, id)
		}
	}
	return out, nil
}

// nftSetHeads returns the properties of all sets of a table, by name.
func nftSetHeads(ctx context.Context, c *conn, f lb.Family, table string) (map[string]nftKind, error) {
	heads := map[string]nftKind{}
	put := func(e *encoder) {
		beginNFT(e, unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, nftFamily(f))
		e.str(unix.NFTA_SET_TABLE, table)
	}
	err := c.query(ctx, put, func() { clear(heads) }, func(m message) {
		if k, ok := parseNFTSet(m.body); ok && cString(attribute(m.body[4:], unix.NFTA_SET_TABLE)) == table {
			heads[cString(attribute(m.body[4:], unix.NFTA_SET_NAME))] = k
		}
	})
	if errors.Is(err, unix.ENOENT) || noNFTables(err) {
		return nil, nil
	}
	return heads, err
}

// observeSet is observe for one set.
func (s *nftSets) observeSet(ctx context.Context, id lb.IPSet, obs *lb.Observation) error {
	if ofRanges(id.Set) {
		r, err := s.observeRanges(ctx, id)
		if err != nil {
			return err
		}
		for m := range r.members(id.Set) {
			obs.Objects.Put(m)
		}
		if len(r.foreign) == 0 {
			obs.Objects.Put(id)
		}
		return nil
	}
	n, foreign := 0, false
	again := func() {
		if n > 0 {
			obs.Objects.DropMembers(id)
		}
		n, foreign = 0, false
	}
	err := s.list(ctx, id, again, func(el nftElement) {
		m, ok := el.member(id)
		if !ok {
			foreign = true
			return
		}
		n++
		m.Mark = s.marks.number(m.Mark)
		obs.Objects.Put(m)
	})
	switch {
	case err != nil:
		again()
		return err
	case !foreign:
		obs.Objects.Put(id)
	}
	return nil
}

// removeForeign removes the elements that are no members.
func (s *nftSets) removeForeign(ctx context.Context, id lb.IPSet) error {
	var foreign []nftElement
	if ofRanges(id.Set) {
		r, err := s.readRanges(ctx, id)
		if err != nil {
			return err
		}
		foreign = r.foreign
	} else {
		err := s.list(ctx, id, func() { foreign = nil }, func(el nftElement) {
			if _, ok := el.member(id); !ok {
				foreign = append(foreign, el)
			}
		})
		if err != nil {
			return err
		}
	}
	changes := make([]nftChange, len(foreign))
	for i, el := range foreign {
		changes[i].remove = []nftElement{el}
	}
	for _, err := range s.send(ctx, id, changes) {
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove a foreign element of set %s: %w", s.name(id), err)
		}
	}
	return nil
}
