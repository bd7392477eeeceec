package fleet

import (
	"strings"
	"time"

	"weir/lb/health"
)

const (
	// auditPatience is how long the kernel may be unreadable. It forwards meanwhile, and
	// one failed read proves nothing.
	auditPatience = 3 * time.Second
	// sessionPatience is how long routers have to open a session with a box that starts.
	sessionPatience = 10 * time.Second
	// checkSlack is how late a check may end on a busy box.
	checkSlack = 10 * time.Second
)

// Box are the facts that the daemon knows about this box.
type Box struct {
	// Ready is set once the kernel holds the first state.
	Ready bool
	// NoIPVS is set if the kernel has lost IPVS, and serves no VIP at all.
	NoIPVS bool
	// KernelErr is the error of the last audit.
	KernelErr error
	// Checks are the counters of the health checks, nil if there are none; CheckGroups
	// are the checks.
	Checks      *health.Stats
	CheckGroups []health.Group
	// Routers are the peers that weir opens sessions with; BGPStarted is set once it does.
	Routers    []string
	BGPStarted bool
}

// Links are the facts that the interfaces show.
type Links struct {
	// Down are the reasons that interfaces cannot carry packets, DownNames the interfaces.
	Down, DownNames []string
	MACs            []string // of the interfaces that matter
	SessionUp       bool     // a router has a BGP session
	Idle            bool     // no client has sent a packet for a while
}

// fitness is the state of this box apart from the fleet: it needs more than a running
// process.
type fitness struct {
	box    Box
	links  Links
	checks progress
	// unreadable and unconnected are the times since which the kernel cannot be read, and
	// since which routers are asked for sessions.
	unreadable, asked since
	stuck             bool // no check ends
}

// receive takes the facts of a moment.
func (f *fitness) receive(box Box, links Links, now time.Time) {
	f.box, f.links = box, links
	f.unreadable.follow(box.KernelErr != nil, now)
	f.asked.follow(box.BGPStarted, now)
	f.stuck = box.Checks != nil && f.checks.stuck(*box.Checks, box.CheckGroups, now)
}

// sessionless reports whether routers are asked for sessions and none has one.
func (f *fitness) sessionless() bool {
	return len(f.box.Routers) > 0 && !f.asked.at.IsZero() && !f.links.SessionUp
}

// reason returns why the box is unfit, and names the cause; "" if it is fit.
func (f *fitness) reason(now time.Time) string {
	switch {
	case !f.box.Ready:
		return "the first sync is not complete"
	case f.box.NoIPVS:
		return "the kernel lost IPVS"
	case f.box.KernelErr != nil && now.Sub(f.unreadable.at) >= auditPatience:
		line, _, _ := strings.Cut(f.box.KernelErr.Error(), "\n")
		return "can't read the kernel: " + line
	case len(f.links.Down) > 0:
		return strings.Join(f.links.Down, ", ")
	case f.stuck:
		return "health checks hang"
	case f.sessionless() && now.Sub(f.asked.at) >= sessionPatience:
		return "no BGP session is up: " + strings.Join(f.box.Routers, ", ")
	}
	return ""
}

// next returns when the passing of time may make the box unfit; the zero time if never.
func (f *fitness) next(now time.Time) time.Time {
	if t := f.unreadable.at.Add(auditPatience); f.box.KernelErr != nil && t.After(now) {
		return t
	}
	if t := f.asked.at.Add(sessionPatience); f.sessionless() && t.After(now) {
		return t
	}
	return time.Time{}
}

// progress is the progress of health checks.
type progress struct {
	checks uint64
	at     time.Time // of the last change of checks
}

// stuck reports whether no check has ended for longer than the slowest takes.
func (p *progress) stuck(stats health.Stats, groups []health.Group, now time.Time) bool {
	if p.at.IsZero() || stats.Checks != p.checks || stats.Targets == 0 {
		p.checks, p.at = stats.Checks, now
	}
	longest := time.Duration(0)
	for _, g := range groups {
		longest = max(longest, g.Check.Interval+g.Check.Timeout)
	}
	return now.Sub(p.at) > longest+checkSlack
}

// since is the time since which a condition holds; zero while it does not.
type since struct{ at time.Time }

func (s *since) follow(holds bool, now time.Time) {
	switch {
	case !holds:
		s.at = time.Time{}
	case s.at.IsZero():
		s.at = now
	}
}

// Soonest returns the earliest of some times, of which zero means never.
func Soonest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
