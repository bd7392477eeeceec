package drill

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Figures are what a trial measured.
type Figures struct {
	Gap      time.Duration // the longest time in which no new connection was answered
	Requests int           // new connections
	Late     int           // of these, answered only when TCP had sent again, after a second
	Lost     int           // of these, not answered in Patience
	Held     int           // connections held since before the event
	Cut      int           // of these, those that did not live on
	Double   time.Duration // for how long more than one box had the VIP; none in ActiveActive
	Moves    int           // of the VIP, or of the set of boxes that have it
}

// Row is a trial in the table.
type Row struct {
	Event, Mode string
	Figures
	Promise Promise
	Notes   []string
}

// trial is one event under load.
type trial struct {
	*Fleet
	began   time.Time
	acted   time.Time // when the event happened; steps of it may take longer
	knocker *knocker
	held    []*held
	notes   []string
}

// event is something that goes wrong, or is done by an operator.
type event struct {
	name string
	// do lets it happen, and returns when nothing more is to come but the recovery.
	do func(ctx context.Context, t *trial) error
	// undo makes the fleet whole again, unseen by clients. nil is nothing to do.
	undo func(ctx context.Context, t *trial) error
	// heals tells that the fleet is not whole when it begins: the one before has broken something.
	heals bool
	// linger is how long to look on after the recovery.
	linger  time.Duration
	promise func(m Mode) Promise
}

// Sizes of a trial.
type size struct {
	held   int
	before time.Duration // under load before the event
}

var (
	short = size{held: 12, before: 600 * time.Millisecond}
	full  = size{held: 24, before: 1500 * time.Millisecond}
)

// try measures an event.
func (f *Fleet) try(ctx context.Context, e event, s size) (Row, error) {
	f.say("%s", e.name)
	row := Row{Event: e.name, Mode: f.label, Promise: e.promise(f.Mode)}
	if !e.heals {
		if err := f.steady(ctx); err != nil {
			return row, fmt.Errorf("before %s: %w", e.name, err)
		}
	}
	t := &trial{Fleet: f}
	err := t.run(ctx, e, s, &row)
	if e.undo != nil {
		if undone := e.undo(ctx, t); undone != nil && err == nil {
			err = fmt.Errorf("after %s: %w", e.name, undone)
		}
	}
	row.Notes = t.notes
	f.say("%s", row.line())
	return row, err
}

func (t *trial) run(ctx context.Context, e event, s size, row *Row) (err error) {
	client := t.Host("client")
	t.held, err = hold(ctx, client, []string{t.target()}, s.held)
	defer func() { release(t.held) }()
	if err != nil && !e.heals {
		return err
	}
	t.began = time.Now()
	t.knocker = startKnocker(client, []string{t.target()})
	defer t.knocker.end()
	if err := pause(ctx, s.before); err != nil {
		return err
	}
	t.acted = time.Now()
	if err := e.do(ctx, t); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	done := time.Now()
	recovered := t.recovered(ctx, 30*time.Second)
	if err := pause(ctx, e.linger); err != nil {
		return err
	}
	since := time.Now()
	// TCP sends again after 0.2 s, 0.4 s and so on: it finds out that the way is free again
	// after as long as it was not.
	alive := kept(ctx, t.held, since, min(max(5*time.Second, since.Sub(t.acted)), 15*time.Second))
	t.count(row, alive)
	if !recovered {
		t.note("no service %s after", time.Since(done).Round(time.Second))
	}
	return nil
}

// recovered waits until new connections have been answered for a while without a failure.
func (t *trial) recovered(ctx context.Context, limit time.Duration) bool {
	return eventually(ctx, limit, "recovery", func(context.Context) error {
		if n := t.knocker.row(t.acted); n < 40 {
			return fmt.Errorf("%d answers in a row", n)
		}
		return nil
	}) == nil
}

func (t *trial) count(row *Row, alive int) {
	knocks := t.knocker.end()
	gone := lost(knocks)
	own := t.owners.owners(t.began)
	now := time.Now()
	row.Figures = Figures{
		Gap: gap(knocks), Requests: len(knocks), Late: late(knocks), Lost: len(gone), Held: len(t.held), Cut: len(t.held) - alive,
	}
	if t.Mode == ActiveActive {
		row.Moves = sum(own, now).moves
	} else {
		row.Double, row.Moves = sum(own, now).double, sum(singles(own), now).moves
	}
	fates := map[string]int{}
	for _, one := range gone {
		fates[fate(one.err)]++
	}
	if len(gone) > 0 {
		t.note("lost: %s", tally(fates))
	}
	if alive < len(t.held) {
		t.note("cut: %s", tally(ends(t.held)))
	}
}

func tally(fates map[string]int) string {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(fates)) {
		words = append(words, fmt.Sprintf("%d %s", fates[word], word))
	}
	return strings.Join(words, ", ")
}

func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// has is the box that has the VIP now.
func (t *trial) has(ctx context.Context) (box int, err error) {
	err = eventually(ctx, 10*time.Second, "one box has the VIP", func(context.Context) error {
		box, err = t.owner(time.Now().Add(-10 * askBeat))
		return err
	})
	return box, err
}

// other is a box that is not this one.
func (t *trial) other(box int) int { return box%len(t.boxes) + 1 }
