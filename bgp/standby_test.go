package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"weir/lb"
)

// member is a box of a fleet: what it decides, and what says it.
type member struct {
	*box
	adv *Advertiser
}

var ownedVIP = netip.MustParseAddr("192.0.2.1")

// newMember makes one that serves a VIP and tells routers of it in a role.
func newMember(t *testing.T, addr netip.Addr, role Role, peers []Peer) *member {
	t.Helper()
	m := &member{newBoxAt(t, addr), NewAdvertiser()}
	for i := range peers {
		peers[i].Source = addr
	}
	now := time.Now()
	m.set(m.adv.Configure(Policy{Rules: Rules(nil, nil), Peers: peers}, now))
	m.assign(role)
	m.set(m.adv.Take([]lb.Route{{Addr: ownedVIP, Serves: []lb.Serving{serving("static", "", "web", lb.LoadBalancer)}}}, nil, now))
	m.configure(func(c *Config) { c.Peers = peers })
	return m
}

func (m *member) assign(r Role) {
	m.t.Helper()
	m.set(m.adv.Assign(map[netip.Addr]Role{ownedVIP: r}, time.Now()))
}

// best is the box that a router prefers for the VIP, and how many paths it has.
func (r *router) best() (via string, paths int) {
	err := r.gobgp.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: packet.RF_IPv4_UC},
		func(_ packet.NLRI, all []*apiutil.Path) {
			paths = len(all)
			for _, p := range all {
				if p.Best {
					via = p.PeerAddress.String()
				}
			}
		})
	if err != nil {
		r.t.Error(err)
	}
	return via, paths
}

// prefers waits until a router has so many paths to the VIP and prefers that of one.
func (r *router) prefers(m *member, paths int) {
	r.t.Helper()
	eventually(r.t, func() string {
		via, n := r.best()
		if via != m.addr.String() || n != paths {
			return fmt.Sprintf("the router prefers %s of %d paths, want %s of %d:\n%s", via, n, m.addr, paths, strings.Join(r.routes(), "\n"))
		}
		return ""
	})
}

// Routers prefer the owner in each of the three ways, whichever of two boxes it is;
// they fall to the standby when its session ends, and back; and when another box
// becomes the owner, in whatever order the two say so, they never lack a path.
func TestRoutersPreferTheOwner(t *testing.T) {
	for _, tt := range []struct {
		name string
		asn  uint32
		way  Handicap
	}{
		{"MED, external", routerASN, Handicap{}},
		{"MED, internal", boxASN, Handicap{MED: StandbyMED}},
		{"prepend, external", routerASN, Handicap{Prepend: StandbyPrepend}},
		{"LOCAL_PREF, internal", boxASN, Handicap{LocalPref: StandbyLocalPref}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			r := newRouter(t, tt.asn)
			addrs := []netip.Addr{loopback(), loopback()}
			var boxes []*member
			for i, addr := range addrs {
				r.expect(addr, boxASN, nil)
				peer := r.peer("r", addr)
				peer.Standby = tt.way
				boxes = append(boxes, newMember(t, addr, Role(i), []Peer{peer}))
			}
			one, two := boxes[0], boxes[1]
			r.prefers(one, 2)

			never := r.lacks(t)
			two.assign(AsRuled) // the new owner is the first to say so
			one.assign(Standby)
			r.prefers(two, 2)
			two.assign(Standby) // the old owner is
			one.assign(AsRuled)
			r.prefers(one, 2)
			one.assign(Out)
			r.prefers(two, 1)
			one.assign(AsRuled)
			r.prefers(one, 2)
			if err := one.Leave(context.Background()); err != nil {
				t.Error(err)
			}
			r.prefers(two, 1)
			if lacked := never(); lacked > 0 {
				t.Errorf("the router had no path to the VIP %d times", lacked)
			}
			if oneAtATime {
				return // GoBGP starts again beside another one, which is a race of its own
			}
			again := newMember(t, one.addr, AsRuled, []Peer{one.cfg.Peers[0]})
			r.prefers(again, 2)
		})
	}
}

// lacks begins to count how often a router has no path to the VIP, and gives what
// ends that.
func (r *router) lacks(t *testing.T) (end func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	count := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if _, paths := r.best(); paths == 0 {
				n++
			}
			time.Sleep(time.Millisecond)
		}
		count <- n
	}()
	return func() int { cancel(); return <-count }
}
