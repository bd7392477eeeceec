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
)

// GoBGP has one path of a prefix for all peers. So that each peer gets its own
// attributes, and some peers none, paths of equal treatment make a class, a class
// has a number, and the one path of a prefix bears it in the place of its MED.
// The export policy has a statement for each class and peer, which puts the
// attributes of that peer in; whatever no statement knows is rejected. No
// statement leaves the MED alone, so the number never gets out of the box.
//
// LOCAL_PREF is 0 at first, since a statement cannot set that value, and the next
// hop a loopback address, which a statement replaces; no router would take it.
type class struct {
	id     uint32
	v6     bool
	paths  []Path // canonical
	routes int    // prefixes of it that GoBGP has
}

// hopToReplace is the next hop of a path, by whether it is IPv6, until the policy of a
// peer puts in the one for that peer.
var hopToReplace = map[bool]netip.Addr{false: netip.AddrFrom4([4]byte{127, 0, 0, 1}), true: netip.IPv6Loopback()}

// defaultLocalPref is what routers assume too (RFC 4271 leaves it to custom).
const defaultLocalPref = 100

// canonical is paths with everything in it sorted and said once. Paths without
// peers are left out.
func canonical(paths []Path) []Path {
	var out []Path
	for _, p := range paths {
		if len(p.Peers) == 0 {
			continue
		}
		p.Peers = sortedSet(p.Peers, cmp.Compare[string])
		p.Communities = sortedSet(p.Communities, cmp.Compare[Community])
		p.LargeCommunities = sortedSet(p.LargeCommunities, compareLarge)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Path) int { return cmp.Compare(a.Peers[0], b.Peers[0]) })
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

func compareLarge(a, b LargeCommunity) int {
	return cmp.Or(cmp.Compare(a.ASN, b.ASN), cmp.Compare(a.Data1, b.Data1), cmp.Compare(a.Data2, b.Data2))
}

// checkPaths tells what is wrong with the paths of a prefix.
func checkPaths(prefix netip.Prefix, paths []Path) error {
	if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return fmt.Errorf("announce %s: a prefix without host bits is needed", prefix)
	}
	seen := map[string]bool{}
	for _, p := range paths {
		if p.Prepend < 0 || p.Prepend > maxPrepend {
			return fmt.Errorf("announce %s: cannot prepend %d times, only 0 to %d", prefix, p.Prepend, maxPrepend)
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

const maxPrepend = 16

// classKey tells classes apart. There is one for each change, so it is made by hand.
func classKey(v6 bool, paths []Path) string {
	key := strconv.AppendBool(make([]byte, 0, 128), v6)
	for _, p := range paths {
		key = strconv.AppendInt(append(key, '|'), int64(p.Prepend), 10)
		for _, m := range []Metric{p.LocalPref, p.MED} {
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

// route is the path of a prefix as GoBGP gets it.
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

// policy is what the peers get of a class. The first statement that fits a peer
// holds, so a router with its own entry comes before the range that it is in, and
// has one even if it gets nothing.
func (c *class) policy(name string, peers []Peer, hops map[string]hops) *api.Policy {
	paths := map[string]Path{}
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
		policy.Statements = append(policy.Statements, st)
	}
	return policy
}

func actions(p Peer, path Path, hop nextHop) *api.Actions {
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
	if p.internal() {
		a.LocalPref = &api.LocalPrefAction{Value: path.localPref()}
		return a
	}
	if path.Prepend > 0 {
		a.AsPrepend = &api.AsPrependAction{Asn: p.LocalASN, Repeat: uint32(path.Prepend)}
	}
	return a
}

func (p Path) localPref() uint32 {
	if !p.LocalPref.Given {
		return defaultLocalPref
	}
	return p.LocalPref.Value
}

func bySpecificity(peers []Peer) []Peer {
	out := slices.Clone(peers)
	slices.SortStableFunc(out, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(b.prefix().Bits(), a.prefix().Bits()), strings.Compare(a.Name, b.Name))
	})
	return out
}
