package bgp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"weir/bgp/advertise"
)

// Paths are sent in chunks, so that GoBGP can do other work in between.
const chunk = 256

// apply announces and withdraws routes, additions first. e.table.has records the routes
// that succeeded; the rest is in the error.
func (e *engine) apply(changes map[netip.Prefix][]advertise.Path) error {
	var adds, dels []netip.Prefix
	next := map[netip.Prefix]*class{}
	for prefix, paths := range changes {
		c := e.table.classFor(!prefix.Addr().Is4(), paths)
		switch c {
		case e.table.has[prefix]:
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

// classFor returns the class of paths, a new one if necessary; nil without paths.
func (t *classTable) classFor(v6 bool, paths []advertise.Path) *class {
	if len(paths) == 0 {
		return nil
	}
	key := classKey(v6, paths)
	c := t.classes[key]
	if c == nil {
		t.lastID++
		c = &class{id: t.lastID, v6: v6, paths: paths}
		t.classes[key] = c
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
		e.table.record(prefix, next[prefix])
	}
	return nil
}

func (e *engine) withdraw(prefixes []netip.Prefix) error {
	req := apiutil.DeletePathRequest{}
	for _, prefix := range prefixes {
		path, err := e.table.has[prefix].route(prefix)
		if err != nil {
			return fmt.Errorf("withdraw %s: %w", prefix, err)
		}
		req.Paths = append(req.Paths, path)
	}
	if err := e.gobgp.DeletePath(req); err != nil {
		return fmt.Errorf("withdraw %s and %d more: %w", prefixes[0], len(prefixes)-1, err)
	}
	for _, prefix := range prefixes {
		e.table.record(prefix, nil)
	}
	return nil
}

// record records the class of a prefix in GoBGP.
func (t *classTable) record(prefix netip.Prefix, c *class) {
	if was := t.has[prefix]; was != nil {
		was.routes--
	}
	if c == nil {
		delete(t.has, prefix)
		return
	}
	c.routes++
	t.has[prefix] = c
}
