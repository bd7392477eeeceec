package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Fleet is this box's part in the fleet. Make one with New. All methods may be called at
// any time, before, during and after Run; only Run and Leave wait for the network.
type Fleet struct {
	log      *slog.Logger
	lines    *logFilter
	changed  chan struct{}
	wake     chan struct{}
	broken   chan error // a goroutine has panicked
	exchange exchange
	hooks    hooks

	// updating is locked while this box is announced by the list, and while the list ends,
	// which panics if it must announce the leave afterwards. It is locked before mu.
	updating sync.Mutex

	mu      sync.Mutex
	cfg     Config
	own     publication
	table   table
	epochs  epochs
	joins   joins
	session session
}

// hooks are functions that tests replace.
type hooks struct {
	configure func(*memberlist.Config) error // changes the library's configuration
	connect   func(ctx context.Context, address, fleet string) error
}

// session is the state of the library's list. Fleet.mu guards it.
type session struct {
	number  uint64                 // how many lists have ended
	list    *memberlist.Memberlist // nil: there is none
	cfg     Config                 // that of list
	err     error                  // the reason why there is no list
	begun   time.Time
	leaving bool
	restart bool // the configuration needs a new list
	// conflict is the address of another box with this one's name that was there before,
	// and conflictSeen when it was last reported.
	conflict     string
	conflictSeen time.Time
}

// Counters count since the start of the process.
type Counters struct {
	// Joins and Deaths count members that joined, and that were found dead.
	Joins, Deaths uint64
	// Suspicions counts members that did not answer this box for a while.
	Suspicions uint64
	// Conflicts counts messages of a second box with a member's name.
	Conflicts uint64
	// Refused counts packets that could not be decrypted, or were of another fleet.
	Refused uint64
	// Replayed counts states of a member that were older than the known one, and messages
	// of such a state: a host has recorded them, or they were late.
	Replayed uint64
	// Dropped counts messages that were not requested or came twice, and requests that
	// came faster than they were read.
	Dropped uint64
}

// Status is the state of a Fleet.
type Status struct {
	// Members are all known members, this box included, sorted by name. Members that are
	// gone stay for a day.
	Members []Member
	// Error is the reason why this box takes no part; empty if it does.
	Error string
	// Rejoins counts how often this box has forgotten its members to join again: for another
	// configuration, or after a panic. Members are those that it has found since.
	Rejoins uint64
	// Rejoining reports whether another configuration is about to make it join again.
	Rejoining bool
	// NameConflict is the address of another box that had this one's name before: other
	// members accept that one. Empty: there is none.
	NameConflict string
	// Joined reports whether all of Config.Join have answered since this box last joined.
	Joined bool
	// Unreachable are the names of Config.Join that cannot be reached, with the error.
	Unreachable map[string]string
	// HealthScore is how late this box is, 0 to 7, in memberlist's sense: the later, the
	// more patient it is with others.
	HealthScore int
	Counters    Counters
}

const (
	// housekeeping is the interval of periodic work.
	housekeeping = 500 * time.Millisecond
	// bindRetry is the pause before the port is bound again.
	bindRetry = 5 * time.Second
	// noWait is the shortest wait: memberlist takes zero for an unbounded one.
	noWait = time.Millisecond
	// conflictLasts is the time without a report after which a name conflict is over. The
	// former self of a box with a new address is reported for a few seconds, too.
	conflictLasts = 3 * joinEvery
)

// New returns a Fleet that does nothing before Run. A port that cannot be bound is in
// Status; Run retries.
func New(cfg Config, log *slog.Logger) (*Fleet, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	f := &Fleet{
		log: log, cfg: cfg, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), broken: make(chan error, 1),
		exchange: exchange{requests: make(chan request, 64), asked: map[partDigest]time.Time{}}, hooks: hooks{connect: connect},
		table: newTable(), epochs: newEpochs(), joins: joins{failed: map[string]string{}, answered: map[string]struct{}{}},
	}
	f.own.state.Epoch = epochAfter(0, time.Now())
	f.lines = &logFilter{log: log, refused: f.refused}
	return f, nil
}

// Changed gets a value when Status may have changed.
func (f *Fleet) Changed() <-chan struct{} { return f.changed }

// Configure replaces the configuration. Keys and names to join take effect without a gap;
// any other change makes this box join again.
func (f *Fleet) Configure(cfg Config) error {
	if err := cfg.check(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.restart = f.session.restart || !f.cfg.same(cfg)
	before := f.cfg
	f.cfg = cfg
	defer signal(f.wake)
	if f.session.list == nil || f.session.restart || slices.Equal(before.Keys, cfg.Keys) {
		return nil
	}
	return exchangeKeys(f.lines.ring, before.Keys, cfg.Keys)
}

// exchangeKeys replaces the keys of a keyring, which is never empty meanwhile.
func exchangeKeys(ring *memberlist.Keyring, from, to []Key) error {
	for _, k := range to {
		if err := ring.AddKey([]byte(k.secret)); err != nil {
			return err
		}
	}
	if err := ring.UseKey([]byte(to[0].secret)); err != nil {
		return err
	}
	for _, k := range from {
		if !slices.Contains(to, k) {
			if err := ring.RemoveKey([]byte(k.secret)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Publish publishes the state of this box and its message, of at most MaxMessage bytes.
// Without a message other members keep the last one that they have: a process that starts
// publishes none until it knows what it serves. Publishing the same twice costs nothing.
func (f *Fleet) Publish(s State, m Message) error {
	if err := m.check(); err != nil {
		return err
	}
	wire := m.Wire()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Message, s.Leaving, s.Stamp = DigestOf(wire), f.session.leaving, f.own.state.Stamp
	if s == f.own.state {
		return nil
	}
	if s.Message != f.own.state.Message {
		f.own.set(m, wire)
	}
	f.own.state = s
	f.own.state.Sequence++
	signal(f.wake)
	signal(f.changed)
	return nil
}

// Leave announces that this box leaves, so that no member waits for it to answer. A ctx
// that leaves no time to send this once is an error. It does not end Run, and only a new
// Fleet can join again. A box that restarts soon should not leave.
func (f *Fleet) Leave(ctx context.Context) error {
	f.mu.Lock()
	f.session.leaving, f.own.state.Leaving = true, true
	f.own.state.Sequence++
	stamp := f.own.state.Stamp
	f.mu.Unlock()
	f.updating.Lock()
	defer f.updating.Unlock()
	f.mu.Lock()
	list, wait, err := f.session.list, f.session.cfg.Timing.leaveTime(), ctx.Err()
	f.mu.Unlock()
	if list == nil {
		return nil
	}
	once := wait / leaveCopies
	if end, ok := ctx.Deadline(); ok {
		wait = max(noWait, min(wait, time.Until(end)/2))
	}
	if err == nil && wait < once {
		err = context.DeadlineExceeded
	}
	leave(list, stamp, wait)
	return err
}

// leave has a list announce the state of a stamp, which is leaving, and the leave. Fleet.updating must be locked.
func leave(list *memberlist.Memberlist, s Stamp, wait time.Duration) {
	announce(list, s)
	// The state must be sent before the leave, which replaces what is still queued.
	_ = list.UpdateNode(wait) // the errors of both: not all copies were sent
	_ = list.Leave(wait)
}

// Status returns how this box sees the fleet. The caller may change the Members, except
// for their Messages.
func (f *Fleet) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{
		Unreachable: maps.Clone(f.joins.failed), Counters: f.table.counts,
		Joined: f.session.list != nil, Rejoins: f.session.number, Rejoining: f.session.restart, NameConflict: f.session.conflict,
	}
	for _, name := range f.cfg.Join {
		_, answered := f.joins.answered[name]
		s.Joined = s.Joined && answered
	}
	if f.session.err != nil {
		s.Error = f.session.err.Error()
	}
	if f.session.list != nil {
		s.HealthScore = f.session.list.GetHealthScore()
	}
	for _, m := range f.table.members {
		if m.Name != f.cfg.Name && m.Name != f.session.cfg.Name { // which may be the former name
			s.Members = append(s.Members, m.Member)
		}
	}
	self := Member{Name: f.cfg.Name, Addr: f.cfg.Bind, State: f.own.state, Message: f.own.message, Self: true}
	if m := f.table.members[f.cfg.Name]; m != nil {
		self.Addr, self.Since = m.Addr, m.Since
	}
	s.Members = append(s.Members, self)
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func (f *Fleet) refused() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table.counts.Refused++
}

// caught catches a panic, so that it does not end the process of a box that serves. It must be deferred in every goroutine
// and every callback of memberlist. Run then ends with the panic as its error, and can be called again.
func (f *Fleet) caught() {
	if v := recover(); v != nil {
		select {
		case f.broken <- fmt.Errorf("panic: %v\n%s", v, debug.Stack()):
		default: // the first one is enough
		}
	}
}

// locked runs a function under the lock.
func (f *Fleet) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// signal puts a value into a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// delegate implements the callbacks of one list of memberlist, which mostly holds its own
// locks: nothing here waits, and nothing calls memberlist.
//
// A list that has ended has timers left. One may find a member dead that is alive in the
// next list, which reports nothing about it then. So an ended list changes neither the Life
// nor the State of a member.
type delegate struct {
	*Fleet
	number uint64 // how many lists had ended when this one began
}

// newDelegate returns the callbacks of the present list.
func newDelegate(f *Fleet) delegate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return delegate{f, f.session.number}
}

// present runs a function under the lock, unless the list has ended. It reports whether it did.
func (d delegate) present(do func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.number != d.session.number {
		return false
	}
	do()
	return true
}
