package daemon

import (
	"context"
	"os"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/web"
)

// pageSource is what the status page shows: the same documents that the command line
// gets.
type pageSource struct{ b *box }

// Box implements web.Source.
func (p pageSource) Box(ctx context.Context) web.Box {
	b := p.b
	out := web.Box{Status: b.status(), Health: b.healthDoc(ctx), Neighbors: b.neighbors(), Pools: b.pools()}
	out.Name, _ = os.Hostname() // a page without a name is one, too
	out.Events, _ = b.recent.after(0)
	if routes, err := b.routes(ctx, ""); err == nil {
		out.Withheld = routes.Withheld
	}
	if out.Status.Fleet != nil {
		ctx, cancel := context.WithTimeout(ctx, ownersPatience)
		defer cancel()
		out.Members, _ = b.members(ctx) // who finds the loop busy sees no members this time
	}
	return out
}

// Services implements web.Source.
func (p pageSource) Services(ctx context.Context) (status.Services, error) { return p.b.services(ctx) }
