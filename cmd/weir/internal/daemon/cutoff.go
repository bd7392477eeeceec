package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/config"
)

// The owner of everything also has what others send their packets through: the gateways
// of backends, and the source of masqueraded connections. Usually the last box that can
// serve keeps all that, however unfit it is. But one that nobody can reach any more
// serves nobody, and may be the last only as far as it can see: it would keep the way
// back from the box that has taken over.

// unheardPatience is how long a box that is alone may be without a session with a router
// until it takes itself for cut off: routers that restart are back sooner.
const unheardPatience = 15 * time.Second

// cutOff tells whether nobody can reach this box: no interface where clients or routers
// are carries anything; or no other member is there, of those that were, and either
// nothing at all comes in (a cable was pulled beyond a switch), or there are routers, and
// none has a session with the box. It also tells when time alone may make it so.
func (f *fleet) cutOff(facts facts, now time.Time) (is bool, next time.Time) {
	if f.cfg == nil || f.answer.cfg == nil {
		return false, time.Time{}
	}
	if !slices.ContainsFunc(f.doors, func(name string) bool { return !slices.Contains(facts.darkNames, name) }) {
		return true, time.Time{}
	}
	if facts.quiet && f.alone() {
		return true, time.Time{}
	}
	unheard := len(facts.routers) > 0 && !facts.asked.IsZero() && !facts.heard && f.alone()
	f.unheard.follow(unheard, now)
	if !unheard {
		return false, time.Time{}
	}
	if end := f.unheard.since.Add(unheardPatience); now.Before(end) {
		return false, end
	}
	return true, time.Time{}
}

// doors are the interfaces at which clients or routers are, and what came in there.
type doors struct {
	names   []string
	packets uint64
	since   time.Time // when there were so many
}

// quietAfter is how long nothing may come in until that is strange. Where
// anybody is served something comes; and where nobody is, what is let go is taken up
// again with the first packet.
const quietAfter = 3 * time.Second

// quiet tells whether nothing has come in for long.
func (d *doors) quiet(links string, now time.Time) bool {
	packets := uint64(0)
	for _, name := range d.names {
		text, err := os.ReadFile(filepath.Join(links, name, "statistics", "rx_packets"))
		if err != nil {
			return false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return false
		}
		packets += n
	}
	if len(d.names) == 0 || packets != d.packets || d.since.IsZero() {
		d.packets, d.since = packets, now
	}
	return now.Sub(d.since) >= quietAfter
}

// doorsOf are the interfaces at which clients or routers are: those that matter by
// [cluster] and [l2], but those that lead to backends, if any others are left. Where
// routers lead to the box, [l2] is rather for backends, and those of [cluster] are all.
func doorsOf(cfg *config.Config) []string {
	fleet, l := cfg.Fleet, cfg.L2
	if fleet == nil || l == nil {
		return nil
	}
	names := slices.Clone(fleet.Interfaces)
	if routed := cfg.BGP != nil && len(cfg.BGP.Speaker.Peers) > 0; !routed || len(names) == 0 {
		names = append(names, l.Interfaces...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	doors := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(l.Gateways, func(g config.Gateway) bool { return g.Interface == name })
	})
	if len(doors) == 0 {
		return names
	}
	return doors
}

// alone tells whether there were other members, and none is there.
func (f *fleet) alone() bool {
	for _, v := range f.fellows {
		if v.member.Life == cluster.Alive && !v.member.Suspect {
			return false
		}
	}
	return len(f.fellows) > 0
}
