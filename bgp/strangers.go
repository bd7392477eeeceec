package bgp

import (
	"context"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// The limits for strangers. Each has a peer of GoBGP, of half a MB, until weir removes it: a host that connects from many
// addresses of a range must not use all memory.
const (
	mostStrangers = 256              // the oldest of more are removed
	strangerTime  = 30 * time.Second // to establish a session
)

// strangers are the routers of ranges without a session, as GoBGP has them, and the times since when.
type strangers map[string]time.Time

// after returns those of now, of which GoBGP has all that wait, and those that must end.
func (s strangers) after(waiting []string, now time.Time) (next strangers, end []string) {
	next = strangers{}
	for _, addr := range waiting {
		next[addr] = now
		if before, known := s[addr]; known {
			next[addr] = before
		}
	}
	slices.SortStableFunc(waiting, func(a, b string) int { return next[a].Compare(next[b]) })
	for i, addr := range waiting {
		if i < len(waiting)-mostStrangers || now.Sub(next[addr]) >= strangerTime {
			end = append(end, addr)
		}
	}
	for _, addr := range end {
		delete(next, addr)
	}
	return next, end
}

// end removes those of GoBGP that have no session for too long, or are too many.
func (s *strangers) end(g *server.BgpServer, b *sessions, waiting []string, now time.Time) {
	var end []string
	*s, end = s.after(waiting, now)
	for _, addr := range end {
		_ = g.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: addr}) // an error: it has gone
		b.forget(addr)
	}
}
