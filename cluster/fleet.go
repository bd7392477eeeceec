package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Fleet is this box's part in the fleet. Make one with New. All methods may be called
// at any time, before, while and after Run runs, and none but Run and Leave waits for
// the network.
type Fleet struct {
	log     *slog.Logger
	lines   *lines
	changed chan struct{}
	wake    chan struct{}
	asked   chan string // members that want the Word
	answers limited
	// tamper, if there is one, changes the library's configuration; only tests do.
	tamper func(*memberlist.Config) error
	// knock tries to connect; tests have another.
	knock func(ctx context.Context, address, fleet string) error

	// telling is held while the list tells others of this box, and while it ends: it
	// panics if it is to say good-bye afterwards. It is taken before mu.
	telling sync.Mutex

	mu      sync.Mutex
	cfg     Config
	list    *memberlist.Memberlist // nil while there is none
	runs    Config                 // list's
	self    State
	word    []byte
	members map[string]*Member
	// forget is when members that are gone are not told of any more.
	forget  map[string]time.Time
	err     error               // why there is no list
	alone   map[string]string   // of Config.Join, who can't be joined, and why
	met     map[string]struct{} // of Config.Join, who has answered since list began
	counts  Counters
	leaving bool
	restart bool // cfg needs a new list
	// begun is when list began, twin the address of another box of this one's name that
	// was there before, and heard the last time that anybody told of it.
	begun time.Time
	twin  string
	heard time.Time
}

// Counters count since the start of the process.
type Counters struct {
	// Joins and Deaths count members that came, and that were found dead.
	Joins, Deaths uint64
	// Suspicions counts members that did not answer this box for a while.
	Suspicions uint64
	// Conflicts counts messages of a second box with a member's name.
	Conflicts uint64
	// Refused counts messages that could not be decrypted, or were not the fleet's.
	Refused uint64
	// Dropped counts Words that were not asked for, or came twice, and requests for
	// Words that came faster than they were read.
	Dropped uint64
}

// Status is how a Fleet is.
type Status struct {
	// Members are all that are known, this one included, sorted by name. Those that
	// are gone are told of for a day.
	Members []Member
	// Error is why this box takes no part; "" if it does.
	Error string
	// Twin is the address of another box that has this one's name, and was there before:
	// others hear that one. "" if there is none.
	Twin string
	// Joined tells whether all of Config.Join have answered since this box began.
	Joined bool
	// Unjoined are the names of Config.Join that can't be reached, and why.
	Unjoined map[string]string
	// Strain is how late this box is with its own part, 0 to 7; memberlist calls it the
	// health score. It forgives others the more, the later it is itself.
	Strain   int
	Counters Counters
}

const (
	// fetchEvery is how often a Word that has not come is asked for again.
	fetchEvery = 500 * time.Millisecond
	// bindRetry is how soon it is tried again to listen.
	bindRetry = 5 * time.Second
	// forgetAfter is how long members that are gone are told of, and mostMembers how
	// many there may be: whoever has a key could tell of any number.
	forgetAfter = 24 * time.Hour
	mostMembers = 1000
	// sayNow is not to wait until something has been sent: memberlist takes zero for
	// ever.
	sayNow = time.Millisecond
)

// New makes a Fleet. It listens to nobody yet; that a port can't be had is for Status
// to say, while Run tries again.
func New(cfg Config, log *slog.Logger) (*Fleet, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	f := &Fleet{
		log: log, cfg: cfg, changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		asked: make(chan string, 64),
		knock: knock, members: map[string]*Member{}, forget: map[string]time.Time{}, alone: map[string]string{}, met: map[string]struct{}{},
	}
	f.lines = &lines{log: log, refused: f.refused}
	return f, nil
}

// Changed gets a value when Status may say something else.
func (f *Fleet) Changed() <-chan struct{} { return f.changed }

// Configure changes the configuration. Keys and names to join take effect without a
// gap; anything else has this box join anew.
func (f *Fleet) Configure(cfg Config) error {
	if err := cfg.check(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restart = f.restart || !f.cfg.same(cfg)
	before := f.cfg
	f.cfg = cfg
	defer signal(f.wake)
	if f.list == nil || f.restart || slices.Equal(before.Keys, cfg.Keys) {
		return nil
	}
	return exchangeKeys(f.lines.ring, before.Keys, cfg.Keys)
}

// exchangeKeys brings a keyring from some keys to others. At no time is there none.
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

// Say tells the fleet how this box is, and its Word, of MaxWord bytes at most. Without
// a Word others keep the last one that they have of this box: a process that begins
// anew says none until it knows what it serves. Saying the same again costs nothing.
func (f *Fleet) Say(s State, text []byte) error {
	if len(text) > MaxWord {
		return fmt.Errorf("fleet: a word of %d bytes, more than %d", len(text), MaxWord)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Word, s.Leaving = DigestOf(text), f.leaving
	if s == f.self {
		return nil
	}
	f.self, f.word = s, slices.Clone(text)
	signal(f.wake)
	signal(f.changed)
	return nil
}

// Leave says good-bye, so that nobody waits for this box to answer; a ctx that leaves no
// time to send it once is an error. It does not end Run, and there is no way back but a
// new Fleet. A box that starts again soon should not say good-bye.
func (f *Fleet) Leave(ctx context.Context) error {
	f.mu.Lock()
	f.leaving, f.self.Leaving = true, true
	f.mu.Unlock()
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	list, wait, err := f.list, f.runs.Timing.farewell(), ctx.Err()
	f.mu.Unlock()
	if list == nil {
		return nil
	}
	once := wait / farewells
	if end, ok := ctx.Deadline(); ok {
		wait = max(sayNow, min(wait, time.Until(end)/2))
	}
	if err == nil && wait < once {
		err = context.DeadlineExceeded
	}
	// That it leaves on purpose has to be told before it is gone, for what is told
	// later takes the place of what has not been sent yet.
	_ = list.UpdateNode(wait) // the errors of both: not all copies were sent
	_ = list.Leave(wait)
	return err
}

// Status tells how the fleet is, as this box sees it. The Members are its caller's,
// but for their Words.
func (f *Fleet) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Unjoined: map[string]string{}, Counters: f.counts, Joined: f.list != nil, Twin: f.twin}
	for _, name := range f.cfg.Join {
		_, met := f.met[name]
		s.Joined = s.Joined && met
	}
	for name, why := range f.alone {
		s.Unjoined[name] = why
	}
	if f.err != nil {
		s.Error = f.err.Error()
	}
	if f.list != nil {
		s.Strain = f.list.GetHealthScore()
	}
	for _, m := range f.members {
		if m.Name != f.cfg.Name {
			s.Members = append(s.Members, *m)
		}
	}
	self := Member{Name: f.cfg.Name, Addr: f.cfg.Bind, State: f.self, Word: f.word, Self: true}
	if m := f.members[f.cfg.Name]; m != nil {
		self.Addr, self.Since = m.Addr, m.Since
	}
	s.Members = append(s.Members, self)
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// Run takes part in the fleet until ctx ends. It does not say good-bye.
func (f *Fleet) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		list, err := f.begin()
		if err != nil {
			f.fail(err)
			sleep(ctx, bindRetry)
			continue
		}
		f.fail(nil)
		f.turn(ctx, list)
		f.end(list)
	}
	return nil
}

// begin makes a list of the configuration.
func (f *Fleet) begin() (*memberlist.Memberlist, error) {
	f.mu.Lock()
	cfg := f.cfg
	f.restart, f.begun, f.twin = false, time.Now(), ""
	f.mu.Unlock()
	lib, err := cfg.library(f)
	if err != nil {
		return nil, err
	}
	if f.tamper != nil {
		if err := f.tamper(lib); err != nil {
			return nil, err
		}
	}
	// Not with mu held: what is told of this box itself comes at once.
	list, err := memberlist.Create(lib)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.Bind, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.runs, f.lines.ring = list, cfg, lib.Keyring
	if !f.restart && !slices.Equal(cfg.Keys, f.cfg.Keys) { // there was no keyring to change
		if err := exchangeKeys(lib.Keyring, cfg.Keys, f.cfg.Keys); err != nil {
			f.log.Error("the fleet's keys stay as they were", "error", err)
		}
	}
	return list, nil
}

// end stops a list. Who was there is gone with it.
func (f *Fleet) end(list *memberlist.Memberlist) {
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	f.list = nil
	f.mu.Unlock()
	if err := list.Shutdown(); err != nil {
		f.log.Warn("the fleet's port does not close", "error", err)
	}
	f.mu.Lock()
	clear(f.members)
	clear(f.forget)
	clear(f.met)
	f.mu.Unlock()
}

func (f *Fleet) fail(err error) {
	f.mu.Lock()
	news := fmt.Sprint(err) != fmt.Sprint(f.err)
	f.err = err
	f.mu.Unlock()
	if news {
		signal(f.changed)
		if err != nil {
			f.log.Error("this box takes no part in the fleet; trying again", "error", err)
		}
	}
}

// turn does what a list needs, until ctx ends or the list has to be another.
func (f *Fleet) turn(ctx context.Context, list *memberlist.Memberlist) {
	end := ctx
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	every := f.cfg.Timing.memberlist().ProbeInterval
	f.mu.Unlock()
	var beside sync.WaitGroup
	beside.Go(func() { f.joinForever(ctx, list) })
	beside.Go(func() { f.meetAgain(ctx, list) })
	beside.Go(func() { f.watch(ctx, list, every) })
	defer func() {
		cancel()
		// Who is being asked, and does not answer, takes up to ten seconds. A list that is
		// followed by another one waits, or it would tell the other's members.
		if end.Err() == nil {
			beside.Wait()
			f.answers.Wait()
		}
	}()
	said := State{}
	fetch := time.NewTicker(fetchEvery)
	defer fetch.Stop()
	for {
		f.mu.Lock()
		self, restart, leaving := f.self, f.restart, f.leaving
		moves, wait := !f.cfg.found(f.runs), f.runs.Timing.farewell()
		f.mu.Unlock()
		if restart {
			// Who is found where it was is back before anybody misses it. Else others
			// would hold on to the old address until they took it for dead.
			if moves && !leaving {
				_ = list.Leave(wait)
			}
			return
		}
		if self != said && !leaving {
			said = self
			// It is queued, and sent again and again beside. The error would be that
			// this takes longer than a moment.
			f.telling.Lock()
			_ = list.UpdateNode(sayNow)
			f.telling.Unlock()
		}
		f.fetch(list, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-fetch.C:
			f.forgetOld(time.Now())
			f.forgetTwin(time.Now())
		case name := <-f.asked:
			f.answer(ctx, list, name)
		}
	}
}

// forgetOld forgets members that are gone for long.
func (f *Fleet) forgetOld(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, when := range f.forget {
		if now.After(when) {
			delete(f.forget, name)
			delete(f.members, name)
		}
	}
}

func (f *Fleet) refused() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Refused++
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

func addrPort(n *memberlist.Node) netip.AddrPort {
	a, _ := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(a.Unmap(), n.Port)
}
