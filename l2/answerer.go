package l2

import (
	"context"
	"log/slog"
	"net/netip"
)

// Answerer answers for addresses. All its methods may be called at any time, from any
// goroutine, before, while and after Run.
type Answerer struct {
	log     *slog.Logger
	changed chan struct{}
}

// New gives an Answerer that does nothing before Run.
func New(log *slog.Logger) *Answerer {
	return &Answerer{log: log, changed: make(chan struct{}, 1)}
}

// Configure replaces the Config. Claims on interfaces that are in the old one and in the
// new one go on undisturbed.
func (a *Answerer) Configure(c Config) {}

// Run opens sockets, follows interfaces that come, go, lose their carrier and get it
// back, and answers, until ctx ends; then it falls silent, and every claim is Idle. It
// may be called again. The error says that this process may not do it at all
// (CAP_NET_RAW), or not on this kernel; trouble with one interface is in Status.
func (a *Answerer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Set changes claims: those in changes are to be as they are there, nil is no more, all
// others stay. A VIP that is released is not answered for from the moment that Set
// returns, and nothing is said about it. Addresses are without a zone; one that is
// mapped (::ffff:192.0.2.1) is the IPv4 address.
func (a *Answerer) Set(changes map[netip.Addr]*Claim) {}

// Fellows says which MACs are other members' (all of their interfaces'); it replaces
// what was said before.
func (a *Answerer) Fellows(fellows map[MAC]Fellow) {}

// Announce tells the neighbours again of all that is held, as after a takeover: for when
// a member came, or a network that was split is whole again.
func (a *Answerer) Announce() {}

// Status tells what is done now.
func (a *Answerer) Status() Status { return Status{} }

// Changed gets a value when a State or an Interface of Status may have changed since the
// last one.
func (a *Answerer) Changed() <-chan struct{} { return a.changed }

// Stronger is the plain rule for Fellow.Wins: whether the box called one keeps a VIP
// that the one called other holds as well. Of two names, one is stronger for about half
// of all VIPs.
func Stronger(one, other string, vip netip.Addr) bool { return rank(one, vip) > rank(other, vip) }
