package bgp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
)

// paths are chunked so that GoBGP's other work gets its turn between.
const chunk = 256

// apply makes GoBGP announce what changes says, additions first. What it got
// through, it has noted in e.has; the rest is in the error.
func (e *engine) apply(changes map[netip.Prefix][]Path) error {
	var adds, dels []netip.Prefix
	next := map[netip.Prefix]*class{}
	for prefix, paths := range changes {
		c := e.classFor(!prefix.Addr().Is4(), paths)
		switch c {
		case e.has[prefix]:
		case nil:
			dels = append(dels, prefix)
		default:
			next[prefix] = c
			adds = append(adds, prefix)
		}
	}
	if err := e.syncPolicies(); err != nil {
		return err
	}
	slices.SortFunc(adds, netip.Prefix.Compare)
	slices.SortFunc(dels, netip.Prefix.Compare)
	for part := range slices.Chunk(adds, chunk) {
		if err := e.announce(part, next); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(dels, chunk) {
		if err := e.withdraw(part); err != nil {
			return err
		}
	}
	return nil
}

// classFor is the class of paths, a new one if need be; nil if nobody gets any.
func (e *engine) classFor(v6 bool, paths []Path) *class {
	if len(paths) == 0 {
		return nil
	}
	key := classKey(v6, paths)
	c := e.classes[key]
	if c == nil {
		e.lastID++
		c = &class{id: e.lastID, v6: v6, paths: paths}
		e.classes[key] = c
	}
	return c
}

func (e *engine) announce(prefixes []netip.Prefix, next map[netip.Prefix]*class) error {
	req := apiutil.AddPathRequest{}
	for _, prefix := range prefixes {
		path, err := next[prefix].route(prefix)
		if err != nil {
			return fmt.Errorf("announce %s: %w", prefix, err)
		}
		req.Paths = append(req.Paths, path)
	}
	if _, err := e.gobgp.AddPath(req); err != nil {
		return fmt.Errorf("announce %s and %d more: %w", prefixes[0], len(prefixes)-1, err)
	}
	for _, prefix := range prefixes {
		e.note(prefix, next[prefix])
	}
	return nil
}

func (e *engine) withdraw(prefixes []netip.Prefix) error {
	req := apiutil.DeletePathRequest{}
	for _, prefix := range prefixes {
		path, err := e.has[prefix].route(prefix)
		if err != nil {
			return fmt.Errorf("withdraw %s: %w", prefix, err)
		}
		req.Paths = append(req.Paths, path)
	}
	if err := e.gobgp.DeletePath(req); err != nil {
		return fmt.Errorf("withdraw %s and %d more: %w", prefixes[0], len(prefixes)-1, err)
	}
	for _, prefix := range prefixes {
		e.note(prefix, nil)
	}
	return nil
}

// note keeps book of what GoBGP has.
func (e *engine) note(prefix netip.Prefix, c *class) {
	if was := e.has[prefix]; was != nil {
		was.routes--
	}
	if c == nil {
		delete(e.has, prefix)
		return
	}
	c.routes++
	e.has[prefix] = c
}
