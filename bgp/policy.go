package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"weir/bgp/advertise"
)

// GoBGP has one path of a prefix for all peers. So that each peer gets its own attributes,
// or no route, paths of equal treatment make a class. A class has a number, which the one
// path of a prefix has instead of a MED. The export policy has a statement for each class
// and peer, which sets the attributes for that peer; other routes are rejected. Every
// statement sets the MED, so the number never leaves the box.
//
// LOCAL_PREF is 0 at first, since a statement cannot set that value. The next hop is a
// loopback address, which a statement replaces; no router would accept it.
type class struct {
	id     uint32
	v6     bool
	paths  []advertise.Path // canonical
	routes int              // prefixes of this class in GoBGP
}

// hopToReplace is the next hop of a path, by whether it is IPv6, until the policy of a
// peer replaces it.
var hopToReplace = map[bool]netip.Addr{false: netip.AddrFrom4([4]byte{127, 0, 0, 1}), true: netip.IPv6Loopback()}

// canonical returns paths with everything in them sorted and without duplicates. Paths
// without peers are left out.
func canonical(paths []advertise.Path) []advertise.Path {
	var out []advertise.Path
	for _, p := range paths {
		if len(p.Peers) == 0 {
			continue
		}
		p.Peers = sortedSet(p.Peers, cmp.Compare[string])
		p.Communities = sortedSet(p.Communities, cmp.Compare[advertise.Community])
		p.LargeCommunities = sortedSet(p.LargeCommunities, advertise.LargeCommunity.Compare)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b advertise.Path) int { return cmp.Compare(a.Peers[0], b.Peers[0]) })
	return out
}

func sortedSet[T comparable](in []T, compare func(a, b T) int) []T {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// checkPaths returns an error if the paths of a prefix are invalid.
func checkPaths(prefix netip.Prefix, paths []advertise.Path) error {
	if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return fmt.Errorf("announce %s: a prefix without host bits is needed", prefix)
	}
	seen := map[string]bool{}
	for _, p := range paths {
		if p.Prepend < 0 || p.Prepend > advertise.MaxPrepend {
			return fmt.Errorf("announce %s: cannot prepend %d times, only 0 to %d", prefix, p.Prepend, advertise.MaxPrepend)
		}
		for _, name := range p.Peers {
			if seen[name] {
				return fmt.Errorf("announce %s: peer %q is in two of its paths", prefix, name)
			}
			seen[name] = true
		}
	}
	return nil
}

// classKey returns a key of a class. It is built by hand, since there is one for each
// change.
func classKey(v6 bool, paths []advertise.Path) string {
	key := strconv.AppendBool(make([]byte, 0, 128), v6)
	for _, p := range paths {
		key = strconv.AppendInt(append(key, '|'), int64(p.Prepend), 10)
		for _, m := range []advertise.Metric{p.LocalPref, p.MED} {
			key = strconv.AppendBool(append(key, ' '), m.Given)
			key = strconv.AppendUint(key, uint64(m.Value), 10)
		}
		for _, c := range p.Communities {
			key = strconv.AppendUint(append(key, 'c'), uint64(c), 10)
		}
		for _, l := range p.LargeCommunities {
			key = strconv.AppendUint(append(key, 'l'), uint64(l.ASN), 10)
			key = strconv.AppendUint(append(key, ':'), uint64(l.Data1), 10)
			key = strconv.AppendUint(append(key, ':'), uint64(l.Data2), 10)
		}
		for _, name := range p.Peers {
			key = strconv.AppendQuote(key, name)
		}
	}
	return string(key)
}

// route returns the path of a prefix in GoBGP's form.
func (c *class) route(prefix netip.Prefix) (*apiutil.Path, error) {
	nlri, err := packet.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, err
	}
	attrs := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP),
		packet.NewPathAttributeMultiExitDisc(c.id),
		packet.NewPathAttributeLocalPref(0),
	}
	if !c.v6 {
		hop, err := packet.NewPathAttributeNextHop(hopToReplace[false])
		return &apiutil.Path{Family: packet.RF_IPv4_UC, Nlri: nlri, Attrs: append(attrs, hop)}, err
	}
	reach, err := packet.NewPathAttributeMpReachNLRI(packet.RF_IPv6_UC, []packet.PathNLRI{{NLRI: nlri}}, hopToReplace[true])
	return &apiutil.Path{Family: packet.RF_IPv6_UC, Nlri: nlri, Attrs: append(attrs, reach)}, err
}

// policy returns the export policy of a class. The first statement that matches a peer
// applies, so a router with its own entry comes before its range, and has one even if it
// gets nothing.
func (c *class) policy(name string, peers []Peer, hops map[string]hops) *api.Policy {
	paths := map[string]advertise.Path{}
	for _, p := range c.paths {
		for _, peer := range p.Peers {
			paths[peer] = p
		}
	}
	policy := &api.Policy{Name: name}
	for _, p := range bySpecificity(peers) {
		path, wanted := paths[p.Name]
		hop := hops[p.Name].of(c.v6)
		st := &api.Statement{
			Name: name + "." + p.Name,
			Conditions: &api.Conditions{
				NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: p.Name},
				RouteType:   api.Conditions_ROUTE_TYPE_LOCAL,
				MedEq:       &api.MedEq{Value: c.id},
			},
			Actions: &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT},
		}
		if wanted && hop.known() {
			st.Actions = actions(p, path, hop)
		}
		if p.ASN == 0 && st.Actions.AsPrepend != nil { // internal routers would detect a loop
			path.Prepend = 0
			policy.Statements = append(policy.Statements, internal(st, actions(p, path, hop)))
		}
		policy.Statements = append(policy.Statements, st)
	}
	return policy
}

// internal returns st for the internal routers of a range of any ASN, with other actions. Only their AS path is empty.
func internal(st *api.Statement, a *api.Actions) *api.Statement {
	c := st.Conditions
	return &api.Statement{Name: st.Name + ".internal", Actions: a, Conditions: &api.Conditions{
		NeighborSet: c.NeighborSet, RouteType: c.RouteType, MedEq: c.MedEq,
		AsPathLength: &api.AsPathLength{Type: api.Comparison_COMPARISON_EQ, Length: 0},
	}}
}

func actions(p Peer, path advertise.Path, hop nextHop) *api.Actions {
	a := &api.Actions{
		RouteAction:    api.RouteAction_ROUTE_ACTION_ACCEPT,
		Community:      &api.CommunityAction{Type: api.CommunityAction_TYPE_REPLACE},
		LargeCommunity: &api.CommunityAction{Type: api.CommunityAction_TYPE_REPLACE},
		Med:            &api.MedAction{Type: api.MedAction_TYPE_REPLACE, Value: int64(path.MED.Value)},
		Nexthop:        &api.NexthopAction{Self: hop.self},
	}
	if !hop.self {
		a.Nexthop.Address = hop.addr.String()
	}
	for _, c := range path.Communities {
		a.Community.Communities = append(a.Community.Communities, fmt.Sprintf("%d:%d", uint32(c)>>16, uint32(c)&0xffff))
	}
	for _, c := range path.LargeCommunities {
		a.LargeCommunity.Communities = append(a.LargeCommunity.Communities, c.String())
	}
	if p.Internal() || p.ASN == 0 { // a range of any ASN has internal routers, too; GoBGP sends external ones no LOCAL_PREF
		a.LocalPref = &api.LocalPrefAction{Value: path.EffectiveLocalPref()}
	}
	if path.Prepend > 0 && !p.Internal() {
		a.AsPrepend = &api.AsPrependAction{Asn: p.LocalASN, Repeat: uint32(path.Prepend)}
	}
	return a
}

func bySpecificity(peers []Peer) []Peer {
	out := slices.Clone(peers)
	slices.SortStableFunc(out, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(b.prefix().Bits(), a.prefix().Bits()), strings.Compare(a.Name, b.Name))
	})
	return out
}
