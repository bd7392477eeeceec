package lb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Audit reads the whole kernel beside changes: BeginAudit, Read in any goroutine, Reread,
// EndAudit. With many services a reading takes seconds, and each part of it is from another
// moment. So it proves nothing about two kinds of objects. An object that this process has
// changed since the reading began may have been read before or after that. And the kernel's
// list of virtual servers may have gaps: the kernel continues a list by the position in it, and
// a removal moves the positions of the others.
//
// So a frontend is read once more by itself if its virtual server or real servers differ from
// have, until nothing of it changed meanwhile. The kernel lists members, addresses and routes
// without such gaps. If one of them changed since the reading began, have is right until the
// next audit.
type Audit struct {
	expected  Table // the frontends of have at its begin
	obs       Observation
	differing []Frontend // where obs differs from expected
	only      []Frontend // to be read again; empty is the whole kernel
	err       error
	known     bool // the audit before it was adopted

	// The changes since it began: the IDs, and the reading in which a virtual or real server
	// changed.
	changed map[Object]struct{}
	servers map[Frontend]int
	reading int              // the number of earlier readings
	reread  map[Frontend]int // the last reading of a frontend by itself
}

// errUnread is the error of an unfinished audit.
var errUnread = errors.New("the audit was not read")

// rereadAtOnce is the largest number of frontends that EndAudit reads by itself, which takes
// the kernel some milliseconds. More are left to another Read.
const rereadAtOnce = 64

// BeginAudit begins an audit. It replaces one that has not ended.
func (r *Reconciler) BeginAudit() *Audit {
	r.have.resolve()
	for f, v := range r.have.fronts {
		v.share() // later changes are made to a copy
		r.have.share(&r.want.wanted, f)
	}
	r.have.audit = &Audit{
		expected: Table{fronts: maps.Clone(r.have.fronts)}, err: errUnread,
		changed: map[Object]struct{}{}, servers: map[Frontend]int{}, reread: map[Frontend]int{},
		known: r.have.known,
	}
	r.have.known = false
	return r.have.audit
}

// Read reads the kernel. It does not use the Reconciler, which may continue in another
// goroutine.
func (a *Audit) Read(ctx context.Context, k Kernel) {
	if len(a.only) > 0 {
		obs, err := k.Observe(ctx, nil, a.only...)
		a.replace(&obs.Objects, a.only)
		a.err = err
		return
	}
	expected := &a.expected
	if !a.known {
		expected = nil
	}
	obs, err := k.Observe(ctx, expected)
	if err != nil {
		a.err = err
		return
	}
	a.obs = obs
	t := &a.obs.Objects
	t.resolve()
	for f, v := range t.fronts {
		if before := a.expected.fronts[f]; v != before && (before == nil || !v.equal(before)) {
			a.differing = append(a.differing, f)
		}
	}
	for f := range a.expected.fronts {
		if t.fronts[f] == nil {
			a.differing = append(a.differing, f)
		}
	}
	a.err = nil
}

// replace replaces the virtual and real servers of some frontends in an earlier reading.
func (a *Audit) replace(read *Table, only []Frontend) {
	read.resolve()
	t := &a.obs.Objects
	for _, f := range only {
		v := t.edit(f)
		v.dropServers()
		if now := read.fronts[f]; now != nil {
			v.takeServers(now)
		}
	}
}

// recordChange records that this process changes an object. A nil Audit records nothing.
func (a *Audit) recordChange(o Object) {
	if a == nil {
		return
	}
	a.changed[o.ID()] = struct{}{}
	switch o := o.(type) {
	case VirtualServer:
		a.servers[o.Frontend] = a.reading
	case RealServer:
		a.servers[o.Frontend] = a.reading
	}
}

// affected returns the frontends that may differ from have.
func (a *Audit) affected() map[Frontend]struct{} {
	out := make(map[Frontend]struct{}, len(a.differing))
	for _, f := range a.differing {
		out[f] = struct{}{}
	}
	for f := range a.servers {
		out[f] = struct{}{}
	}
	for id := range a.changed {
		if at, f := locate(id); at == inFront {
			out[f] = struct{}{}
		}
	}
	return out
}

// suspects returns the frontends that must be read again.
func (a *Audit) suspects(m *model) (out []Frontend) {
	if !m.have.adopted {
		return nil // have was empty, and nothing changed
	}
	for f := range a.affected() {
		changed, any := a.servers[f]
		if again, ok := a.reread[f]; ok && (!any || changed < again) {
			continue
		}
		v := a.obs.Objects.fronts[f]
		known := !any && m.facts.Foreign[f] && v != nil && v.serves && !m.owns(v)
		if !known && !v.sameServers(m.have.fronts[f]) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, Frontend.Compare)
	return out
}

// Reread reports whether so many frontends are in doubt that Read must be called once more, and
// Reread after it. Otherwise EndAudit is next.
func (r *Reconciler) Reread(a *Audit) bool {
	if a != r.have.audit || a.err != nil {
		return false
	}
	suspects := a.suspects(r.model)
	if len(suspects) <= rereadAtOnce {
		return false
	}
	a.reading++
	a.only, a.err = suspects, errUnread
	for _, f := range suspects {
		a.reread[f] = a.reading
	}
	return true
}

// finish ends an audit, applies its result to have, and returns the drift. An audit that
// another one has replaced has no result.
func (r *Reconciler) finish(ctx context.Context, a *Audit) (drift []Object, err error) {
	if a != r.have.audit {
		return nil, nil
	}
	if a.err == nil {
		if suspects := a.suspects(r.model); len(suspects) > 0 {
			var obs Observation
			obs, a.err = r.kernel.Observe(ctx, nil, suspects...)
			a.replace(&obs.Objects, suspects)
		}
	}
	r.have.audit = nil
	if a.err != nil {
		return nil, fmt.Errorf("read the kernel: %w", a.err)
	}
	return r.adopt(a), nil
}

// adopt sets have to the result of an audit, except for later changes. It finds foreign virtual
// servers, and returns the objects with foreign changes, sorted.
func (r *Reconciler) adopt(a *Audit) (drift []Object) {
	read := &a.obs.Objects
	if a.obs.kept != KeptNothing {
		keepShared(read, &r.have.Table)
	}
	// The first one finds no drift, and a Sync compares everything after it.
	first := !r.have.adopted
	find := func(now, before Object) {
		if first {
			return
		}
		id := cmp.Or(now, before).ID()
		r.touched[id] = struct{}{}
		r.routes.touch(id)
		if before == nil {
			drift = append(drift, now)
		} else if now != nil || before.kind() != kindSysctl || r.want.Has(before) {
			drift = append(drift, before)
		}
	}
	foreign := map[Frontend]bool{}
	if a.obs.kept == KeptServers {
		maps.Copy(foreign, r.facts.Foreign)
	}
	for f := range a.affected() {
		v := a.merge(f, r.have.fronts[f])
		if (v.serves || len(v.reals) > 0) && !r.owns(v) {
			if v.serves {
				foreign[f] = true
			}
			v = v.clone()
			v.dropServers()
		}
		before := r.have.fronts[f]
		if !first {
			v.differ(before, find)
		}
		r.have.noteCheck(f)
		if v.empty() {
			delete(r.have.fronts, f)
			continue
		}
		r.have.found = append(r.have.found, f)
		if before == nil || !v.equal(before) {
			if r.have.fronts == nil {
				r.have.fronts = map[Frontend]*virtual{}
			}
			r.have.fronts[f] = v
		}
	}
	r.have.unread = nil
	r.have.foreignAddrs = false
	var differ [][2]Object
	differShared(read, &r.have.Table, a.changed, func(now, before Object) {
		if _, changed := a.changed[cmp.Or(now, before).ID()]; !changed && !r.foreignOnLinks(read, now) {
			differ = append(differ, [2]Object{now, before})
		}
	})
	for _, d := range differ {
		find(d[0], d[1])
		r.have.record(cmp.Or(d[0], d[1]).ID(), d[0])
	}
	r.have.adopted, r.have.known = true, true
	if first {
		if !r.catalog.Synced() {
			r.orphans.adopt(&r.have)
		}
		r.marks.adopt()
	}
	if first || !r.catalog.Synced() {
		r.full = true
	}
	if r.setHost(foreign, a.obs.HostAddrs) {
		r.drains.dropLocal()
		r.guards.recount()
	}
	slices.SortFunc(drift, Compare)
	return drift
}

// merge returns the record of a frontend from the reading, except for members of sets that this
// process has changed since. The record may be frozen.
func (a *Audit) merge(f Frontend, before *virtual) *virtual {
	v := a.obs.Objects.fronts[f]
	if v == nil {
		v = &virtual{at: f}
	}
	out := v
	edit := func() *virtual {
		if out == v {
			out = v.clone()
		}
		return out
	}
	for m := range v.tuples() {
		if _, changed := a.changed[m.ID()]; changed && !before.has(m) {
			edit().drop(m)
		}
	}
	if before == nil {
		return out
	}
	for m := range before.tuples() {
		if _, changed := a.changed[m.ID()]; changed {
			edit().putMember(m)
		}
	}
	return out
}

// foreignOnLinks reports whether an object of the reading is a foreign address or
// synchronization daemon.
func (m *model) foreignOnLinks(read *Table, o Object) bool {
	switch o := o.(type) {
	case Address:
		foreign := read.addrs[o.Addr] == hasAddress && !m.manages(o)
		m.have.foreignAddrs = m.have.foreignAddrs || foreign
		return foreign
	case SyncDaemon:
		return !m.managesDaemon(o)
	}
	return false
}
