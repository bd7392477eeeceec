package cluster

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// joinEvery is the interval at which the hosts of Config.Join are tried until they
	// have answered, and joinedEvery the interval from then on.
	joinEvery   = 5 * time.Second
	joinedEvery = time.Minute
	// During startPhase the interval is startEvery: boxes that start together are not
	// ready yet when the first one tries.
	startEvery = 500 * time.Millisecond
	startPhase = 20 * time.Second
)

// joins is the progress of Config.Join. Fleet.mu guards it.
type joins struct {
	failed   map[string]string   // names that cannot be joined, with the error
	answered map[string]struct{} // names that have answered in this session
	former   former
}

// former are the addresses of the members that were alive when a list ended.
type former struct {
	fleet string
	addrs []string
}

// with returns the former members after a session with some members. One that was short may not have found those of
// the session before.
func (x former) with(members map[string]*entry, s *session) former {
	out := former{fleet: s.cfg.Fleet}
	if x.fleet == out.fleet && time.Since(s.begun) < startPhase {
		out.addrs = x.addrs
	}
	for _, m := range members {
		if m == nil { // the reason of a panic, perhaps
			continue
		}
		if addr := m.Addr.String(); m.Life == Alive && m.Name != s.cfg.Name && !slices.Contains(out.addrs, addr) && len(out.addrs) < maxMembers {
			out.addrs = append(out.addrs, addr)
		}
	}
	return out
}

// joiner joins the hosts of Config.Join, and for a while the former members, repeatedly. Those
// that have answered are tried less often. A host that does not answer delays no other.
type joiner struct {
	*Fleet
	list  *memberlist.Memberlist
	begun time.Time

	running sync.WaitGroup
	due     sync.Map // name -> time.Time; the zero time: a join is running
}

// run joins until ctx ends.
func (j *joiner) run(ctx context.Context) {
	defer j.running.Wait()
	for ctx.Err() == nil {
		for _, name := range j.names() {
			if at, known := j.due.Load(name); known && (at.(time.Time).IsZero() || time.Now().Before(at.(time.Time))) {
				continue
			}
			j.due.Store(name, time.Time{})
			j.running.Go(func() {
				defer j.caught()
				_, err := j.list.Join([]string{name})
				if ctx.Err() != nil {
					return
				}
				j.joined(name, err)
				j.due.Store(name, time.Now().Add(j.pause(err)))
			})
		}
		sleep(ctx, startEvery)
	}
}

// pause returns the time until the next join of a host.
func (j *joiner) pause(err error) time.Duration {
	j.mu.Lock()
	conflict := j.session.conflict != ""
	j.mu.Unlock()
	switch {
	case err != nil && time.Since(j.begun) < startPhase:
		return startEvery
	case err != nil || conflict: // only other members report a conflict
		return joinEvery
	}
	return joinedEvery
}

// names returns Config.Join, and at first the former members. It forgets the errors of names that are no longer in
// Config.Join.
func (j *joiner) names() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name := range j.joins.failed {
		if !slices.Contains(j.cfg.Join, name) {
			delete(j.joins.failed, name)
		}
	}
	if j.joins.former.fleet != j.cfg.Fleet || time.Since(j.begun) > startPhase { // by then members have reported them
		j.joins.former = former{}
	}
	return slices.Concat(j.cfg.Join, j.joins.former.addrs)
}

// joined records the result of a join.
func (j *joiner) joined(name string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before, failedBefore := j.joins.failed[name]
	_, answered := j.joins.answered[name]
	switch {
	case !slices.Contains(j.cfg.Join, name):
		return
	case err == nil:
		delete(j.joins.failed, name)
		j.joins.answered[name] = struct{}{}
	default:
		j.joins.failed[name] = joinError(err)
	}
	if failedBefore != (err != nil) || !answered && err == nil {
		signal(j.changed)
	}
	if err != nil && j.joins.failed[name] != before {
		j.log.Warn("join failed", "member", name, "error", j.joins.failed[name])
	}
}

// ownPort matches the own address in an error of a connection. It has another port each time.
var ownPort = regexp.MustCompile(` tcp \S+->`)

// joinError returns the error of a join in one line, and the same text for the same fault. memberlist lists one error for
// each address of a name; the frame around a single one is removed.
func joinError(err error) string {
	text := ownPort.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), " tcp ")
	one, single := strings.CutPrefix(text, "1 error occurred: * ")
	if !single {
		return text
	}
	if rest, ok := strings.CutPrefix(strings.ToLower(one[:1])+one[1:], "failed to join "); ok {
		if _, reason, ok := strings.Cut(rest, ": "); ok {
			return reason
		}
	}
	return one
}
