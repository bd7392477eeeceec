package announce

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"weir/bgp"
	"weir/bgp/advertise"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/explain"
	"weir/cmd/weir/internal/status/routing"
)

// Reader returns the sessions, the routes and the withheld VIPs to operators. It is safe for concurrent use. Nil has none.
type Reader struct {
	announcer *Announcer // read in the loop only
	speaker   Speaker
	ask       func(ctx context.Context, f func()) error

	vips      atomic.Pointer[vips]
	speaking  atomic.Pointer[speaking]
	refreshed atomic.Pointer[snapshot]
}

// vips are all VIPs at a version of the Announcer. They do not change.
type vips struct {
	version uint64
	all     []advertise.Announcement
}

// speaking is the state of the session, as the loop has published it.
type speaking struct {
	asn      uint32
	routerID netip.Addr
	problem  string
}

// snapshot is the state of the speaker a while ago.
type snapshot struct {
	bgp.Status
	at time.Time
}

const (
	// SnapshotAge is the maximal age of a snapshot in the status: with thousands of routes it costs more than most
	// passes.
	SnapshotAge = time.Second
	// loopPatience bounds how long a question waits for the loop.
	loopPatience = 2 * time.Second
)

func newReader(a *Announcer, o Options) *Reader {
	r := &Reader{announcer: a, speaker: o.Speaker, ask: o.Ask}
	r.vips.Store(&vips{})
	return r
}

// Publish publishes the state of the session for the Reader.
func (a *Announcer) Publish() {
	if a == nil {
		return
	}
	s := &speaking{asn: a.cfg.Speaker.ASN, routerID: a.cfg.Speaker.RouterID, problem: status.ErrorText(a.session.err)}
	if !s.routerID.IsValid() {
		s.routerID = a.session.routerID
	}
	a.reader.speaking.Store(s)
}

// Refresh returns all VIPs and their routes. The loop lists them only if they have changed and a reader asks; while it
// is busy, the last list is returned. Refresh takes a new snapshot of the speaker, too.
func (r *Reader) Refresh(ctx context.Context) []advertise.Announcement {
	if r == nil {
		return nil
	}
	r.Snapshot(0)
	ctx, cancel := context.WithTimeout(ctx, loopPatience)
	defer cancel()
	_ = r.ask(ctx, func() {
		if a := r.announcer; r.vips.Load().version != a.version {
			r.vips.Store(&vips{a.version, a.adv.All()})
		}
	})
	return r.vips.Load().all
}

// Snapshot returns the state of the speaker, at most as old as given; the zero value without [bgp].
func (r *Reader) Snapshot(age time.Duration) bgp.Status {
	if r == nil {
		return bgp.Status{}
	}
	if last := r.refreshed.Load(); last != nil && time.Since(last.at) < age {
		return last.Status
	}
	s := r.speaker.Status()
	r.refreshed.Store(&snapshot{s, time.Now()})
	return s
}

// Neighbors returns the current sessions.
func (r *Reader) Neighbors() routing.Neighbors {
	doc := routing.Neighbors{Listen: []string{}, Neighbors: []routing.Neighbor{}}
	if r == nil {
		return doc
	}
	v, s := r.speaking.Load(), r.speaker.Status()
	doc.ASN, doc.RouterID, doc.Problem = v.asn, addrText(v.routerID), cmp.Or(v.problem, s.Problem)
	for _, l := range s.Listen {
		doc.Listen = append(doc.Listen, l.String())
	}
	for _, p := range s.Peers {
		doc.Neighbors = append(doc.Neighbors, neighbor(p))
	}
	return doc
}

// Status returns a summary of the sessions and routes; nil without [bgp].
func (r *Reader) Status() *status.BGP {
	if r == nil {
		return nil
	}
	v, s := r.speaking.Load(), r.Snapshot(SnapshotAge)
	doc := &status.BGP{
		ASN: v.asn, RouterID: addrText(v.routerID), Problem: cmp.Or(v.problem, s.Problem),
		Up: []string{}, Down: []status.DownPeer{}, Withheld: map[string]int{},
	}
	for _, p := range s.Peers {
		switch {
		case p.State == bgp.Established:
			doc.Up = append(doc.Up, p.Name)
			if p.Problem != "" {
				doc.Problems = append(doc.Problems, fmt.Sprintf("BGP peer %s: %s", p.Name, p.Problem))
			}
		case !p.Range.IsValid():
			doc.Down = append(doc.Down, status.DownPeer{Name: p.Name, State: string(p.State), Since: p.Since, Reason: p.Down})
		}
	}
	for _, x := range r.vips.Load().all {
		switch x.Reason {
		case advertise.MinAnnounced:
			doc.MinAnnounced++
			doc.Announced++
		case advertise.OnStandby:
			doc.Standby++
			doc.Announced++
		case advertise.Announced, advertise.Draining:
			doc.Announced++
		default:
			doc.Withheld[string(x.Reason)]++
		}
	}
	return doc
}

// Routes returns the routes and the withheld VIPs; with a peer, those for that peer.
func (r *Reader) Routes(ctx context.Context, peer string) (routing.Routes, error) {
	doc := routing.Routes{Peer: peer, Routes: []routing.Route{}, Withheld: []routing.WithheldVIP{}}
	if r == nil {
		return doc, nil
	}
	all := r.Refresh(ctx)
	n, s := r.Neighbors(), r.Snapshot(SnapshotAge)
	doc.ASN, doc.Problem = n.ASN, n.Problem
	if peer != "" && !slices.ContainsFunc(n.Neighbors, func(x routing.Neighbor) bool { return x.Name == peer }) {
		return doc, fmt.Errorf("there is no peer %q: see weir bgp neighbors", peer)
	}
	of := map[netip.Prefix]map[string][]advertise.Announcement{} // by the peers that get them
	for _, x := range all {
		sent := false
		for _, h := range x.Peers {
			if announced(h.Reason) && (peer == "" || h.Peer == peer) {
				sent = true
				if of[h.Prefix] == nil {
					of[h.Prefix] = map[string][]advertise.Announcement{}
				}
				of[h.Prefix][h.Peer] = append(of[h.Prefix][h.Peer], x)
			}
		}
		if !sent {
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

// Explain returns the routes of one VIP; nil if it is not known.
func (r *Reader) Explain(addr netip.Addr) *explain.Announcement {
	if r == nil {
		return nil
	}
	for _, x := range r.vips.Load().all {
		if x.Addr == addr {
			a, up := announcement(x), r.Status().Up
			for i := range a.Peers {
				a.Peers[i].Up = slices.Contains(up, a.Peers[i].Peer)
			}
			return &a
		}
	}
	return nil
}
