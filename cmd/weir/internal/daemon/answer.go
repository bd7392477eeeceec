package daemon

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
	"weir/l2"
	"weir/lb"
)

// What the fleet answers ARP and NDP for on this box.

// answerer answers ARP and NDP: an l2.Answerer, or a test's.
type answerer interface {
	Configure(cfg l2.Config)
	Run(ctx context.Context) error
	Changed() <-chan struct{}
	Status() l2.Status
	Set(changes map[netip.Addr]*l2.Claim)
	Fellows(fellows map[l2.MAC]l2.Fellow)
	Announce()
}

// answer is what is answered for. A VIP is claimed when the kernel has been read back
// to serve it and this box owns it, and let go before the kernel ceases to serve it.
type answer struct {
	cfg      *config.L2 // nil without [l2]
	make     func(*slog.Logger) answerer
	answerer answerer // nil before there was an [l2]
	claims   map[netip.Addr]l2.Claim
	fellows  map[l2.MAC]string
	// burst is when neighbors are to be told of all that is held.
	burst pace
	// status is as of the last time that something was said to have changed.
	status  l2.Status
	doc     *status.L2
	doubled []l2.VIP // those of status that a stranger answers for
	// since is when claims were made that are not answered for yet; took hears how long
	// that was.
	since map[netip.Addr]time.Time
	took  func(time.Duration)
}

func newAnswer() answer {
	return answer{
		make:   func(log *slog.Logger) answerer { return l2.New(log) },
		claims: map[netip.Addr]l2.Claim{}, since: map[netip.Addr]time.Time{}, took: func(time.Duration) {},
	}
}

// set makes it what a configuration says.
func (w *answer) set(cfg *config.L2, f *fleet) {
	w.cfg = cfg
	if cfg == nil {
		w.release()
		f.parts.keep("l2", false, nil)
		f.parts.keep("l2 news", false, nil)
		w.status, w.doc, w.doubled = l2.Status{}, nil, nil
		return
	}
	if w.answerer == nil {
		w.answerer = w.make(f.log)
	}
	w.answerer.Configure(l2.Config{Interfaces: cfg.Interfaces, Refresh: cfg.Refresh})
	f.parts.keep("l2", true, w.answerer.Run)
	f.parts.forward("l2", w.answerer.Changed())
}

// want has an address claimed, or not if claim is nil; changes gets what differs.
func (w *answer) want(a netip.Addr, claim *l2.Claim, changes map[netip.Addr]*l2.Claim) {
	before, claimed := w.claims[a]
	switch {
	case claim == nil && claimed:
		delete(w.claims, a)
		delete(w.since, a)
		changes[a] = nil
	case claim != nil && (!claimed || !reflect.DeepEqual(before, *claim)):
		if !claimed {
			w.since[a] = time.Now()
		}
		w.claims[a] = *claim
		changes[a] = claim
	}
}

// tell has changed claims take effect.
func (w *answer) tell(changes map[netip.Addr]*l2.Claim) {
	if w.answerer != nil && len(changes) > 0 {
		w.answerer.Set(changes)
	}
}

// release lets go of everything at once.
func (w *answer) release() {
	changes := map[netip.Addr]*l2.Claim{}
	for a := range w.claims {
		changes[a] = nil
	}
	clear(w.claims)
	clear(w.since)
	w.tell(changes)
}

// burstEvery is how often neighbors are told of all that is held at most because a
// member answers again that did not for a while, which many do where packets get lost.
const burstEvery = 5 * time.Second

// announce tells the neighbors of all that is held, if somebody has come or is back.
func (w *answer) announce(now time.Time) {
	if w.burst.now(now) && w.cfg != nil {
		w.answerer.Announce()
	}
}

// listen takes in what has become of the claims.
func (w *answer) listen() {
	if w.cfg == nil {
		return
	}
	w.status = w.answerer.Status()
	w.doc = l2Doc(w.status)
	w.doubled = nil
	for _, v := range w.status.VIPs {
		if v.Duplicate() {
			w.doubled = append(w.doubled, v)
		}
		if since, waits := w.since[v.Addr]; waits && v.State == l2.Held {
			w.took(v.Since.Sub(since))
			delete(w.since, v.Addr)
		}
	}
}

// meet tells whose MAC addresses are those of other members, if they are others than
// before. Of two that hold one VIP both agree who keeps it: l2.Stronger.
func (w *answer) meet(f *fleet) {
	if w.cfg == nil {
		return
	}
	names := map[l2.MAC]string{}
	for name, v := range f.fellows {
		for _, text := range v.word.macs {
			if mac, ok := parseMAC(text); ok {
				names[mac] = name
			}
		}
	}
	if maps.Equal(names, w.fellows) {
		return
	}
	w.fellows = names
	fellows, me := map[l2.MAC]l2.Fellow{}, f.name()
	for mac, name := range names {
		fellows[mac] = l2.Fellow{Name: name, Wins: func(vip netip.Addr) bool { return l2.Stronger(name, me, vip) }}
	}
	w.answerer.Fellows(fellows)
}

// claimOf is how an address is to be claimed that this box owns; nil if nobody is to
// answer for it.
func (f *fleet) claimOf(a netip.Addr) *l2.Claim {
	w := &f.answer
	if w.cfg == nil || f.gated {
		return nil
	}
	if extra, ok := f.extras[a]; ok {
		if f.stand.cutOff {
			return nil
		}
		return &l2.Claim{Interfaces: extra}
	}
	if f.answersFor(a) {
		return &l2.Claim{}
	}
	return nil
}

// answersFor tells whether this box answers for an address when it owns it.
func (f *fleet) answersFor(a netip.Addr) bool {
	if _, extra := f.extras[a]; extra {
		return true
	}
	return f.answer.cfg.Wants(a, f.routes[a])
}

// extrasOf are the addresses that the owner of everything has beside the VIPs, each with
// the interfaces on which it answers for them: the gateways of backends, and what
// masqueraded connections bear, for which backends ask wherever they are, or routers by
// [bgp].
func extrasOf(cfg *config.Config) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	if cfg.L2 == nil {
		if cfg.BGP != nil {
			for _, a := range cfg.Kernel.MasqueradeSource {
				out[a] = nil
			}
		}
		return out
	}
	for _, a := range cfg.Kernel.MasqueradeSource {
		out[a] = cfg.L2.Everywhere()
	}
	for _, g := range cfg.L2.Gateways {
		out[g.Address] = append(out[g.Address], g.Interface)
	}
	return out
}

// duplicates are the VIPs that this box holds and a stranger answers for, and those that
// it can't have for that; each with the Services there.
func (f *fleet) duplicates() []lb.Note {
	var out []lb.Note
	for _, v := range f.answer.doubled {
		note := lb.Note{Reason: lb.DuplicateAddress, Text: v.Addr.String() + " on " + v.Interface + " is " + v.Other.String() + "'s too, which is no member of the fleet: take it off that machine"}
		if v.State == l2.Contested {
			note.Text = v.Addr.String() + " on " + v.Interface + " is " + v.Other.String() + "'s, which is no member of the fleet: nobody here answers for it; take it off that machine"
		}
		serving := f.routes[v.Addr]
		if len(serving) == 0 {
			out = append(out, note)
		}
		for _, s := range serving {
			note.Service = s.Service
			out = append(out, note)
		}
	}
	return slices.Compact(out)
}

// parseMAC reads an Ethernet address.
func parseMAC(text string) (mac l2.MAC, ok bool) {
	hw, err := net.ParseMAC(text)
	if err != nil || len(hw) != len(mac) {
		return mac, false
	}
	copy(mac[:], hw)
	return mac, true
}
