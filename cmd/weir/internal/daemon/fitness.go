package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bgp"
	"weir/cmd/weir/internal/config"
	"weir/lb/health"
	"weir/lb/linux"
)

// Whether this box is fit to serve, which is more than that its process runs.

const (
	// auditPatience is how long the kernel may be unreadable: it forwards on meanwhile,
	// and a read that failed proves nothing by itself.
	auditPatience = 3 * time.Second
	// sessionPatience is how long routers have to open a session with a box that begins.
	sessionPatience = 10 * time.Second
	// checkSlack is how much later than it should a check may end on a busy box.
	checkSlack = 10 * time.Second
	// signsEvery is how often the box looks at cables and sessions.
	signsEvery = 200 * time.Millisecond
)

// facts are what fitness is judged by.
type facts struct {
	ready bool
	// kernel is why it can't be read, unread since when.
	kernel error
	unread time.Time
	// still is that no check ends although there are some.
	still bool
	// routers are those that weir opens sessions with; asked is since when it does, zero
	// before; heard tells whether one has a session.
	routers []string
	asked   time.Time
	heard   bool
	// dark says what is wrong with the interfaces that matter, darkNames names those.
	dark, darkNames []string
	quiet           bool
}

// unfit says why the box should serve nobody, naming the thing; "" is that it is fit.
func (f facts) unfit(now time.Time) string {
	switch {
	case !f.ready:
		return "the kernel does not hold the first state yet"
	case errors.Is(f.kernel, linux.ErrNoIPVS):
		return "the kernel has no IPVS any more"
	case f.kernel != nil && now.Sub(f.unread) >= auditPatience:
		return "the kernel can't be read: " + firstOf(f.kernel.Error())
	case len(f.dark) > 0:
		return strings.Join(f.dark, ", ")
	case f.still:
		return "no health check ends any more"
	case len(f.routers) > 0 && !f.asked.IsZero() && !f.heard && now.Sub(f.asked) >= sessionPatience:
		return "no BGP session is up: " + strings.Join(f.routers, ", ")
	}
	return ""
}

// next is when time alone may make the box unfit; the zero time: it does not.
func (f facts) next(now time.Time) time.Time {
	for _, t := range []time.Time{
		after(f.kernel != nil, f.unread, auditPatience),
		after(len(f.routers) > 0 && !f.asked.IsZero() && !f.heard, f.asked, sessionPatience),
	} {
		if t.After(now) {
			return t
		}
	}
	return time.Time{}
}

func after(is bool, since time.Time, d time.Duration) time.Time {
	if !is {
		return time.Time{}
	}
	return since.Add(d)
}

// firstOf is the first line of a text.
func firstOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// pulse tells whether checks go on.
type pulse struct {
	checks uint64
	at     time.Time // when there were so many
}

// still tells whether no check has ended for longer than the slowest takes.
func (p *pulse) still(stats health.Stats, groups []health.Group, now time.Time) bool {
	if p.at.IsZero() || stats.Checks != p.checks || stats.Targets == 0 {
		p.checks, p.at = stats.Checks, now
	}
	longest := time.Duration(0)
	for _, g := range groups {
		longest = max(longest, g.Check.Interval+g.Check.Timeout)
	}
	return now.Sub(p.at) > longest+checkSlack
}

// namedRouters are the peers that have an address, which weir opens sessions with.
func namedRouters(peers []bgp.Peer) []string {
	var out []string
	for _, p := range peers {
		if p.Address.IsValid() {
			out = append(out, p.Name)
		}
	}
	return out
}

// signs are what a goroutine of their own looks at, several times a second.
type signs struct {
	links string // of sysfs: /sys/class/net
	stats string // of IPVS: /proc/net/ip_vs_stats
	heard func() bool

	mu         sync.Mutex
	interfaces []string
	now        reading
	doors      doors
}

// reading is what signs have seen. darkNames are the interfaces that can't carry
// anything, dark says why; macs are the addresses of those that matter.
type reading struct {
	dark, darkNames, macs []string
	heard, quiet          bool // quiet: no client sends anything
}

func (r reading) equal(o reading) bool {
	return r.heard == o.heard && r.quiet == o.quiet && slices.Equal(r.dark, o.dark) && slices.Equal(r.macs, o.macs)
}

// watch sets which interfaces matter, and at which of them clients or routers are, and
// looks at them at once.
func (s *signs) watch(interfaces, doors []string) {
	s.mu.Lock()
	s.interfaces, s.doors.names = interfaces, doors
	s.mu.Unlock()
	s.look()
}

// look tells whether something looks otherwise than the last time.
func (s *signs) look() bool {
	s.mu.Lock()
	interfaces, heard := s.interfaces, s.heard
	s.mu.Unlock()
	var now reading
	for _, name := range interfaces {
		if why := darkness(s.links, name); why != "" {
			now.dark, now.darkNames = append(now.dark, why), append(now.darkNames, name)
		}
		if mac, err := os.ReadFile(filepath.Join(s.links, name, "address")); err == nil {
			now.macs = append(now.macs, strings.TrimSpace(string(mac)))
		}
	}
	now.heard = heard != nil && heard()
	s.mu.Lock()
	defer s.mu.Unlock()
	now.quiet = s.doors.quiet(s.links, s.stats, time.Now())
	changed := !now.equal(s.now)
	s.now = now
	return changed
}

// read gives what was seen last.
func (s *signs) read() reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// darkness says why an interface can't carry anything; "" is that it can. One that is
// down gives no answer to the question for its carrier.
func darkness(links, name string) string {
	carrier, err := os.ReadFile(filepath.Join(links, name, "carrier"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("there is no interface %s", name)
	case err != nil:
		return name + " is down"
	case strings.TrimSpace(string(carrier)) != "1":
		return name + " has no carrier"
	}
	return ""
}

// interfacesThatMatter are those of a configuration whose carrier counts, sorted.
func interfacesThatMatter(cfg *config.Config) []string {
	var out []string
	if cfg.Fleet != nil {
		out = append(out, cfg.Fleet.Interfaces...)
	}
	if cfg.L2 != nil {
		out = append(out, cfg.L2.Interfaces...)
		for _, g := range cfg.L2.Gateways {
			out = append(out, g.Interface)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
