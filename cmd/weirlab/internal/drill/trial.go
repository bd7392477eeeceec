package drill

import (
	"context"
	"fmt"
	"time"
	"weir/cmd/weirlab/internal/traffic"
)

// Figures are the measurements of a trial: the report of its clients, and of the owners.
type Figures struct {
	traffic.Report
	Double time.Duration // for how long more than one box had the VIP; none in ActiveActive
	Moves  int           // of the VIP, or of the set of boxes that have it
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
	began time.Time
	acted time.Time // when the event happened; steps of it may take longer
	load  *traffic.Load
	held  traffic.Holds
	notes []string
}

// event is something that goes wrong, or is done by an operator.
type event struct {
	name string
	// do lets it happen, and returns when nothing more is to come but the recovery.
	do func(ctx context.Context, t *trial) error
	// undo makes the fleet whole again, unseen by clients. nil is nothing to do.
	undo func(ctx context.Context, t *trial) error
	// heals marks an event that begins with a broken fleet: the one before has broken something.
	heals bool
	// linger is how long to look on after the recovery.
	linger  time.Duration
	promise func(m Mode) Promise
}

// size is that of a trial.
type size struct {
	held         int
	beat         time.Duration // between two new connections
	before       time.Duration // under load before the event
	preemptDelay time.Duration // of weir
	apart        time.Duration // how long no message passes between boxes
	linger       time.Duration // the most of an event's linger
	drain        time.Duration // the wait of a drain for connections
}

// preemptDelay of full trials is shorter than its default of 30 s, so that trials do not wait for it.
var (
	short = size{held: 8, beat: 40 * time.Millisecond, before: 300 * time.Millisecond, preemptDelay: time.Second, apart: 4 * time.Second, linger: time.Second, drain: time.Second}
	full  = size{held: 24, beat: 15 * time.Millisecond, before: 1500 * time.Millisecond, preemptDelay: 3 * time.Second, apart: 8 * time.Second, linger: time.Minute, drain: 3 * time.Second}
)

// The clients: one that makes new connections all the time, and some that hold one each.
const (
	// Patience is the time that a client waits for its answer. TCP sends its first packet again 1, 3 and 7
	// seconds after it: a request lost with this was refused, or reached no box for seven seconds. A slow
	// machine makes answers late, and not lost.
	Patience = 8 * time.Second
	// heldBeat is the time between two bytes over a connection that is held.
	heldBeat = 100 * time.Millisecond
)

// try measures an event.
func (f *Fleet) try(ctx context.Context, e event) (Row, error) {
	f.say("%s", e.name)
	row := Row{Event: e.name, Mode: f.label, Promise: e.promise(f.Mode)}
	if !e.heals {
		if err := f.steady(ctx); err != nil {
			return row, fmt.Errorf("before %s: %w", e.name, err)
		}
	}
	t := &trial{Fleet: f}
	err := t.run(ctx, e, &row)
	if e.undo != nil {
		if undone := e.undo(ctx, t); undone != nil && err == nil {
			err = fmt.Errorf("after %s: %w", e.name, undone)
		}
	}
	row.Notes = t.notes
	f.say("%s", row.line())
	return row, err
}

func (t *trial) run(ctx context.Context, e event, row *Row) (err error) {
	dial := t.Host("client").DialContext
	t.held, err = traffic.HoldMany(ctx, dial, t.how.held, traffic.HoldOptions{Beat: heldBeat}, t.target())
	defer func() { t.held.Release() }()
	if err != nil && !e.heals {
		return err
	}
	t.began = time.Now()
	t.load = traffic.Start(ctx, traffic.Options{Ask: traffic.Echo(dial), Beat: t.how.beat, Patience: Patience}, t.target())
	defer t.load.Stop()
	if err := traffic.Pause(ctx, t.how.before); err != nil {
		return err
	}
	t.acted = time.Now()
	if err := e.do(ctx, t); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	done := time.Now()
	recovered := t.recovered(ctx, 30*time.Second)
	if err := traffic.Pause(ctx, min(e.linger, t.how.linger)); err != nil {
		return err
	}
	since := time.Now()
	// TCP sends again after 0.2 s, 0.4 s and so on: it finds out that the way is free again
	// after as long as it was not.
	held := t.held.Report(ctx, since, min(max(5*time.Second, since.Sub(t.acted)), 15*time.Second))
	t.count(row, held)
	if !recovered {
		t.note("no service %s after", time.Since(done).Round(time.Second))
	}
	return nil
}

// recovered waits until new connections have been answered for 600 ms without a failure.
func (t *trial) recovered(ctx context.Context, limit time.Duration) bool {
	return traffic.Eventually(ctx, limit, func(context.Context) error {
		if n := t.load.Row(t.acted); n < int(600*time.Millisecond/t.how.beat) {
			return fmt.Errorf("%d answers in a row", n)
		}
		return nil
	}) == nil
}

func (t *trial) count(row *Row, held traffic.Report) {
	tries := t.load.Stop()
	own := t.owners.owners(t.began)
	now := time.Now()
	held.Gap = 0 // TCP's own waits are no lack of service
	row.Figures = Figures{Report: tries.Report().And(held)}
	if t.Mode == ActiveActive {
		row.Moves = sum(own, now).moves
	} else {
		row.Double, row.Moves = sum(own, now).double, sum(singles(own), now).moves
	}
	if most := row.Promise.Moves; most != Any && row.Moves > most {
		t.note("owners: %s", course(own))
	}
	if row.Lost() > 0 {
		t.note("lost: %d refused, %d failed (%s)", row.Refused, row.Failed, row.Ends)
	}
	if row.Cut > 0 {
		t.note("cut: %s", row.Cuts)
	}
}

func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// has is the box that has the VIP now.
func (t *trial) has(ctx context.Context) (box int, err error) {
	err = traffic.Eventually(ctx, 10*time.Second, func(context.Context) error {
		box, err = t.owner(time.Now().Add(-10 * askBeat))
		return err
	})
	return box, err
}

// other is a box that is not this one.
func (t *trial) other(box int) int { return box%len(t.boxes) + 1 }
