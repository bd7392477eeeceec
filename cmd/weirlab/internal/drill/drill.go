package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Options choose trials.
type Options struct {
	// Modes are some of Modes.
	Modes []Mode
	// Only are words of the names of events; no other event happens, but for those that undo one
	// of these. Empty is all.
	Only []string
	// Short runs all of the code in the least time: one mode with all its events, the others with
	// some, smaller sizes and shorter timers.
	Short bool
	// Loss is how long boxes lose messages between each other; 0 is a minute, or some seconds if Short.
	Loss time.Duration
	// Progress gets a line for each event; nil is none.
	Progress io.Writer
}

func (o Options) loss() time.Duration {
	switch {
	case o.Loss > 0:
		return o.Loss
	case o.Short:
		return 3 * time.Second
	}
	return time.Minute
}

// PreemptDelay is weir's preempt_delay in the trials.
func (o Options) PreemptDelay() time.Duration { return o.size().preemptDelay }

// Beat is the time between two new connections.
func (o Options) Beat() time.Duration { return o.size().beat }

func (o Options) size() size {
	if o.Short {
		return short
	}
	return full
}

// scene is one event, and what comes after it: a cable that is pulled is put back.
type scene []event

// scenes are those of a mode.
func scenes(m Mode, o Options) []scene {
	all := []scene{
		{powerCut(), powerBack()},
		{linkDown(), linkUp()},
		{unplugged(), pluggedIn()},
		{killed()},
		{rollingRestart()},
	}
	if m != Keepalived {
		all = append(all, scene{rollingUpgrade()})
	}
	all = append(all,
		scene{rollingDrain()},
		scene{apart(o.size().apart), together()},
		scene{split(), joined()},
		scene{oneWay(o.loss())},
		scene{thirdLost(o.loss())},
	)
	if m != Keepalived {
		all = append(all,
			scene{allRestarted()},
			scene{clocks()},
			scene{wrongKey(), rightKey()},
			scene{keyRotation()},
			scene{otherConfig()},
		)
	}
	return slices.DeleteFunc(all, func(s scene) bool { return !o.chosen(m, s[0].name) })
}

// shortly are the words of the events that a short drill has, in the modes that don't have all of theirs.
var shortly = map[Mode][]string{
	ActiveStandby: {"power cut"},
	ActiveActive:  {"power cut", "rolling restart"},
	Keepalived:    {"power cut"},
}

// chosen reports whether a scene's first event is one of those wanted.
func (o Options) chosen(m Mode, name string) bool {
	one := func(word string) bool { return strings.Contains(name, word) }
	if len(o.Only) > 0 {
		return slices.ContainsFunc(o.Only, one)
	}
	words, some := shortly[m]
	return !o.Short || !some || slices.ContainsFunc(words, one)
}

// Run drills modes on a site, one after the other, and returns all rows that it could measure. An
// event that goes wrong ends its mode with an error.
func Run(ctx context.Context, s *Site, o Options) ([]Row, error) {
	var all []setup
	for _, m := range o.Modes {
		all = append(all, setup{mode: m})
	}
	return runAll(ctx, s, all, o)
}

// Variants drills the power cut again, with other means for connections to survive it, or none.
func Variants(ctx context.Context, s *Site, o Options) ([]Row, error) {
	if !o.chosen(L2, powerCut().name) {
		return nil, nil
	}
	o.Only = []string{powerCut().name}
	all := []setup{{mode: L2, sync: true}, {mode: ActiveStandby, sync: true}, {mode: L2, masqueraded: true}}
	if o.Short {
		all = all[2:] // with sync, the effect takes half a minute
	}
	return runAll(ctx, s, slices.DeleteFunc(all, func(how setup) bool { return !slices.Contains(o.Modes, how.mode) }), o)
}

func runAll(ctx context.Context, s *Site, all []setup, o Options) ([]Row, error) {
	var rows []Row
	var failed []error
	for _, how := range all {
		how.size = o.size()
		more, err := runSetup(ctx, s, how, o)
		rows = append(rows, more...)
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return rows, errors.Join(failed...)
}

func runSetup(ctx context.Context, s *Site, how setup, o Options) ([]Row, error) {
	out := o.Progress
	if out == nil {
		out = io.Discard
	}
	f, err := s.run(ctx, how, out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", how, err)
	}
	defer f.end()
	var rows []Row
	for _, sc := range scenes(how.mode, o) {
		for _, e := range sc {
			row, err := f.try(ctx, e)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", how, err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
