package advertise

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// prefixTable turns the rules and the demands of VIPs into the paths of prefixes.
type prefixTable struct {
	pools    map[string][]netip.Prefix
	peers    []Peer // sorted by name; the rest has indices of it
	rules    []compiled
	variants []Path // each once, without Peers

	prefixes   map[netip.Prefix]*prefixState
	aggregates map[netip.Prefix]struct{}
	dirty      []netip.Prefix // prefixes to compute again, each once
}

// compiled is a Rule with its peers and variants as indices.
type compiled struct {
	Rule
	applies []bool // by peer
	// variants are its paths by peer and form, indices of prefixTable.variants. Peers with
	// the same Handicap have the same.
	variants [][forms]int
}

// compile replaces the rules.
func (t *prefixTable) compile(p Policy) {
	t.pools = p.Pools
	t.peers = slices.SortedFunc(slices.Values(p.Peers), func(x, y Peer) int { return strings.Compare(x.Name, y.Name) })
	t.rules, t.variants = make([]compiled, len(p.Rules)), nil
	for i, r := range p.Rules {
		c := compiled{Rule: r, applies: make([]bool, len(t.peers))}
		for j, peer := range t.peers {
			c.applies[j] = oneOf(r.Peers, peer.Name)
		}
		c.variants = t.variantsOf(r)
		t.rules[i] = c
	}
}

// variantsOf returns the variants of a Rule by peer.
func (t *prefixTable) variantsOf(r Rule) [][forms]int {
	out, by := make([][forms]int, len(t.peers)), map[Handicap][forms]int{}
	for i, peer := range t.peers {
		variants, ok := by[peer.Standby]
		if !ok {
			for f := range forms {
				variants[f] = t.variant(r.path(f, peer.Standby))
			}
			by[peer.Standby] = variants
		}
		out[i] = variants
	}
	return out
}

// path returns the path of a Rule in a form, without Peers.
func (r Rule) path(f form, h Handicap) Path {
	p := Path{
		Communities:      slices.Clone(r.Communities),
		LargeCommunities: slices.Clone(r.LargeCommunities),
		LocalPref:        r.LocalPref,
		MED:              r.MED,
		Prepend:          r.Prepend,
	}
	if f == standby || f == shuttingWorse {
		p = h.on(p)
	}
	if f == shutting || f == shuttingWorse {
		p.Communities, p.LocalPref = append(p.Communities, GracefulShutdown), MetricOf(0)
	}
	slices.Sort(p.Communities)
	p.Communities = slices.Compact(p.Communities)
	slices.SortFunc(p.LargeCommunities, LargeCommunity.Compare)
	p.LargeCommunities = slices.Compact(p.LargeCommunities)
	return p
}

// variant returns the index of a variant, and adds it if it is new.
func (t *prefixTable) variant(p Path) int {
	i := slices.IndexFunc(t.variants, p.Equal)
	if i < 0 {
		i = len(t.variants)
		t.variants = append(t.variants, p)
	}
	return i
}

// targets returns the targets of a VIP, sorted by peer.
func (t *prefixTable) targets(addr netip.Addr, serving []served) []target {
	var out []target
	for _, r := range t.rulings(addr, serving) {
		if r.reason == Announced {
			out = append(out, r.target)
		}
	}
	return out
}

// ruling is the result of the rules for a VIP and a peer. rule is -1 if none applies.
type ruling struct {
	target
	reason Reason
}

func (t *prefixTable) rulings(addr netip.Addr, serving []served) []ruling {
	out := make([]ruling, len(t.peers))
	for i, peer := range t.peers {
		out[i] = ruling{target{i, -1}, NoRule}
		if !peer.Families.Carry(addr) {
			out[i].reason = NoFamily
		}
	}
	for i, r := range t.rules {
		if !r.Match.matches(addr, serving, t.pools) {
			continue
		}
		for j := range out {
			if out[j].reason != NoRule || !r.applies[j] {
				continue
			}
			out[j].rule, out[j].reason = i, Announced
			if r.Refuse {
				out[j].reason = Refused
			}
		}
	}
	return out
}

// prefixState is a prefix with the number of VIPs that need it, by target and form. It
// has no target without a VIP.
type prefixState struct {
	demands []demand // sorted by peer, then rule
	paths   []Path   // as announced
	dirty   bool     // it is in prefixTable.dirty
}

type demand struct {
	target
	by [forms]int
}

// best returns the best form that a VIP needs.
func (d demand) best() form {
	return form(slices.IndexFunc(d.by[:], func(n int) bool { return n > 0 }))
}

// setDemand replaces the demand of a VIP.
func (t *prefixTable) setDemand(v *vip, f form, targets []target) {
	if v.demand.form == f && slices.Equal(v.demand.targets, targets) {
		return
	}
	for _, s := range v.demand.targets {
		t.count(v.addr, s, v.demand.form, -1)
	}
	for _, s := range targets {
		t.count(v.addr, s, f, 1)
	}
	v.demand.targets, v.demand.form = targets, f
}

// count adds n VIPs to a prefix.
func (t *prefixTable) count(addr netip.Addr, s target, f form, n int) {
	prefix := t.rules[s.rule].prefix(addr)
	b := t.prefixes[prefix]
	if b == nil {
		b = &prefixState{}
		t.prefixes[prefix] = b
	}
	if !b.dirty {
		b.dirty = true
		t.dirty = append(t.dirty, prefix)
	}
	i, found := slices.BinarySearchFunc(b.demands, s, func(d demand, s target) int { return d.compare(s) })
	if !found {
		b.demands = slices.Insert(b.demands, i, demand{target: s})
	}
	d := &b.demands[i]
	d.by[f] += n
	if d.by == [forms]int{} {
		b.demands = slices.Delete(b.demands, i, i+1)
	}
}

// refresh computes the paths of the dirty prefixes, and returns those that differ.
func (t *prefixTable) refresh() map[netip.Prefix][]Path {
	var changes map[netip.Prefix][]Path
	for _, prefix := range t.dirty {
		b := t.prefixes[prefix]
		b.dirty = false
		paths := t.paths(b.demands)
		if !slices.EqualFunc(paths, b.paths, Path.Equal) {
			if changes == nil {
				changes = map[netip.Prefix][]Path{}
			}
			changes[prefix] = paths
			b.paths = paths
		}
		switch {
		case len(paths) == 0:
			delete(t.prefixes, prefix)
			delete(t.aggregates, prefix)
		case !prefix.IsSingleIP():
			t.aggregates[prefix] = struct{}{}
		}
	}
	t.dirty = t.dirty[:0] // a slice, since a map that was large once stays slow to clear
	return changes
}

// paths returns the paths for demands.
func (t *prefixTable) paths(demands []demand) []Path {
	var out []Path
	var variants []int // of out
	for len(demands) > 0 {
		peer, n := demands[0].peer, 1
		for n < len(demands) && demands[n].peer == peer {
			n++
		}
		best := slices.MinFunc(demands[:n], func(d, e demand) int { return cmp.Compare(d.best(), e.best()) })
		demands = demands[n:]
		variant := t.rules[best.rule].variants[peer][best.best()]
		i := slices.Index(variants, variant)
		if i < 0 {
			i = len(variants)
			variants = append(variants, variant)
			out = append(out, t.variants[variant])
		}
		out[i].Peers = append(out[i].Peers, t.peers[peer].Name)
	}
	return out
}

// announced reports whether a prefix is announced to a peer.
func (t *prefixTable) announced(prefix netip.Prefix, peer int) bool {
	b := t.prefixes[prefix]
	return b != nil && slices.ContainsFunc(b.demands, func(d demand) bool { return d.peer == peer })
}
