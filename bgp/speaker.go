package bgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
)

// Speaker keeps sessions with the peers of a Config and announces what Set says.
// Its methods are safe for concurrent use.
type Speaker struct {
	log *slog.Logger
}

var errNotYet = errors.New("bgp: not yet")

// New gives a Speaker that does nothing until it is configured.
func New(log *slog.Logger) *Speaker { return &Speaker{log: log} }

// Configure makes the sessions those of cfg. Only what differs is touched: an equal
// Peer keeps its session, another one is reset alone. A change of the ASN, the
// router ID or the listener starts all sessions anew, routes kept. The error is one
// of cfg, in which case nothing has changed; a port that can't be bound or a router
// that can't be reached is no error but in Status, and tried again.
func (s *Speaker) Configure(ctx context.Context, cfg Config) error { return errNotYet }

// Set says what is announced of the given prefixes from now on: exactly these paths,
// and none to withdraw. Prefixes that are not in the map stay as they are. A call
// that changes nothing costs nothing and sends nothing.
//
// It never waits for GoBGP or for a router: changes are taken along, the last one of
// a prefix wins, and Settled tells when they are through. What is Set before
// Configure is announced once there are sessions. An error is one of the paths
// (a prefix with host bits, a peer in two paths); then nothing of the map is taken.
func (s *Speaker) Set(changes map[netip.Prefix][]Path) error { return errNotYet }

// Settled waits until GoBGP has all that was Set before.
func (s *Speaker) Settled(ctx context.Context) error { return errNotYet }

// Status tells how things are.
func (s *Speaker) Status() Status { return Status{} }

// Close ends everything without a NOTIFICATION: the routers see the connection end
// and, with graceful restart, keep the routes for the time agreed. That is the way
// to stop when another weir starts soon and the kernel forwards meanwhile.
func (s *Speaker) Close() error { return errNotYet }

// Leave withdraws every route, gives the routers until ctx is done to take it (they
// mostly need milliseconds), then ends the sessions with a Cease and closes.
func (s *Speaker) Leave(ctx context.Context) error { return errNotYet }
