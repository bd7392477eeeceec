package daemon

import (
	"context"
	"net/http"
	"os"

	"weir/cmd/weir/internal/status"
	statuspage "weir/cmd/weir/internal/web"
)

// handlePage has mux answer with the status page.
func (b *box) handlePage(mux *http.ServeMux) { statuspage.New(pageSource{b}).Register(mux) }

// pageSource is what the status page shows: the same documents that the command line
// gets.
type pageSource struct{ b *box }

// Box implements statuspage.Source.
func (p pageSource) Box(ctx context.Context) statuspage.Box {
	b := p.b
	out := statuspage.Box{Status: b.status(), Health: b.healthDoc(ctx), Neighbors: b.neighbors(), Pools: b.pools()}
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

// Services implements statuspage.Source.
func (p pageSource) Services(ctx context.Context) (status.Services, error) { return p.b.services(ctx) }
