package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/config"
	"weir/lb"
)

// What this box tells the fleet of itself, and when.

// say is what has been told, and what has not yet.
type say struct {
	pace  pace
	state cluster.State // without digests
	stale bool          // the VIPs of the Word differ
	older bool          // digests of it do, at most
	macs  []string
	word  word // as it was told last
	err   string
	// digest is of all its sources, serves how many VIPs are in it.
	digest cluster.Digest
	serves int
	// rules are a digest of that part of the configuration which all members must have
	// alike.
	rules cluster.Digest
}

// speak tells the fleet how this box is, if it is time to.
func (f *fleet) speak(now time.Time) {
	if f.gossip == nil || f.stand.begun.IsZero() {
		return
	}
	y := &f.say
	state := f.state()
	switch {
	case state != y.state, y.stale && len(y.word.vips) < manyVIPs:
		y.pace.want(sayEvery, now)
	case y.stale:
		y.pace.want(sayManyEvery, now)
	case y.older:
		y.pace.want(digestsEvery, now)
	}
	if !y.pace.now(now) {
		return
	}
	y.state, y.stale, y.older = state, false, false
	y.word = f.word()
	f.differ.stale = true
	y.digest, y.serves = digestOfAll(y.word.sources), y.word.count(partServes)
	state.Digest = y.digest
	text, err := y.word.encode()
	if err == nil {
		err = f.gossip.Say(state, text)
	}
	if errorText(err) != y.err {
		y.err = errorText(err)
		f.log.Error("the fleet is not told how this box is", "error", err)
	}
}

// tellMACs has the fleet told by which addresses this box is known on the wire.
func (y *say) tellMACs(macs []string) {
	if !slices.Equal(macs, y.macs) {
		y.macs, y.stale = macs, true
	}
}

// word is what this box says of itself at length.
func (f *fleet) word() word {
	w := word{vips: map[netip.Addr]part{}, sources: f.sums.digests(), orders: map[string]string{}, macs: f.say.macs, answers: f.answer.cfg != nil}
	w.sources[rulesSource] = f.say.rules
	add := func(a netip.Addr) {
		var p part
		if f.serves(a) {
			p |= partServes
			if w.answers && !f.answersFor(a) {
				p |= partMute
			}
		}
		if f.has(a) {
			p |= partHolds
		}
		if f.drains(a) {
			p |= partDrains
		}
		if p != 0 {
			w.vips[a] = p
		}
	}
	for a := range f.routes {
		add(a)
	}
	for a := range f.extras {
		add(a)
	}
	if f.orders != nil {
		for frontend, digest := range f.orders() {
			w.orders[frontend.String()] = string(digestOf(digest))
		}
	}
	return w
}

// rulesSource is the source that the rules of the fleet are said to be of.
const rulesSource = "[cluster]"

// digestOfRules is of that part of a configuration by which members decide who owns
// what: those with other rules decide otherwise.
func digestOfRules(cfg *config.Config) cluster.Digest {
	if cfg.Fleet == nil {
		return ""
	}
	b := fmt.Appendf(nil, "%v %v %v", cfg.Fleet.Rules.Mode, cfg.Fleet.Rules.Together, cfg.Fleet.Rules.Stay)
	if l := cfg.L2; l != nil {
		b = fmt.Appendf(b, " l2 %v %v %v %v", l.Kinds, l.Static, l.Pools, cfg.Kernel.MasqueradeSource)
		for _, g := range l.Gateways {
			b = fmt.Appendf(b, " %v", g.Address) // the interface is each box's own
		}
	}
	return cluster.DigestOf(b)
}

// hears takes in what a source says, for what the fleet is told of it.
func (f *fleet) hears(u lb.Update) {
	if f != nil && f.cfg != nil {
		f.sums.take(u)
		f.say.older = true
	}
}
