package daemon

import (
	"cmp"
	"context"
	"errors"
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
	mux.HandleFunc("POST /drain", b.change(b.drain))
	mux.HandleFunc("POST /undrain", b.change(b.undrain))
}

// which are the VIPs that somebody wants to drain, or not any more.
type which struct {
	vips  []netip.Addr // none: the whole box
	force bool         // even if nobody else can serve them
}

// text is how somebody has asked for them.
func (w which) text() string {
	switch len(w.vips) {
	case 0:
		return "--all"
	case 1:
		return w.vips[0].String()
	}
	return fmt.Sprintf("%s and %d more", w.vips[0], len(w.vips)-1)
}

// change answers those who want to change what is drained.
func (b *box) change(f func(context.Context, which) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		which, err := drainQuery(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := f(r.Context(), which); err != nil {
			reply(w, nil, err)
			return
		}
		doc, err := b.draining(r.Context())
		reply(w, doc, err)
	}
}

// drainQuery reads which VIPs are meant: vip=ADDRESS, as often as needed, or all=true;
// and force=true. Nothing that can't be read may come to mean the whole box.
func drainQuery(r *http.Request) (which, error) {
	if err := r.ParseForm(); err != nil {
		return which{}, err
	}
	for key := range r.Form {
		if key != "vip" && key != "all" && key != "force" {
			return which{}, fmt.Errorf("%q is not known: write vip=ADDRESS or all=true", key)
		}
	}
	vips, err := ParseVIPs(r.Form["vip"])
	all, force := r.Form.Get("all"), r.Form.Get("force")
	switch {
	case err != nil:
		return which{}, err
	case (all == "true") == (len(vips) > 0) || all != "" && all != "true":
		return which{}, fmt.Errorf("write vip=ADDRESS or all=true, one of them")
	case force != "" && force != "true":
		return which{}, fmt.Errorf("write force=true, or leave it out")
	}
	return which{vips, force == "true"}, nil
}

// errNoWay is for those who want to lead clients elsewhere where nothing leads them
// here.
var errNoWay = errors.New("nothing can lead clients to another box: the configuration has no [bgp], no [l2] and no [cluster]")

// drain begins to drain VIPs.
func (b *box) drain(ctx context.Context, w which) error {
	return b.redrain(ctx, "weir drain "+w.text(), func(d drained) (drained, error) {
		known := b.vips()
		for _, v := range w.vips {
			if _, ok := slices.BinarySearchFunc(known, v, netip.Addr.Compare); !ok && d.since(v).IsZero() {
				return d, fmt.Errorf("%s is no VIP of this box: see weir services", v)
			}
		}
		out := d.with(time.Now(), w.vips...)
		if w.force {
			out = out.force(w.vips...)
		}
		return out, nil
	})
}

// undrain ends the drain of VIPs.
func (b *box) undrain(ctx context.Context, w which) error {
	return b.redrain(ctx, "weir undrain "+w.text(), func(d drained) (drained, error) { return d.without(w.vips...) })
}

// redrain has the loop change what is drained.
func (b *box) redrain(ctx context.Context, verb string, f func(drained) (drained, error)) error {
	var err error
	busy := b.do(ctx, func() {
		if err = errNoWay; !leadsElsewhere(b.cfg) {
			return
		}
		var to drained
		if to, err = f(b.drainer.drained); err != nil || to.equal(b.drainer.drained) && b.drainer.err == nil {
			return
		}
		b.drainer.set(to)
		if b.drainer.err != nil {
			b.log.Error("the drain is in force, but not kept for the next start", "error", b.drainer.err)
		}
		b.log.Info("drained from now on", "all", !to.all.IsZero(), "vips", len(to.vips), "because", verb)
		b.stirred = time.Now()
		b.causes.add("%s", verb)
		b.pass(context.WithoutCancel(ctx), b.rec.Sync) // whoever asked may go
	})
	if busy != nil {
		return busy
	}
	return err
}

// draining is what is drained, with the connections that are left.
func (b *box) draining(ctx context.Context) (status.Drained, error) {
	var doc status.Drained
	cant := errNoWay
	busy := b.do(ctx, func() {
		if leadsElsewhere(b.cfg) {
			doc, cant = b.drainedNow(), nil
		}
	})
	if err := cmp.Or(busy, cant); err != nil || len(doc.VIPs) == 0 {
		return doc, err
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

// drainedNow is what is drained, VIP by VIP. The loop calls it.
func (b *box) drainedNow() status.Drained {
	delay := b.drainDelay()
	doc := *b.drainer.doc(delay)
	if doc.All == nil {
		return doc
	}
	for _, a := range b.vips() {
		if b.drainer.drained.vips[a].IsZero() {
			doc.VIPs = append(doc.VIPs, b.drainer.vip(a, doc.All.Since, delay))
		}
	}
	return doc
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
