package l2

import (
	"log/slog"
	"maps"
	"slices"
	"time"
)

// summary logs the state of claims: by numbers, since there may be thousands, and at most
// once a second for each interface. Foreign hosts are logged one by one.
type summary struct {
	log     *slog.Logger
	logged  map[string]stateCounts
	last    time.Time
	foreign time.Time // when foreign hosts were last logged
}

// stateCounts are numbers of bindings by state.
type stateCounts [Answered + 1]int

const (
	logInterval = time.Second
	// foreignInterval is that of foreign hosts: one host can use any number of MAC addresses.
	foreignInterval = time.Minute
	// maxLoggedForeign uses of foreign hosts are logged one by one, the rest as a number.
	maxLoggedForeign = 5
)

// write logs what is new. It returns when to call again; the zero Time: when something has
// changed.
func (n *summary) write(a *Answerer) (next time.Time) {
	now := time.Now()
	if due := n.last.Add(logInterval); now.Before(due) {
		return due
	}
	foreign, counted := n.take(a, now)
	logged := len(foreign) > 0
	if logged {
		n.foreign = now
	}
	for i, s := range foreign {
		if i == maxLoggedForeign {
			n.log.Warn("more VIPs used by other hosts", "vips", len(foreign)-i)
			break
		}
		if s.overruled {
			n.log.Warn("VIP taken over although another host answers", "vip", s.vip, "interface", s.link, "mac", s.mac, "member", s.member,
				"reason", "its owner is dead, and the host only answers probes: proxy ARP or ARP suppression")
			continue
		}
		n.log.Warn("VIP used by a foreign host", "vip", s.vip, "interface", s.link, "mac", s.mac)
	}
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		c := counted[name]
		if c[Probing] > 0 { // they change state soon
			counted[name] = n.logged[name]
			continue
		}
		if c == n.logged[name] {
			continue
		}
		logged = true
		n.log.Info("claims changed", "interface", name, "answered", c[Answered], "contested", c[Contested], "idle", c[Idle])
	}
	n.logged = counted
	if !logged {
		return n.due(a)
	}
	n.last = now
	return now.Add(logInterval)
}

// due returns when the foreign hosts that wait are logged; the zero Time if there is none.
func (n *summary) due(a *Answerer) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.engine.foreign) == 0 {
		return time.Time{}
	}
	return n.foreign.Add(foreignInterval)
}

// take returns the foreign hosts to log now, and the numbers of bindings.
func (n *summary) take(a *Answerer, now time.Time) (foreign []foreignUse, counted map[string]stateCounts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(n.foreign) >= foreignInterval {
		foreign, a.engine.foreign = a.engine.foreign, nil
	}
	counted = map[string]stateCounts{}
	for name, l := range a.engine.links {
		counted[name] = l.count
	}
	return foreign, counted
}
