package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/status"
	"weir/lb"
)

// What others read of routes.

// told is what the Advertiser said of every VIP the last time somebody asked. It is
// never changed once made.
type told struct {
	version uint64
	all     []bgp.Announcement
}

// announcements has the loop look through all VIPs, if something has changed since it
// did; nobody does when nobody asks. Who finds it busy gets what it found the last
// time. It looks at the speaker, too.
func (b *box) announcements(ctx context.Context) []bgp.Announcement {
	if b.announcer == nil {
		return nil
	}
	b.look(0)
	ctx, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	_ = b.do(ctx, func() {
		if a := b.announcer; b.told.Load().version != a.version {
			b.told.Store(&told{a.version, a.adv.All()})
		}
	})
	return b.told.Load().all
}

// speaking is what the loop publishes of its announcer.
type speaking struct {
	asn      uint32
	routerID netip.Addr
	problem  string
}

// speaking gives that, as of now.
func (a *announcer) speaking() speaking {
	if a == nil {
		return speaking{}
	}
	out := speaking{asn: a.cfg.Speaker.ASN, routerID: a.cfg.Speaker.RouterID, problem: errorText(a.badErr)}
	if !out.routerID.IsValid() {
		out.routerID = a.routerID
	}
	return out
}

// neighbors are the routers, as they are now.
func (b *box) neighbors() status.Neighbors {
	v := b.published.Load().speaking
	doc := status.Neighbors{ASN: v.asn, Problem: v.problem, Listen: []string{}, Neighbors: []status.Neighbor{}}
	if b.announcer == nil {
		return doc
	}
	s := b.announcer.speaker.Status()
	doc.RouterID = addrText(v.routerID)
	if doc.Problem == "" {
		doc.Problem = s.Problem
	}
	for _, l := range s.Listen {
		doc.Listen = append(doc.Listen, l.String())
	}
	for _, p := range s.Peers {
		doc.Neighbors = append(doc.Neighbors, neighbor(p))
	}
	return doc
}

func neighbor(p bgp.PeerStatus) status.Neighbor {
	out := status.Neighbor{
		Name: p.Name, Address: addrText(p.Address), ASN: p.ASN, LocalASN: p.LocalASN, State: string(p.State), Since: p.Since,
		Problem: p.Problem, Down: p.Down, DownAt: p.DownAt, NotificationSent: p.Sent, NotificationReceived: p.Received,
		Families: families(p.Families), Received: p.Prefixes, MaxPrefixes: p.MaxPrefixes, Advertised: p.Advertised, Flaps: p.Flaps,
		Hold: p.Hold.Seconds(), Keepalive: p.Keepalive.Seconds(), Authentication: p.Authentication,
		GracefulRestart: status.GracefulRestart{Enabled: p.Restart.Enabled, Seconds: p.Restart.Time.Seconds(), Kept: p.Restart.Kept},
		MessagesSent: status.MessageCounts{
			Updates: p.Messages.SentUpdates, Keepalives: p.Messages.SentKeepalives,
			Notifications: p.Messages.SentNotifications, Total: p.Messages.SentTotal,
		},
		MessagesGot: status.MessageCounts{
			Updates: p.Messages.ReceivedUpdates, Keepalives: p.Messages.ReceivedKeepalives,
			Notifications: p.Messages.ReceivedNotifications, Total: p.Messages.ReceivedTotal,
		},
	}
	if p.Range.IsValid() {
		out.Range = p.Range.String()
	}
	if p.Local.IsValid() {
		out.Local = p.Local.String()
	}
	if p.BFD.Enabled {
		out.BFD = &status.BFD{State: p.BFD.State, Detect: p.BFD.Detect.Seconds()}
	}
	return out
}

func families(f bgp.Families) []string {
	switch {
	case f.IPv4 && !f.IPv6:
		return []string{lb.IPv4.String()}
	case f.IPv6 && !f.IPv4:
		return []string{lb.IPv6.String()}
	}
	return []string{lb.IPv4.String(), lb.IPv6.String()}
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// glance is a bgp.Status of a while ago.
type glance struct {
	bgp.Status
	at time.Time
}

// glanceAge is how old what the status says of routers may be where nobody asked for
// it: with thousands of routes it costs more than most passes.
const glanceAge = time.Second

// look looks at the speaker, unless somebody has done so not longer than most ago.
func (b *box) look(most time.Duration) bgp.Status {
	if g := b.glanced.Load(); g != nil && time.Since(g.at) < most {
		return g.Status
	}
	s := b.announcer.speaker.Status()
	b.glanced.Store(&glance{s, time.Now()})
	return s
}

// bgpStatus is what is announced, at a glance; nil without [bgp].
func (b *box) bgpStatus() *status.BGP {
	if b.announcer == nil {
		return nil
	}
	v, s := b.published.Load().speaking, b.look(glanceAge)
	doc := &status.BGP{
		ASN: v.asn, RouterID: addrText(v.routerID), Problem: v.problem, Up: []string{}, Down: []status.DownPeer{}, Withheld: map[string]int{},
	}
	if doc.Problem == "" {
		doc.Problem = s.Problem
	}
	for _, p := range s.Peers {
		switch {
		case p.State == bgp.Established:
			doc.Up = append(doc.Up, p.Name)
			if p.Problem != "" {
				doc.Problems = append(doc.Problems, fmt.Sprintf("BGP peer %s: %s", p.Name, p.Problem))
			}
		case !p.Range.IsValid():
			doc.Down = append(doc.Down, status.DownPeer{Name: p.Name, State: string(p.State), Since: p.Since, Why: p.Down})
		}
	}
	for _, x := range b.told.Load().all {
		switch x.Reason {
		case bgp.KeptByFloor:
			doc.Kept++
			doc.Announced++
		case bgp.OnStandby:
			doc.Standby++
			doc.Announced++
		case bgp.Announced, bgp.Draining:
			doc.Announced++
		default:
			doc.Withheld[string(x.Reason)]++
		}
	}
	return doc
}

// routes is what routers are told; with a peer, what that one is.
func (b *box) routes(ctx context.Context, peer string) (status.Routes, error) {
	doc := status.Routes{Peer: peer, Routes: []status.Route{}, Withheld: []status.WithheldVIP{}}
	if b.announcer == nil {
		return doc, nil
	}
	all := b.announcements(ctx)
	n, s := b.neighbors(), b.look(glanceAge)
	doc.ASN, doc.Problem = n.ASN, n.Problem
	if peer != "" && !slices.ContainsFunc(n.Neighbors, func(x status.Neighbor) bool { return x.Name == peer }) {
		return doc, fmt.Errorf("there is no peer %q: see weir bgp neighbors", peer)
	}
	of := map[netip.Prefix]map[string][]bgp.Announcement{} // by the peers that hear them
	for _, x := range all {
		heard := false
		for _, h := range x.Peers {
			if announced(h.Reason) && (peer == "" || h.Peer == peer) {
				heard = true
				if of[h.Prefix] == nil {
					of[h.Prefix] = map[string][]bgp.Announcement{}
				}
				of[h.Prefix][h.Peer] = append(of[h.Prefix][h.Peer], x)
			}
		}
		if !heard {
			doc.Withheld = append(doc.Withheld, withheld(x, peer))
		}
	}
	for _, r := range s.Routes {
		if peer == "" || slices.Contains(r.Path.Peers, peer) {
			doc.Routes = append(doc.Routes, route(r, peer, of[r.Prefix]))
		}
	}
	return doc, nil
}

// announced tells whether a peer hears of something for a reason.
func announced(r bgp.Reason) bool {
	return r == bgp.Announced || r == bgp.OnStandby || r == bgp.KeptByFloor || r == bgp.Draining
}

// route gives one path of a prefix; of are the VIPs that it stands for, by peer.
func route(r bgp.RouteStatus, peer string, of map[string][]bgp.Announcement) status.Route {
	out := status.Route{
		Prefix: r.Prefix.String(), VIPs: []status.VIPRoute{}, LocalPref: given(r.Path.LocalPref), MED: given(r.Path.MED), Prepend: r.Path.Prepend,
		Communities: []string{}, LargeCommunities: []string{}, Peers: r.Path.Peers, Advertised: []status.Advertised{},
	}
	if peer != "" {
		out.Peers = []string{peer}
	}
	for _, c := range r.Path.Communities {
		out.Communities = append(out.Communities, c.String())
	}
	for _, c := range r.Path.LargeCommunities {
		out.LargeCommunities = append(out.LargeCommunities, c.String())
	}
	for _, a := range r.Peers {
		if peer == "" || a.Name == peer {
			out.Advertised = append(out.Advertised, status.Advertised{
				Peer: a.Name, Address: addrText(a.Address), NextHop: addrText(a.NextHop), ASPath: slices.Concat([]uint32{}, a.ASPath),
			})
		}
	}
	for _, p := range out.Peers {
		if vips := of[p]; len(vips) > 0 {
			for _, x := range vips {
				out.VIPs = append(out.VIPs, status.VIPRoute{Address: x.Addr.String(), State: string(x.Reason), Services: servicesOf(x)})
			}
			break // those of all these peers are the same
		}
	}
	return out
}

func given(m bgp.Metric) *uint32 {
	if !m.Given {
		return nil
	}
	return &m.Value
}

// servicesOf are those that serve a VIP.
func servicesOf(x bgp.Announcement) []string {
	out := []string{}
	for _, s := range x.Serves {
		out = append(out, s.Service.String())
	}
	return slices.Compact(out)
}

// withheld says why nobody hears of a VIP, or why a peer does not.
func withheld(x bgp.Announcement, peer string) status.WithheldVIP {
	reason := x.Reason
	for _, h := range x.Peers {
		if h.Peer == peer {
			reason = h.Reason
		}
	}
	out := status.WithheldVIP{
		Address: x.Addr.String(), Reason: string(reason), Text: status.TextOf(string(reason)), Since: x.Since, Until: x.Until, Services: servicesOf(x),
	}
	return out
}

// announcement says what there is to say of one VIP's routes, a line each.
func announcement(x bgp.Announcement) status.Announcement {
	out := status.Announcement{State: string(x.Reason), Text: status.TextOf(string(x.Reason)), Since: x.Since, Until: x.Until, Peers: []status.Hearing{}}
	if x.Role != bgp.AsRuled {
		out.Role = x.Role.String()
	}
	for _, h := range x.Peers {
		y := status.Hearing{Peer: h.Peer, State: string(h.Reason), Rule: h.Rule, Text: status.TextOf(string(h.Reason))}
		if h.Prefix.IsValid() {
			y.Prefix = h.Prefix.String()
		}
		out.Peers = append(out.Peers, y)
	}
	return out
}

// ParseVIPs reads addresses of the command line.
func ParseVIPs(texts []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, t := range texts {
		a, err := netip.ParseAddr(strings.TrimSpace(t))
		if err != nil {
			return nil, fmt.Errorf("%q is not an address", t)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}
