package lb

import (
	"context"
	"time"
)

// repair is when objects that a reading found missing are written again.
type repair struct {
	synced time.Time // the last Sync
	due    time.Time // zero: nothing is missing
	// vain has the frontends of which something was missing since that Sync, with the number of Syncs in turn. before are
	// those of the Sync before.
	vain, before map[Frontend]int
}

// maxRepairPause limits the pause between repairs of objects that never stay in the kernel.
const maxRepairPause = 10 * time.Second

// begin records a Sync, which repairs everything.
func (p *repair) begin(now time.Time) {
	p.synced, p.due, p.vain, p.before = now, time.Time{}, nil, p.vain
}

// plan plans the next repair after a reading: at once for the first of a frontend, and later each time that the one before
// was in vain.
func (p *repair) plan(missing map[Frontend]bool) {
	for f := range missing {
		n, due := p.before[f], p.synced
		if n > 0 {
			due = due.Add(min(time.Second<<min(n-1, 10), maxRepairPause))
		}
		p.due = earliest(p.due, due)
		if p.vain == nil {
			p.vain = map[Frontend]int{}
		}
		p.vain[f] = n + 1
	}
}

// readBack reads the virtual servers of routes that were written since they were last read. It
// records missing and different objects, and reports whether there are some: the next Sync repairs
// them, and is due at once.
func (t *routes) readBack(ctx context.Context, k Kernel, fresh []Route) (lacking bool, err error) {
	if len(t.have.unread) == 0 {
		return false, nil
	}
	var frontends []Frontend
	expected := map[Object]Object{}
	for _, route := range fresh {
		for _, s := range route.Serves {
			for _, o := range t.objectsAt(s.Service, route.Addr) {
				switch f, _ := frontendOf(o); o.kind() {
				case kindVirtualServer:
					if _, unread := t.have.unread[f]; unread {
						frontends = append(frontends, f)
						expected[o.ID()] = o
					}
				case kindRealServer:
					if _, unread := t.have.unread[f]; unread {
						expected[o.ID()] = o
					}
				}
			}
		}
	}
	if len(frontends) == 0 {
		return false, nil
	}
	obs, err := k.Observe(ctx, nil, frontends...)
	if err != nil {
		return false, err
	}
	missing := map[Frontend]bool{}
	for id, o := range expected {
		if now, _ := obs.Objects.Get(id); now != o {
			f, _ := frontendOf(id)
			missing[f] = true
			t.have.record(id, nil)
			t.touched[id] = struct{}{}
			t.touch(id) // a given mark has more addresses
		}
	}
	for _, f := range frontends {
		if !missing[f] {
			delete(t.have.unread, f)
		}
	}
	t.repair.plan(missing)
	return len(missing) > 0, nil
}
