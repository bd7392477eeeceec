package bgp

import (
	"context"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// The limits for pending routers. Each has a peer of GoBGP, of half a MB, until weir removes it: a host that connects from many
// addresses of a range must not use all memory.
const (
	mostPending = 256              // the oldest of more are removed
	pendingTime = 30 * time.Second // to establish a session
)

// pending has the routers of ranges without a session, as GoBGP has them, and the times since when.
type pending map[string]time.Time

// after returns those of now, of which GoBGP has all that wait, and those that must end.
func (s pending) after(waiting []string, now time.Time) (next pending, end []string) {
	next = pending{}
	for _, addr := range waiting {
		next[addr] = now
		if before, known := s[addr]; known {
			next[addr] = before
		}
	}
	slices.SortStableFunc(waiting, func(a, b string) int { return next[a].Compare(next[b]) })
	for i, addr := range waiting {
		if i < len(waiting)-mostPending || now.Sub(next[addr]) >= pendingTime {
			end = append(end, addr)
		}
	}
	for _, addr := range end {
		delete(next, addr)
	}
	return next, end
}

// end removes those of GoBGP that have no session for too long, or are too many.
func (s *pending) end(g *server.BgpServer, b *sessions, waiting []string, now time.Time) {
	var end []string
	*s, end = s.after(waiting, now)
	for _, addr := range end {
		_ = g.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: addr}) // an error: it has gone
		b.forget(addr)
	}
}
