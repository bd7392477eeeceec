package daemon

import (
	"context"

	"weir/cmd/weir/internal/status"
)

// showOwners says of each virtual server who of the fleet owns its VIP. Who finds the
// loop busy is told nothing of that.
func (b *box) showOwners(ctx context.Context, doc *status.Services) {
	if b.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	_ = b.do(ctx, func() {
		for i := range doc.Frontends {
			b.fleet.showOwner(&doc.Frontends[i])
		}
	})
}

// showOwner says it of one; of a box alone there is nothing to say.
func (f *fleet) showOwner(x *status.Frontend) {
	if v, judged := f.shown(x.Key.Addr); judged && f.cfg != nil {
		x.Owner, x.Role = v.Owner, roleDoc(v.Role)
	}
}
