package l2

import (
	"log/slog"
	"maps"
	"slices"
	"time"
)

// notes tells the log what has become of claims: by numbers, as there may be thousands,
// at most once a second for each interface; and of strangers, as someone must look.
type notes struct {
	log  *slog.Logger
	told map[string]counts
	last time.Time
}

// counts are claims by state.
type counts [Held + 1]int

const (
	tellGap = time.Second
	// tellStrangers are told at once, the others by number.
	tellStrangers = 5
)

// tell tells what is new, and when to come again; the zero Time is when something has
// changed.
func (n *notes) tell(a *Answerer) (next time.Time) {
	now := time.Now()
	if due := n.last.Add(tellGap); now.Before(due) {
		return due
	}
	strangers, counted := n.take(a)
	said := len(strangers) > 0
	for i, s := range strangers {
		if i == tellStrangers {
			n.log.Warn("strangers have more addresses that this box is to answer for", "vips", len(strangers)-i)
			break
		}
		n.log.Warn("a stranger has an address that this box is to answer for", "vip", s.vip, "interface", s.link, "mac", s.mac)
	}
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		c := counted[name]
		if c[Probing] > 0 { // soon they are something else
			counted[name] = n.told[name]
			continue
		}
		if c == n.told[name] {
			continue
		}
		said = true
		n.log.Info("answering", "interface", name, "held", c[Held], "contested", c[Contested], "idle", c[Idle])
	}
	n.told = counted
	if !said {
		return time.Time{}
	}
	n.last = now
	return now.Add(tellGap)
}

func (n *notes) take(a *Answerer) ([]stranger, map[string]counts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	strangers := a.engine.strangers
	a.engine.strangers = nil
	counted := map[string]counts{}
	for name, l := range a.engine.links {
		counted[name] = l.count
	}
	return strangers, counted
}
