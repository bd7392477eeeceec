package bgp

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// compiled is a Rule as it is used: peers and looks by their indices.
type compiled struct {
	Rule
	hears []bool // by peer
	// looks are what its paths look like by peer and form, indices of Advertiser.looks.
	// Peers with the same Handicap share theirs.
	looks [][forms]int
}

// compile takes a new Policy down.
func (a *Advertiser) compile(p Policy) {
	a.policy = p
	a.policy.Peers = slices.SortedFunc(slices.Values(p.Peers), func(x, y Peer) int { return strings.Compare(x.Name, y.Name) })
	a.peers = make([]string, len(p.Peers))
	for i, peer := range a.policy.Peers {
		a.peers[i] = peer.Name
	}
	a.rules, a.looks = make([]compiled, len(p.Rules)), nil
	for i, r := range p.Rules {
		c := compiled{Rule: r, hears: make([]bool, len(a.peers))}
		for j, name := range a.peers {
			c.hears[j] = oneOf(r.Peers, name)
		}
		c.looks = a.looksOf(r)
		a.rules[i] = c
	}
}

// looksOf gives what a Rule's paths look like, by peer.
func (a *Advertiser) looksOf(r Rule) [][forms]int {
	out, by := make([][forms]int, len(a.peers)), map[Handicap][forms]int{}
	for i, peer := range a.policy.Peers {
		looks, ok := by[peer.Standby]
		if !ok {
			for f := range forms {
				looks[f] = a.look(r.path(f, peer.Standby))
			}
			by[peer.Standby] = looks
		}
		out[i] = looks
	}
	return out
}

// path is what the Rule's paths look like, Peers apart, to a peer of a Handicap.
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
	slices.SortFunc(p.LargeCommunities, LargeCommunity.compare)
	p.LargeCommunities = slices.Compact(p.LargeCommunities)
	return p
}

func (l LargeCommunity) compare(m LargeCommunity) int {
	return slices.Compare([]uint32{l.ASN, l.Data1, l.Data2}, []uint32{m.ASN, m.Data1, m.Data2})
}

// look gives the index of a look; paths that look the same have the same.
func (a *Advertiser) look(p Path) int {
	i := slices.IndexFunc(a.looks, p.Equal)
	if i < 0 {
		i = len(a.looks)
		a.looks = append(a.looks, p)
	}
	return i
}

// send is a VIP told to a peer by a rule.
type send struct {
	peer, rule int
}

// match gives whom the rules tell of a VIP, sorted by peer.
func (a *Advertiser) match(addr netip.Addr, claims []claim) []send {
	var out []send
	for _, v := range a.verdicts(addr, claims) {
		if v.reason == Announced {
			out = append(out, v.send)
		}
	}
	return out
}

// verdict is what the rules say of a VIP to a peer. rule is -1 if none counts.
type verdict struct {
	send
	reason Reason
}

func (a *Advertiser) verdicts(addr netip.Addr, claims []claim) []verdict {
	out := make([]verdict, len(a.peers))
	for i, peer := range a.policy.Peers {
		out[i] = verdict{send{i, -1}, NoRule}
		if !peer.Families.carry(addr) {
			out[i].reason = NoFamily
		}
	}
	for i, r := range a.rules {
		if !r.Match.matches(addr, claims, a.policy.Pools) {
			continue
		}
		for j := range out {
			if out[j].reason != NoRule || !r.hears[j] {
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

// carry tells whether the family of an address is among them.
func (f Families) carry(addr netip.Addr) bool {
	if f == (Families{}) {
		return true
	}
	return addr.Is4() && f.IPv4 || addr.Is6() && f.IPv6
}

// bundle is a prefix with how many VIPs want it announced, by send and form. It has
// no send that nobody wants.
type bundle struct {
	wanted []tally // sorted by peer, then rule
	paths  []Path  // as announced
	dirty  bool    // it is in Advertiser.dirty
}

type tally struct {
	send
	by [forms]int
}

// contribute has the prefixes follow how a VIP is announced.
func (a *Advertiser) contribute(v *vip, f form, sends []send) {
	if v.toldAs == f && slices.Equal(v.told, sends) {
		return
	}
	for _, s := range v.told {
		a.want(v.addr, s, v.toldAs, -1)
	}
	for _, s := range sends {
		a.want(v.addr, s, f, 1)
	}
	v.told, v.toldAs = sends, f
}

// want counts one VIP more or less at its prefix.
func (a *Advertiser) want(addr netip.Addr, s send, f form, n int) {
	prefix := a.rules[s.rule].prefix(addr)
	b := a.prefixes[prefix]
	if b == nil {
		b = &bundle{}
		a.prefixes[prefix] = b
	}
	if !b.dirty {
		b.dirty = true
		a.dirty = append(a.dirty, prefix)
	}
	i, found := slices.BinarySearchFunc(b.wanted, s, func(t tally, s send) int { return t.compare(s) })
	if !found {
		b.wanted = slices.Insert(b.wanted, i, tally{send: s})
	}
	t := &b.wanted[i]
	t.by[f] += n
	if t.by == [forms]int{} {
		b.wanted = slices.Delete(b.wanted, i, i+1)
	}
}

func (s send) compare(other send) int {
	if s.peer != other.peer {
		return s.peer - other.peer
	}
	return s.rule - other.rule
}

// refresh makes the paths of the prefixes that may have changed, and gives those that
// have.
func (a *Advertiser) refresh() map[netip.Prefix][]Path {
	var changes map[netip.Prefix][]Path
	for _, prefix := range a.dirty {
		b := a.prefixes[prefix]
		b.dirty = false
		paths := a.paths(b.wanted)
		if !slices.EqualFunc(paths, b.paths, Path.Equal) {
			if changes == nil {
				changes = map[netip.Prefix][]Path{}
			}
			changes[prefix] = paths
			b.paths = paths
		}
		switch {
		case len(paths) == 0:
			delete(a.prefixes, prefix)
			delete(a.aggregates, prefix)
		case !prefix.IsSingleIP():
			a.aggregates[prefix] = struct{}{}
		}
	}
	a.dirty = a.dirty[:0] // a map that was large once would be slow to clear for ever
	return changes
}

// paths are what the peers hear of a prefix.
func (a *Advertiser) paths(wanted []tally) []Path {
	var out []Path
	var looks []int // of out
	for len(wanted) > 0 {
		peer, n := wanted[0].peer, 1
		for n < len(wanted) && wanted[n].peer == peer {
			n++
		}
		best := slices.MinFunc(wanted[:n], func(t, u tally) int { return cmp.Compare(t.best(), u.best()) })
		wanted = wanted[n:]
		look := a.rules[best.rule].looks[peer][best.best()]
		i := slices.Index(looks, look)
		if i < 0 {
			i = len(looks)
			looks = append(looks, look)
			out = append(out, a.looks[look])
		}
		out[i].Peers = append(out[i].Peers, a.peers[peer])
	}
	return out
}

// best is the best form that a VIP wants.
func (t tally) best() form {
	return form(slices.IndexFunc(t.by[:], func(n int) bool { return n > 0 }))
}
