package linux

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/lb"
)

// The initial size of a set is that of `ipset create`; it grows when necessary.
const (
	initialMaxElem  = 65536
	initialHashSize = 1024
)

// sets are the ipsets of one prefix. Sets with other names are foreign: they are never read or
// written.
type sets struct {
	conn   *conn
	prefix string
	marks  marking
	// revisions are those that this kernel supports, by type and family.
	revisions map[setInfo]uint8
	// listing is locked while a set is listed, because the kernel must not destroy or swap one
	// meanwhile. The auditor shares it.
	listing *sync.Mutex
}

func newSets(prefix string, marks marking, count *Traffic) *sets {
	return &sets{conn: newConn(unix.NETLINK_NETFILTER, count), prefix: prefix, marks: marks, revisions: map[setInfo]uint8{}, listing: &sync.Mutex{}}
}

// applySets creates and destroys sets.
func (s *sets) applySets(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		set := op.Object.(lb.IPSet)
		if op.Verb == lb.Delete {
			s.listing.Lock()
			errs[i] = errors.Join(s.destroy(ctx, set.Set.Name(s.prefix, set.Family)),
				s.destroy(ctx, s.spare(set.Family)))
			s.listing.Unlock()
		} else {
			errs[i] = s.create(ctx, set)
		}
	}
	return errs
}

// spare returns the name under which a larger set is filled before the swap.
func (s *sets) spare(f lb.Family) string {
	if f == lb.IPv6 {
		return s.prefix + "-6-GROWING"
	}
	return s.prefix + "-GROWING"
}

func (s *sets) create(ctx context.Context, set lb.IPSet) error {
	name := set.Set.Name(s.prefix, set.Family)
	want := wantedSet(set)
	err := s.createAs(ctx, name, want)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	have, err := s.head(ctx, name, set)
	if err != nil {
		return err
	}
	if !have.sameKind(want) {
		return fmt.Errorf("set %s exists as %s of another kind (wanted: %s %s): remove it, or give weir another name_prefix",
			name, have.typ, want.typ, set.Family)
	}
	return nil
}

// wantedSet returns the initial properties of a set. A set of port numbers has no family, as
// with ipset(8), and a fixed size.
func wantedSet(set lb.IPSet) setInfo {
	info := setInfo{typ: set.Set.Type(), marks: set.Set.MarksPackets()}
	switch {
	case info.bitmap():
		info.lastPort = math.MaxUint16
		return info
	case set.Family == lb.IPv6:
		info.family = unix.NFPROTO_IPV6
	default:
		info.family = unix.NFPROTO_IPV4
	}
	info.maxElem, info.hashSize = initialMaxElem, initialHashSize
	return info
}

func (s *sets) createAs(ctx context.Context, name string, info setInfo) error {
	revision, err := s.revision(ctx, info)
	if err != nil {
		return err
	}
	return s.conn.exchange(ctx, 1, func(e *encoder, _ int) { putSetCreate(e, name, info, revision) })[0]
}

// revision returns the newest revision of a set type that the kernel supports. The request
// loads its module.
func (s *sets) revision(ctx context.Context, info setInfo) (uint8, error) {
	key := setInfo{typ: info.typ, family: info.family}
	if r, ok := s.revisions[key]; ok {
		return r, nil
	}
	var revision uint8
	put := func(e *encoder) { putSetType(e, info.typ, info.family) }
	err := s.conn.query(ctx, put, func() {}, func(m message) {
		if len(m.body) >= 4 {
			revision = getU8(attribute(m.body[4:], nl.IPSET_ATTR_REVISION))
		}
	})
	switch {
	case errors.Is(err, unix.Errno(nl.IPSET_ERR_FIND_TYPE)):
		return 0, missingModule("ip_set_"+strings.NewReplacer(":", "_", ",", "").Replace(info.typ), err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		// nfnetlink does not know ipset
		return 0, missingModule("ip_set", err)
	case err != nil:
		return 0, err
	}
	s.revisions[key] = revision
	return revision, nil
}

// hasIPSet reports whether the kernel has loaded ipset, or was built with it. Without it there is no set, and
// a request would load it.
func hasIPSet() bool { return exists("/sys/module/ip_set") }

// exists reports whether a set of that name exists, of any type.
func (s *sets) exists(ctx context.Context, name string) (bool, error) {
	put := func(e *encoder) { putSetCommand(e, nl.IPSET_CMD_HEADER, 0, name) }
	err := s.conn.query(ctx, put, func() {}, func(message) {})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// head returns the properties of a set, without its members.
func (s *sets) head(ctx context.Context, name string, set lb.IPSet) (info setInfo, err error) {
	put := func(e *encoder) {
		putSetCommand(e, nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, name)
		e.be32(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, listHeader)
	}
	err = s.conn.query(ctx, put, func() {}, func(m message) {
		if got := parseSet(m.body, set, func(lb.Member) {}); got.typ != "" {
			info = got
		}
	})
	return info, err
}

func (s *sets) destroy(ctx context.Context, name string) error {
	err := s.conn.exchange(ctx, 1, func(e *encoder, _ int) {
		putSetCommand(e, nl.IPSET_CMD_DESTROY, 0, name)
	})[0]
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (s *sets) applyMembers(ctx context.Context, ops []lb.Op) []error {
	return s.marks.bySet(ops, func(set lb.IPSet, verb lb.Verb, members []lb.Member) []error {
		if verb == lb.Delete {
			return s.remove(ctx, set, members)
		}
		return s.add(ctx, set, members)
	})
}

func (s *sets) add(ctx context.Context, set lb.IPSet, members []lb.Member) []error {
	name := set.Set.Name(s.prefix, set.Family)
	errs := s.send(ctx, nl.IPSET_CMD_ADD, name, members)
	var left []lb.Member
	for i, err := range errs {
		if errors.Is(err, errSetFull) {
			left = append(left, members[i])
		}
	}
	if len(left) == 0 {
		return errs
	}
	if grown := s.grow(ctx, set, len(left)); grown != nil {
		for i, err := range errs {
			if errors.Is(err, errSetFull) {
				errs[i] = fmt.Errorf("%w, and it can't grow: %w", err, grown)
			}
		}
		return errs
	}
	second := s.send(ctx, nl.IPSET_CMD_ADD, name, left)
	for i, err := range errs {
		if errors.Is(err, errSetFull) {
			errs[i], second = second[0], second[1:]
		}
	}
	return errs
}

func (s *sets) remove(ctx context.Context, set lb.IPSet, members []lb.Member) []error {
	errs := s.send(ctx, nl.IPSET_CMD_DEL, set.Set.Name(s.prefix, set.Family), members)
	for i, err := range errs {
		if errors.Is(err, unix.ENOENT) { // no such set, so no such member
			errs[i] = nil
		}
	}
	return errs
}

// send adds or removes members in as few messages as possible, and returns their errors. The
// kernel stops at the first member that it refuses, and reports its line: the rest is sent
// again.
func (s *sets) send(ctx context.Context, cmd uint16, name string, members []lb.Member) []error {
	errs := make([]error, len(members))
	for at := 0; at < len(members); {
		n := 0
		err := s.conn.exchange(ctx, 1, func(e *encoder, _ int) { n = putMembers(e, cmd, name, members[at:]) })[0]
		if err == nil {
			at += n
			continue
		}
		var refused *refusal
		if !errors.As(err, &refused) {
			fill(errs[at:], err)
			return errs
		}
		index, ok := refusedMember(refused)
		if !ok || index >= n {
			fill(errs[at:at+n], err)
			at += n
			continue
		}
		errs[at+index] = err
		at += index + 1
		if errors.Is(err, errSetFull) {
			// All others would fail as well. Members that exist already are repeated after the set has
			// grown, which is harmless.
			fill(errs[at:], err)
			return errs
		}
	}
	return errs
}

// grow makes room in a set for more members: it fills a larger set under another name, and
// swaps the two in one step. Rules that match the set are not affected.
func (s *sets) grow(ctx context.Context, set lb.IPSet, more int) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	name, spare := set.Set.Name(s.prefix, set.Family), s.spare(set.Family)
	info, members, err := s.list(ctx, set)
	if err != nil {
		return err
	}
	for int(info.maxElem) < 2*(len(members)+more) {
		info.maxElem *= 2
	}
	if err := s.destroy(ctx, spare); err != nil { // of a process that was killed here
		return err
	}
	if err := s.createAs(ctx, spare, info); err != nil {
		return err
	}
	if err := firstError(s.send(ctx, nl.IPSET_CMD_ADD, spare, members)); err != nil {
		return errors.Join(err, s.destroy(ctx, spare))
	}
	err = s.conn.exchange(ctx, 1, func(e *encoder, _ int) { putTwoSets(e, nl.IPSET_CMD_SWAP, name, spare) })[0]
	return errors.Join(err, s.destroy(ctx, spare))
}

// list returns a set with its members. Their marks are those of the kernel. The error wraps
// unix.ENOENT if no such set exists.
func (s *sets) list(ctx context.Context, set lb.IPSet) (info setInfo, members []lb.Member, err error) {
	info, err = s.read(ctx, set, func() { members = members[:0] }, func(m lb.Member) { members = append(members, m) })
	return info, members, err
}

// read is list without the slice: it calls each for every member, and again before it starts
// over.
func (s *sets) read(ctx context.Context, set lb.IPSet, again func(), each func(lb.Member)) (info setInfo, err error) {
	name := set.Set.Name(s.prefix, set.Family)
	put := func(e *encoder) { putSetCommand(e, nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, name) }
	err = s.conn.query(ctx, put, again, func(m message) {
		if got := parseSet(m.body, set, each); got.typ != "" {
			info = got
		}
	})
	return info, err
}

// observe reads the sets of a family with their members into obs. A set of another type with
// one of weir's names is left out: its creation will return an error.
func (s *sets) observe(ctx context.Context, f lb.Family, obs *lb.Observation) error {
	for _, set := range lb.Sets() {
		id := lb.IPSet{Set: set, Family: f}
		n := 0
		again := func() {
			if n > 0 {
				obs.Objects.DropMembers(id)
				n = 0
			}
		}
		s.listing.Lock()
		info, err := s.read(ctx, id, again, func(m lb.Member) {
			n++
			m.Mark = s.marks.number(m.Mark)
			obs.Objects.Put(m)
		})
		s.listing.Unlock()
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return fmt.Errorf("list set %s: %w", set.Name(s.prefix, f), err)
		case !info.sameKind(wantedSet(id)):
			again()
		default:
			obs.Objects.Put(id)
		}
	}
	return nil
}
