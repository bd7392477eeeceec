package announce

import (
	"net/netip"
	"slices"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/status/explain"
	"weir/cmd/weir/internal/status/routing"
	"weir/lb"
)

func neighbor(p bgp.PeerStatus) routing.Neighbor {
	out := routing.Neighbor{
		Name: p.Name, Address: addrText(p.Address), ASN: p.ASN, LocalASN: p.LocalASN, State: string(p.State), Since: p.Since,
		Problem: p.Problem, Down: p.Down, DownAt: p.DownAt, NotificationSent: p.Sent, NotificationReceived: p.Received,
		Families: families(p.Families), Received: p.Prefixes, MaxPrefixes: p.MaxPrefixes, Advertised: p.Advertised, Flaps: p.Flaps,
		Hold: p.Hold.Seconds(), Keepalive: p.Keepalive.Seconds(), Authentication: p.Authentication,
		GracefulRestart: routing.GracefulRestart{Enabled: p.Restart.Enabled, Seconds: p.Restart.Time.Seconds(), Retained: p.Restart.Kept},
		MessagesSent: routing.MessageCounts{
			Updates: p.Messages.SentUpdates, Keepalives: p.Messages.SentKeepalives,
			Notifications: p.Messages.SentNotifications, Total: p.Messages.SentTotal,
		},
		MessagesGot: routing.MessageCounts{
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
		out.BFD = &routing.BFD{State: p.BFD.State, Detect: p.BFD.Detect.Seconds()}
	}
	return out
}

// families returns the families of a session: none, if its router has none of weir's.
func families(f advertise.Families) []string {
	out := []string{}
	if f.IPv4 {
		out = append(out, lb.IPv4.String())
	}
	if f.IPv6 {
		out = append(out, lb.IPv6.String())
	}
	return out
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// announced reports whether a peer gets a route, by its reason.
func announced(r advertise.Reason) bool {
	return r == advertise.Announced || r == advertise.OnStandby || r == advertise.MinAnnounced || r == advertise.Draining
}

// route returns one path of a prefix; of are the VIPs that it covers, by peer.
func route(r bgp.RouteStatus, peer string, of map[string][]advertise.Announcement) routing.Route {
	out := routing.Route{
		Prefix: r.Prefix.String(), VIPs: []routing.VIPRoute{}, LocalPref: given(r.Path.LocalPref), MED: given(r.Path.MED), Prepend: r.Path.Prepend,
		Communities: []string{}, LargeCommunities: []string{}, Peers: r.Path.Peers, Advertised: []routing.Advertised{},
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
			out.Advertised = append(out.Advertised, routing.Advertised{
				Peer: a.Name, Address: addrText(a.Address), NextHop: addrText(a.NextHop), ASPath: slices.Concat([]uint32{}, a.ASPath),
			})
		}
	}
	for _, p := range out.Peers {
		if vips := of[p]; len(vips) > 0 {
			for _, x := range vips {
				out.VIPs = append(out.VIPs, routing.VIPRoute{Address: x.Addr.String(), State: string(x.Reason), Services: servicesOf(x)})
			}
			break // those of all these peers are the same
		}
	}
	return out
}

func given(m advertise.Metric) *uint32 {
	if !m.Given {
		return nil
	}
	return &m.Value
}

// servicesOf returns the Services of a VIP.
func servicesOf(x advertise.Announcement) []string {
	out := []string{}
	for _, s := range x.Serves {
		out = append(out, s.Service.String())
	}
	return slices.Compact(out)
}

// withheld returns a VIP without a route, or without a route to a peer, with the reason.
func withheld(x advertise.Announcement, peer string) routing.WithheldVIP {
	reason := x.Reason
	for _, h := range x.Peers {
		if h.Peer == peer {
			reason = h.Reason
		}
	}
	out := routing.WithheldVIP{
		Address: x.Addr.String(), Reason: string(reason), Text: routing.TextOf(string(reason)), Since: x.Since, Until: x.Until, Services: servicesOf(x),
	}
	return out
}

// announcement returns the routes of one VIP, by peer.
func announcement(x advertise.Announcement) explain.Announcement {
	out := explain.Announcement{State: string(x.Reason), Text: routing.TextOf(string(x.Reason)), Since: x.Since, Until: x.Until, Peers: []explain.PeerRoute{}}
	if x.Role != advertise.AsRuled {
		out.Role = x.Role.String()
	}
	for _, h := range x.Peers {
		y := explain.PeerRoute{Peer: h.Peer, State: string(h.Reason), Rule: h.Rule, Text: routing.TextOf(string(h.Reason))}
		if h.Prefix.IsValid() {
			y.Prefix = h.Prefix.String()
		}
		out.Peers = append(out.Peers, y)
	}
	return out
}
