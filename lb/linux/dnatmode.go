package linux

import (
	"context"
	"fmt"
	"slices"

	"weir/lb"
)

// Unsupported returns the features of an object that ModeNetfilter lacks, in words for the
// operator; "" without any. Nothing is refused for that: a Service is served without the
// feature. Plan has the Notes of others (lb.Facts.WithoutIPVS).
//
// Scheduler rr gives each backend the same chance, wrr a chance by its weight, both at random
// instead of in turn; fo is the same. The others depend on open connections or on the client's
// address, which rules can't; they are served as wrr.
//
// Some differences are the same for all objects and not reported. Affinity lasts from the
// start of a client's last connection, not from its end. With iptables each backend remembers as
// many clients as xt_recent's parameter ip_list_tot at the load of the module (100 by default); the
// longest absent is forgotten first. With nf_tables all together remember maxClients. With iptables, an
// established connection with a packet during a foreign flush of the rules is cut. The IPVS timeouts
// have no effect, conntrack's have.
func Unsupported(o lb.Object) string {
	switch o := o.(type) {
	case lb.VirtualServer:
		switch o.Scheduler.Name {
		case "rr", "wrr", "fo":
			return ""
		}
		return fmt.Sprintf("scheduler %s needs IPVS: connections to %s are spread at random, by weight", o.Scheduler, o.Frontend)
	case lb.RealServer:
		if o.Upper|o.Lower != 0 {
			return fmt.Sprintf("connection limits need IPVS: %s of %s has none", o.Addr, o.Frontend)
		}
	}
	return ""
}

// stage decides between NAT services and IPVS. A rule in nat takes a packet before IPVS;
// packets without such a rule come to INPUT.
type stage uint8

const (
	// byIPVS: INPUT admits packets of Services, no rule in nat takes them.
	byIPVS stage = iota
	// byDNAT: rules take them, and INPUT refuses the others: packets to the frontend of a Service
	// without backends.
	byDNAT
	// byBoth: rules take them, INPUT admits the rest. In this stage one mode installs its objects
	// while the other still serves.
	byBoth
	// afterIPVS is byDNAT while connections of IPVS go on.
	afterIPVS
)

// refuses reports whether INPUT refuses packets to frontends.
func (s stage) refuses() bool { return s == byDNAT || s == afterIPVS }

// Names returns the names of kernel objects, for lb.Query.
func (c Config) Names() lb.Names {
	n := lb.Names{Prefix: c.Prefix}
	if c.Mode == ModeNetfilter {
		names := natNames{prefix: c.Prefix}
		n.Chain = names.server
		if c.nftables() {
			n.Chain = func(lb.Frontend) string { return names.dispatch() }
		}
	}
	return n
}

// ruleMode has virtual servers as rules of all families (ModeNetfilter), and removes the
// objects of the other mode.
type ruleMode struct {
	*core
	faces      faces
	left       leftIPVS
	flowReader flowReader
	gone       map[lb.Family]map[lb.Object]bool // deleted servers with connections that could not be ended
}

// prepare prepares the rules of a family for objects of the other mode.
func (m *ruleMode) prepare(r *rules, own func(context.Context, func() error) error) {
	r.own = own
	addServers(r, m.config)
	if m.byRules() {
		r.stage = byDNAT
	}
}

// addServers adds the virtual servers, which are known after a read.
func addServers(r *rules, c Config) {
	r.nat = newDNAT(r, natNames{c.Prefix, marking{c.Mark}})
	if r.nft != nil {
		r.nat.nft = newNFTServers(r.nft, marking{c.Mark})
	}
}

// dropServers is for rules that never have any again.
func dropServers(r *rules) {
	if r.nat = nil; r.nft != nil {
		r.nft.servers = nil
	}
}

// foundServices is for NAT services that were read, for the first time or another one. In ModeIPVS they are leftovers,
// which serve until ForgetOther. It may fail in the midst of their removal: then they serve no more.
func (r *rules) foundServices(c Config, first bool) {
	switch {
	case c.Mode == ModeNetfilter:
	case r.nat.gone():
		dropServers(r)
	case first && r.stage == byIPVS:
		r.stage = byDNAT
		r.configure(c)
	}
}

// ForgetOther removes the objects of an earlier run in the other mode or with the other backend: each virtual server as
// soon as may returns true, which is when this mode has it in place, or it is unwanted. Until
// then the other mode serves it too, so that no connection is refused. But IPVS never sees the
// packets that rules take, and the old virtual servers are not updated any more: may must
// become true in the end.
//
// Connections of IPVS stay with it, and so do its virtual servers: call again until left, the
// number of virtual servers, is 0; or with cut to end them. UDP flows, and clients inside the
// cluster with a mark, move at once. Connections of rules need only conntrack, and continue
// until they end.
func (k *Kernel) ForgetOther(ctx context.Context, may func(lb.Frontend) bool, cut bool) (left int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.rules) == 0 { // no family, so no leftovers
		return 0, nil
	}
	if k.byRules() {
		left, err = k.byRule.forgetIPVS(ctx, may, cut)
	} else {
		left, err = k.byRule.removeNATServices(ctx, may)
	}
	if err == nil {
		var more int
		more, err = k.other.forget(ctx, k.sets, may)
		left += more
	}
	return left, needPrivilege(err)
}

// setStage changes the rules of a family to another stage.
func (m *ruleMode) setStage(ctx context.Context, r *rules, to stage) error {
	if r.stage == to && r.inPlace {
		return nil
	}
	r.stage = to
	r.configure(m.config)
	return r.install(ctx)
}

func (m *ruleMode) removeNATServices(ctx context.Context, may func(lb.Frontend) bool) (left int, err error) {
	for _, f := range m.config.Families {
		r := m.rules[f]
		if r.nat == nil || !r.nat.known {
			continue
		}
		stay, err := m.removeNATServicesOf(ctx, r, may)
		if err != nil {
			return 0, fmt.Errorf("remove the virtual servers %s of mode netfilter: %w", f, err)
		}
		left += stay
	}
	return left, nil
}

// removeNATServicesOf admits packets first, so that IPVS serves all without a NAT service. In stage byIPVS it
// has failed before, after the last of them.
func (m *ruleMode) removeNATServicesOf(ctx context.Context, r *rules, may func(lb.Frontend) bool) (left int, err error) {
	if r.stage != byIPVS {
		if err := m.setStage(ctx, r, byBoth); err != nil {
			return 0, err
		}
		going := map[lb.Frontend]*natService{}
		for f := range r.nat.services {
			if may(f) {
				going[f] = nil
			}
		}
		if left = len(r.nat.services) - len(going); left > 0 {
			return left, r.nat.write(ctx, going)
		}
	}
	if err := m.setStage(ctx, r, byIPVS); err != nil {
		return 0, err
	}
	if err := r.nat.remove(ctx); err != nil {
		return 0, err
	}
	dropServers(r)
	return 0, nil
}

// place installs the rules of a family, and removes orphans among those of virtual servers.
func (r *rules) place(ctx context.Context) error {
	if err := r.install(ctx); err != nil || r.nat == nil {
		return err
	}
	return r.nat.sweep(ctx)
}

// clear removes the rules with all virtual servers.
func (r *rules) clear(ctx context.Context) error {
	if r.nat != nil {
		if err := r.nat.load(ctx); err != nil {
			return err
		}
	}
	if err := r.remove(ctx); err != nil || r.nat == nil {
		return err
	}
	return r.nat.remove(ctx)
}

// servers returns the virtual and real servers that are rules.
func (r *rules) servers() lb.Snapshot {
	if r.config.Mode != ModeNetfilter {
		return nil
	}
	return r.nat.objects()
}

// lostServers returns the servers that another program has removed or changed.
func lostServers(before, after lb.Snapshot) (lost []lb.Object) {
	for id, o := range before {
		if after[id] != o {
			lost = append(lost, id)
		}
	}
	slices.SortFunc(lost, lb.Compare)
	return lost
}

// applyServers carries out ops on virtual or real servers as rules.
func (m *ruleMode) applyServers(ctx context.Context, ops []lb.Op) []error {
	errs := make([]error, len(ops))
	for _, family := range []lb.Family{lb.IPv4, lb.IPv6} {
		mine, at := make([]lb.Op, 0, len(ops)), make([]int, 0, len(ops))
		for i, op := range ops {
			if lb.FamilyOf(serverOf(op.Object).Addr) == family {
				mine, at = append(mine, op), append(at, i)
			}
		}
		if len(mine) == 0 {
			continue
		}
		r := m.rules[family]
		if r == nil {
			for _, i := range at {
				errs[i] = fmt.Errorf("%s is not among the families", family)
			}
			continue
		}
		failed := r.nat.apply(ctx, mine)
		for i, err := range failed {
			errs[at[i]] = err
		}
		if err := m.cutConns(ctx, family, mine, failed); err != nil {
			m.log.Warn("removal of stale connections failed; retrying with the next change", "error", err)
		}
	}
	return errs
}

// noteFaces records the marks of frontends.
func (m *ruleMode) noteFaces(ops []lb.Op) {
	for _, op := range ops {
		if m.byRules() && op.Verb != lb.Delete {
			m.faces.note(op.Object)
		}
	}
}

// observeServers reads NAT services as last read or written.
func (m *ruleMode) observeServers(only []lb.Frontend, obs *lb.Observation) {
	for _, f := range only {
		r := m.rules[lb.FamilyOf(f.Addr)]
		if r == nil {
			continue
		}
		p, ok := r.nat.services[f]
		if !ok {
			continue
		}
		obs.Objects.Put(p.server)
		for _, rs := range p.reals {
			obs.Objects.Put(rs)
		}
	}
}
