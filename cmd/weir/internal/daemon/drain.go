package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/lb"
	"weir/lb/linux"
)

// What operators ask about routes, and weir drain.

// handleRoutes answers the command line.
func (b *box) handleRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /bgp/neighbors", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.neighbors(), nil) })
	mux.HandleFunc("GET /bgp/routes", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.routes(r.Context(), r.FormValue("peer"))
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /plan", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.plan(r.Context(), r.FormValue("file"))
		reply(w, doc, err)
	})
	mux.HandleFunc("GET /drain", func(w http.ResponseWriter, r *http.Request) {
		doc, err := b.draining(r.Context())
		reply(w, doc, err)
	})
	change := func(f func(ctx context.Context, vips []netip.Addr) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			vips, err := drainQuery(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			if err := f(r.Context(), vips); err != nil {
				reply(w, nil, err)
				return
			}
			doc, err := b.draining(r.Context())
			reply(w, doc, err)
		}
	}
	mux.HandleFunc("POST /drain", change(b.drain))
	mux.HandleFunc("POST /undrain", change(b.undrain))
}

// drainQuery reads which VIPs are meant: vip=ADDRESS, as often as needed, or all=true.
// Nothing that can't be read may come to mean the whole box.
func drainQuery(r *http.Request) ([]netip.Addr, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	for key := range r.Form {
		if key != "vip" && key != "all" {
			return nil, fmt.Errorf("%q is not known: write vip=ADDRESS or all=true", key)
		}
	}
	vips, err := ParseVIPs(r.Form["vip"])
	switch all := r.Form.Get("all"); {
	case err != nil:
		return nil, err
	case (all == "true") == (len(vips) > 0) || all != "" && all != "true":
		return nil, fmt.Errorf("write vip=ADDRESS or all=true, one of them")
	}
	return vips, nil
}

// errNoBGP is for those who want to change routes that there are not.
var errNoBGP = fmt.Errorf("there are no routes to withdraw: the configuration has no [bgp]")

// drain begins to drain VIPs; without any, the whole box.
func (b *box) drain(ctx context.Context, vips []netip.Addr) error {
	return b.redrain(ctx, func(d drained) (drained, error) {
		for _, v := range vips {
			if _, ok := b.announcer.adv.Explain(v); !ok && d.since(v).IsZero() {
				return d, fmt.Errorf("%s is no VIP of this box: see weir services", v)
			}
		}
		return d.with(time.Now(), vips...), nil
	})
}

// undrain ends the drain of VIPs; without any, of everything.
func (b *box) undrain(ctx context.Context, vips []netip.Addr) error {
	return b.redrain(ctx, func(d drained) (drained, error) { return d.without(vips...) })
}

// redrain has the loop change what is drained. What can't be written to the disk is in
// force nevertheless: the operator wants it now, and the status says that it will not
// survive.
func (b *box) redrain(ctx context.Context, f func(drained) (drained, error)) error {
	a := b.announcer
	if a == nil {
		return errNoBGP
	}
	var err error
	busy := b.do(ctx, func() {
		var d drained
		if d, err = f(a.drained); err != nil || d.equal(a.drained) && a.drainErr == nil {
			return
		}
		a.drained = d
		if a.drainErr = d.save(a.stateDir); a.drainErr != nil {
			a.log.Error("the drain is in force, but not kept for the next start", "error", a.drainErr)
		}
		a.log.Info("drain", "all", !d.all.IsZero(), "vips", len(d.vips))
		b.stirred = time.Now()
		b.pass(context.WithoutCancel(ctx), b.rec.Sync) // whoever asked may go
	})
	if busy != nil {
		return busy
	}
	return err
}

// draining is what is drained, with the connections that are left.
func (b *box) draining(ctx context.Context) (status.Drained, error) {
	if b.announcer == nil {
		return status.Drained{}, errNoBGP
	}
	doc := *b.published.Load().speaking.drained
	doc.VIPs = slices.Clone(doc.VIPs)
	if doc.All != nil {
		for _, x := range b.announcements(ctx) {
			at := func(v status.DrainedVIP) bool { return v.Address == x.Addr.String() }
			if !slices.ContainsFunc(doc.VIPs, at) {
				doc.VIPs = append(doc.VIPs, status.DrainedVIP{Address: x.Addr.String(), DrainState: *doc.All})
			}
		}
	}
	if len(doc.VIPs) == 0 {
		return doc, nil
	}
	index := map[netip.Addr]int{}
	for i, v := range doc.VIPs {
		index[netip.MustParseAddr(v.Address)] = i
	}
	err := b.kernel.Connections(ctx, func(c linux.Connection) bool {
		if i, ok := index[c.VIP.Addr()]; ok && living(c) {
			doc.VIPs[i].Connections++
		}
		return true
	})
	return doc, err
}

// living tells whether a connection can still carry something. What is in CLOSE or
// TIME_WAIT has ended on both sides, and an entry of port 0 is affinity, which is for
// connections to come.
func living(c linux.Connection) bool {
	switch c.State {
	case "TIME_WAIT", "CLOSE", "CLOSED", "NONE":
		return false
	}
	return c.Client.Port() != 0 || c.Proto == lb.SCTP
}

// explainWay says how an address came here and what routers hear of it.
func (b *box) explainWay(doc *status.Explanation, addr netip.Addr) {
	if b.announcer == nil {
		return
	}
	for _, x := range b.told.Load().all {
		if x.Addr == addr {
			a := announcement(x)
			up := b.bgpStatus().Up
			for i := range a.Peers {
				a.Peers[i].Up = slices.Contains(up, a.Peers[i].Peer)
			}
			doc.Announced = &a
		}
	}
}
