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
	"weir/l2"
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
// are carries anything; or no client sends anything, and another member asks for what
// this box has (a cable was pulled beyond a switch, or the network of the clients is
// split), until a client does; or no other member is there, of those that were, there are
// routers, and none has a session with the box. It also tells when time alone may make
// it so.
func (f *fleet) cutOff(facts facts, now time.Time) (is bool, next time.Time) {
	if f.cfg == nil || f.answer.cfg == nil {
		return false, time.Time{}
	}
	if !slices.ContainsFunc(f.doors, func(name string) bool { return !slices.Contains(facts.darkNames, name) }) {
		return true, time.Time{}
	}
	if f.yielded = facts.quiet && (f.yielded || f.wanted(now)); f.yielded {
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

// wantedLately is for how long a member counts as one that asks: it does so every second
// as long as it has no other answer.
const wantedLately = 4 * time.Second

// wanted tells whether another member asks for what the owner of everything has, which
// is here.
func (f *fleet) wanted(now time.Time) bool {
	for a := range f.extras {
		if slices.ContainsFunc(f.seats(a), func(v l2.VIP) bool {
			return v.State == l2.Held && !v.Wanted.IsZero() && now.Sub(v.Wanted) < wantedLately
		}) {
			return true
		}
	}
	return false
}

// doors are the interfaces at which clients or routers are, and what clients have sent.
type doors struct {
	names   []string
	packets uint64
	since   time.Time // when there were so many
}

// quietAfter is how long no client may send anything until it may be that none can.
const quietAfter = 3 * time.Second

// quiet tells whether no client has sent anything for long.
func (d *doors) quiet(links, stats string, now time.Time) bool {
	packets, known := toVIPs(stats)
	if !known {
		if packets, known = d.received(links); !known {
			return false
		}
	}
	if packets != d.packets || d.since.IsZero() {
		d.packets, d.since = packets, now
	}
	return now.Sub(d.since) >= quietAfter
}

// toVIPs is how many packets clients have sent to VIPs since the kernel began
// (net/netfilter/ipvs/ip_vs_ctl.c, ip_vs_stats_show: the second of five numbers in
// hexadecimal, below two lines of headings). A kernel without IPVS does not say.
func toVIPs(stats string) (uint64, bool) {
	text, err := os.ReadFile(stats)
	if err != nil {
		return 0, false
	}
	lines := strings.SplitN(string(text), "\n", 4)
	if len(lines) < 3 {
		return 0, false
	}
	fields := strings.Fields(lines[2])
	if len(fields) < 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[1], 16, 64)
	return n, err == nil
}

// received is how many packets have come in at the doors.
func (d *doors) received(links string) (sum uint64, known bool) {
	for _, name := range d.names {
		text, err := os.ReadFile(filepath.Join(links, name, "statistics", "rx_packets"))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, len(d.names) > 0
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
