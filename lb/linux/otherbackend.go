package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"

	"golang.org/x/sys/unix"

	"weir/lb"
)

// otherBackend are the sets and rules that an earlier run left with the other backend. They
// serve until this backend has the same.
type otherBackend struct {
	*core
	searched, copied bool
	ignored          bool // by IgnoreOther
	// apart reports that virtual servers of the other backend are rules, and those of this mode are not.
	apart bool
	sets  setStore
	left  lb.Snapshot // nil if there are none
	// adopted are those of left that are shown and copied.
	adopted lb.Snapshot
}

// search reads the sets of the other backend, once, and changes nothing: in ModeNetfilter with the
// virtual servers. Members record the virtual servers as weir's own, and the marks of clients
// inside. A process that is killed before it has removed them starts again.
func (o *otherBackend) search(ctx context.Context) error {
	if o.searched {
		return nil
	}
	other := o.otherConfig()
	if o.sets != nil {
		o.sets.socket().close() // of a search that has failed
	}
	o.sets = newSetStore(other, o.tablesOf(other), &o.counters.IPSet)
	obs := lb.Observation{Objects: lb.Expecting(nil)}
	families := o.config.Families
	if !other.nftables() && !hasIPSet() {
		families = nil
	}
	for _, f := range families {
		// A kernel without the other backend has no objects of it.
		if err := o.sets.observe(ctx, f, &obs); err != nil && !noNFTables(err) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("read the sets of the other backend: %w", err)
		}
	}
	if left := obs.Objects.Snapshot(); len(left) > 0 {
		if err := o.searchServers(ctx, left); err != nil {
			return err
		}
		adopted, err := o.adopt(ctx, left)
		if err != nil {
			return err
		}
		o.left, o.adopted = left, adopted
	}
	o.searched = true
	if o.left == nil {
		o.sets.socket().close()
	}
	return nil
}

// adopt returns the objects of the other backend that this one takes over: all of a family without rules of this
// backend, and else records and the virtual servers that it does not have.
func (o *otherBackend) adopt(ctx context.Context, left lb.Snapshot) (lb.Snapshot, error) {
	out := maps.Clone(left)
	for _, f := range o.config.Families {
		r := o.rules[f]
		both, err := packetsReach(ctx, r)
		if err != nil {
			return nil, err
		}
		if !both {
			continue
		}
		have := lb.Snapshot{}
		if r.nat != nil {
			if err := r.nat.load(ctx); err != nil {
				return nil, err
			}
			have = r.nat.objects()
		}
		maps.DeleteFunc(out, func(_, object lb.Object) bool {
			return ofFamily(object) == f && (!identifies(object) || replaced(object, have))
		})
	}
	return out, nil
}

// ofFamily returns the family of a set, a member, a virtual server or a real server.
func ofFamily(object lb.Object) lb.Family {
	switch object := object.(type) {
	case lb.IPSet:
		return object.Family
	case lb.Member:
		return object.Family()
	}
	return lb.FamilyOf(serverOf(object).Addr)
}

// replaced reports whether an object belongs to one of the virtual servers.
func replaced(object lb.Object, servers lb.Snapshot) bool {
	switch object.(type) {
	case lb.VirtualServer, lb.RealServer:
		return servers[lb.VirtualServer{Frontend: serverOf(object)}.ID()] != nil
	}
	return false
}

// identifies reports whether an object is a virtual server or a record of one. If packets reach rules of both backends,
// either may be the older one: an earlier process has not removed it, and nothing has updated its sets since. Without
// their records virtual servers would be foreign. Everything else of the older one, such as source ranges, may be wrong.
func identifies(object lb.Object) bool {
	switch object := object.(type) {
	case lb.VirtualServer, lb.RealServer:
		return true
	case lb.Member:
		return object.Set.IsRecord()
	}
	return false
}

// packetsReach reports whether packets reach rules.
func packetsReach(ctx context.Context, r *rules) (bool, error) {
	if r.nft != nil {
		return r.nft.translates(ctx)
	}
	have, err := r.peek(ctx)
	return err == nil && reached(r.want, have), err
}

// IgnoreOther leaves the sets of the other backend out of all observations and copies, and reports
// whether an earlier run left some. It is for a removal, which takes both backends one after the other. Rules that another
// program or another configuration has changed are observed, too: without their removal the kernel keeps the sets.
func (k *Kernel) IgnoreOther(ctx context.Context) (found bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.other.search(ctx); err != nil {
		return false, needPrivilege(err)
	}
	k.other.copied, k.other.ignored = true, true
	return k.other.left != nil, nil
}

// otherConfig is the configuration with the other backend.
func (o *otherBackend) otherConfig() Config {
	c := o.config
	if c.Backend = NFTables; o.config.nftables() {
		c.Backend = AutoBackend
	}
	return c
}

// tablesOf returns the tables of a configuration with a socket of their own; nil with iptables.
func (o *otherBackend) tablesOf(c Config) *nftTables {
	if !c.nftables() {
		return nil
	}
	return newNFTTables(newConn(unix.NETLINK_NETFILTER, &o.counters.IPSet), NFTable)
}

// searchServers adds the virtual servers of the other backend to left. Another mode can't copy them.
func (o *otherBackend) searchServers(ctx context.Context, left lb.Snapshot) error {
	for _, f := range o.config.Families {
		servers, err := o.serversOf(ctx, f)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			o.log.Warn("rules of iptables not read: their programs are missing", "family", f.String(), "error", err)
		case !o.byRules():
			o.apart = o.apart || err != nil || len(servers) > 0
		case err != nil:
			return fmt.Errorf("of the other backend: %w", err)
		default:
			maps.Copy(left, servers)
		}
	}
	return nil
}

// serversOf returns the virtual servers of the other backend that are rules.
func (o *otherBackend) serversOf(ctx context.Context, f lb.Family) (lb.Snapshot, error) {
	r, err := o.otherRules(ctx, f)
	if err != nil {
		return nil, err
	}
	defer closeRules(r)
	if err := r.nat.load(ctx); err != nil {
		return nil, err
	}
	return r.nat.objects(), nil
}

// otherRules returns the rules of the other backend with its virtual servers.
func (o *otherBackend) otherRules(ctx context.Context, f lb.Family) (*rules, error) {
	c := o.otherConfig()
	r := newRules(f, execRunner(&o.counters.Execs), hasProgram)
	if c.nftables() {
		r.nft = newNFTRules(f, c.Prefix, o.tablesOf(c))
	} else if err := r.find(ctx, AutoBackend); err != nil {
		return nil, err
	}
	addServers(r, c)
	r.configure(c)
	return r, nil
}

// closeRules closes the socket of rules of nf_tables.
func closeRules(r *rules) {
	if r.nft != nil {
		r.nft.conn.close()
	}
}

// show adds the sets of the other backend to an observation, until they are copied.
func (o *otherBackend) show(objects *lb.Table) {
	if o.copied {
		return
	}
	for _, object := range o.adopted {
		objects.Put(object)
	}
}

// copy copies the sets of the other backend to own, once, before the first change.
func (o *otherBackend) copy(ctx context.Context, own setStore) error {
	if o.copied || o.left == nil {
		return nil
	}
	var sets, members []lb.Op
	servers, reals := map[lb.Family][]lb.Op{}, map[lb.Family][]lb.Op{}
	for _, object := range o.adopted {
		op := lb.Op{Verb: lb.Add, Object: object}
		switch object := object.(type) {
		case lb.IPSet:
			sets = append(sets, op)
		case lb.Member:
			members = append(members, op)
		case lb.VirtualServer:
			f := lb.FamilyOf(object.Frontend.Addr)
			servers[f] = append(servers[f], op)
		case lb.RealServer:
			f := lb.FamilyOf(object.Frontend.Addr)
			reals[f] = append(reals[f], op)
		}
	}
	if err := errors.Join(firstError(own.applySets(ctx, sets)), firstError(own.applyMembers(ctx, members))); err != nil {
		return fmt.Errorf("copy the sets of the other backend: %w", err)
	}
	for f, ops := range servers {
		if err := firstError(o.rules[f].nat.apply(ctx, append(ops, reals[f]...))); err != nil {
			return fmt.Errorf("copy the virtual servers of the other backend: %w", err)
		}
	}
	o.copied = true
	o.log.Info("sets of the other backend copied", "members", len(members))
	return nil
}

// forget removes the rules and sets of the other backend as soon as this one has its rules. Nothing updates
// those sets, and both owners filter. If their virtual servers are of another mode, may must return true for
// all of them. left is the number of the others.
func (o *otherBackend) forget(ctx context.Context, own setStore, may func(lb.Frontend) bool) (left int, err error) {
	if o.left == nil {
		return 0, nil
	}
	for _, object := range o.left {
		if m, ok := object.(lb.Member); ok && o.apart && m.Port != 0 && m.Set.IsRecord() && !may(lb.Frontend{Addr: m.Addr, Port: m.Port, Proto: m.Proto}) {
			left++
		}
	}
	for _, r := range o.rules {
		if !r.inPlace {
			left++
		}
	}
	if left > 0 {
		return left, nil
	}
	// A start without a change has copied nothing, and members inside other ranges are in no list of
	// nf_tables.
	if err := o.copy(ctx, own); err != nil {
		return 0, err
	}
	stay := false
	for _, f := range o.config.Families {
		err := o.removeRules(ctx, f)
		switch {
		case errors.Is(err, exec.ErrNotFound): // a retry is in vain
			stay = true
			o.log.Warn("rules of iptables not removed: their programs are missing", "family", f.String(), "error", err)
		case err != nil:
			return 0, fmt.Errorf("remove the rules %s of the other backend: %w", f, err)
		}
	}
	var ops []lb.Op
	for _, object := range o.left {
		if _, ok := object.(lb.IPSet); ok {
			ops = append(ops, lb.Op{Verb: lb.Delete, Object: object})
		}
	}
	if err := firstError(o.sets.applySets(ctx, ops)); err != nil && !stay { // rules use them
		return 0, fmt.Errorf("remove the sets of the other backend: %w", err)
	}
	o.sets.socket().close()
	if o.left, o.adopted = nil, nil; !stay {
		o.log.Info("sets and rules of the other backend removed")
	}
	return 0, nil
}

func (o *otherBackend) removeRules(ctx context.Context, f lb.Family) error {
	r, err := o.otherRules(ctx, f)
	if err != nil {
		return err
	}
	defer closeRules(r)
	return r.clear(ctx) // with the virtual servers of an earlier run in ModeNetfilter
}
