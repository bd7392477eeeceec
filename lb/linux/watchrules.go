package linux

import (
	"context"
	"fmt"
	"time"

	"weir/lb"
)

// pace has the intervals at which Watch checks rules.
type pace struct {
	// poll is the interval for the legacy tables, which have no announcements.
	poll time.Duration
	// minInterval is the minimum time between two checks: each costs one iptables-save.
	minInterval time.Duration
	// tableInterval is the mean time between two checks of weir's own table, which is read without a
	// program. After a quiet time the first tableBurst checks come at once.
	tableInterval time.Duration
}

const tableBurst = 5

var defaultPace = pace{poll: 500 * time.Millisecond, minInterval: 2 * time.Second, tableInterval: 200 * time.Millisecond}

// rulesWatch has the state of each family's rules.
type rulesWatch map[lb.Family]rulesState

// rulesState reports whether a change was announced, and the time of the next check. Checks of
// weir's own table use up time: spent is the end of it. members are those that other programs have removed since
// the last check.
type rulesState struct {
	announced   bool
	next, spent time.Time
	members     []lb.Object
}

// maxLost limits the members that wait for a check. The audit after it finds the others.
const maxLost = 4096

// removed records removed members of a family until the next check.
func (r rulesWatch) removed(f lb.Family, members []lb.Object) {
	now := r[f]
	now.members = append(now.members, members[:min(len(members), maxLost-len(now.members))]...)
	r[f] = now
}

// wait returns the time until the next check that came too early is due.
func (r rulesWatch) wait(now time.Time) time.Duration {
	wait := time.Hour
	for _, of := range r {
		if left := of.next.Sub(now); of.announced && left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// spend records a check of weir's own table.
func (s *rulesState) spend(now time.Time, interval time.Duration) {
	if s.spent.Before(now) {
		s.spent = now
	}
	s.spent = s.spent.Add(interval)
	s.next = s.spent.Add(-(tableBurst - 1) * interval)
}

// checkRules checks the rules of each family with a possible change of its tables.
func (w *watcher) checkRules(ctx context.Context, seen rulesWatch, bits hint, notify func(lb.Event)) {
	for _, f := range w.families() {
		now := seen[f]
		now.announced = now.announced || bits&w.hintFor(f) != 0
		seen[f] = now
		if time.Now().Before(now.next) {
			continue
		}
		lost, checked, err := w.compareRules(ctx, f, now.announced)
		if !checked {
			continue
		}
		lost = append(lost, now.members...)
		now.announced, now.members = false, nil
		now.next = time.Now().Add(w.pace.minInterval)
		switch {
		case err != nil && ctx.Err() == nil:
			notify(lb.Event{Host: true, What: fmt.Sprintf("%s changed and can't be read: %v", lb.Rules{Family: f}, err)})
		case w.hintFor(f) == hintTable(f):
			// Ranges and virtual servers may have changed as well, and members without an announcement: an audit finds
			// them.
			now.spend(time.Now(), w.pace.tableInterval)
			notify(lb.Event{Lost: lost, Host: true, What: fmt.Sprintf("table %s of %s was changed", NFTable, f)})
		case len(lost) > 0:
			now.next = time.Time{}
			notify(lb.Event{Lost: lost, What: lostWhat(lost)})
		}
		seen[f] = now
	}
}

// hintFor returns the hint for changes of the tables with the rules of a family.
func (w *watcher) hintFor(f lb.Family) hint {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.rules[f]; r != nil && r.nft != nil {
		return hintTable(f)
	}
	return hintRules(f)
}

func (w *watcher) families() []lb.Family {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config.Families
}

// compareRules checks the rules of a family if there is a reason.
func (w *watcher) compareRules(ctx context.Context, f lb.Family, announced bool) (lost []lb.Object, checked bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rules[f]
	if _, held := r.inForce(); !held {
		return nil, announced, nil
	}
	if r.backend() == Legacy {
		announced = r.stamp != readStamp(f)
	}
	if !announced {
		return nil, false, nil
	}
	if r.nft != nil {
		lost, err := r.lostFromTable(ctx)
		return lost, true, err
	}
	servers := r.servers()
	if _, err := r.observe(ctx, nil); err != nil {
		return nil, true, err
	}
	if _, held := r.inForce(); !held {
		lost = append(lost, lb.Rules{Family: f})
	}
	return append(lost, lostServers(servers, r.servers())...), true, nil
}

// lostFromTable returns the rules if another program has changed them in weir's own table. If no chain is
// left, it returns the sets that are gone, too, and the virtual servers that were rules. It reads no
// members and no virtual servers, of which there may be thousands.
func (r *rules) lostFromTable(ctx context.Context) ([]lb.Object, error) {
	same, err := r.nft.observe(ctx)
	if err != nil || same || r.nft.former != nil {
		return nil, err
	}
	r.inPlace = false
	lost := []lb.Object{lb.Rules{Family: r.family}}
	if !r.nft.gone {
		return lost, nil
	}
	if r.nft.serves {
		servers, gone, err := r.nat.lostMaps(ctx)
		if err != nil || !gone { // an audit writes all of it in order
			return nil, err
		}
		lost = append(lost, servers...)
	}
	sets, err := nftSetHeads(ctx, r.nft.conn, r.family, r.nft.table)
	if err != nil {
		return nil, err
	}
	for _, set := range lb.Sets() {
		if _, there := sets[set.Name(r.nft.names.prefix, r.family)]; !there {
			lost = append(lost, lb.IPSet{Set: set, Family: r.family})
		}
	}
	return lost, nil
}

// mayUse reports whether a backend is in use or is a candidate.
func (w *watcher) mayUse(b Backend) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rules {
		if r.nft != nil && b == NFTables {
			return true
		}
		for _, p := range r.candidates {
			if p.backend == b {
				return true
			}
		}
	}
	return false
}
