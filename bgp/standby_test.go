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

	"weir/bgp/advertise"
	"weir/lb"
)

// member is a box of a fleet: its decisions, and its speaker.
type member struct {
	*box
	adv *advertise.Advertiser
}

var ownedVIP = netip.MustParseAddr("192.0.2.1")

// newMember makes one that serves a VIP and announces it to routers in a role.
func newMember(t *testing.T, addr netip.Addr, role advertise.Role, standby advertise.Handicap, peers []Peer) *member {
	t.Helper()
	m := &member{newBoxAt(t, addr), advertise.New()}
	var to []advertise.Peer
	for i := range peers {
		peers[i].Source = addr
		to = append(to, advertise.Peer{Name: peers[i].Name, Families: peers[i].Families, Standby: standby})
	}
	now := time.Now()
	m.set(m.adv.Configure(advertise.Policy{Rules: advertise.Rules(nil, nil), Peers: to}, now))
	m.assign(role)
	m.set(m.adv.Take([]lb.Route{{Addr: ownedVIP, Serves: []lb.Serving{{Service: lb.ServiceID{Source: "static", Name: "web"}, Kind: lb.LoadBalancer}}}}, nil, now))
	m.configure(func(c *Config) { c.Peers = peers })
	return m
}

func (m *member) assign(r advertise.Role) {
	m.t.Helper()
	m.set(m.adv.Assign(map[netip.Addr]advertise.Role{ownedVIP: r}, time.Now()))
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
// becomes the owner, in whatever order the two announce it, they never lack a path.
func TestRoutersPreferTheOwner(t *testing.T) {
	for _, tt := range []struct {
		name string
		asn  uint32
		way  advertise.Handicap
	}{
		{"MED, external", routerASN, advertise.Handicap{}},
		{"MED, internal", boxASN, advertise.Handicap{MED: advertise.StandbyMED}},
		{"prepend, external", routerASN, advertise.Handicap{Prepend: advertise.StandbyPrepend}},
		{"LOCAL_PREF, internal", boxASN, advertise.Handicap{LocalPref: advertise.StandbyLocalPref}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			r := newRouter(t, tt.asn)
			addrs := []netip.Addr{loopback(), loopback()}
			var boxes []*member
			for i, addr := range addrs {
				r.expect(addr, boxASN, nil)
				peer := r.peer("r", addr)
				boxes = append(boxes, newMember(t, addr, advertise.Role(i), tt.way, []Peer{peer}))
			}
			one, two := boxes[0], boxes[1]
			r.prefers(one, 2)

			never := r.lacks(t)
			two.assign(advertise.AsRuled) // the new owner is the first to announce it
			one.assign(advertise.Standby)
			r.prefers(two, 2)
			two.assign(advertise.Standby) // the old owner is
			one.assign(advertise.AsRuled)
			r.prefers(one, 2)
			one.assign(advertise.Out)
			r.prefers(two, 1)
			one.assign(advertise.AsRuled)
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
			again := newMember(t, one.addr, advertise.AsRuled, tt.way, []Peer{one.cfg.Peers[0]})
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
