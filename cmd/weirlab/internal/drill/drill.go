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

// Options say what to drill.
type Options struct {
	// Modes to drill, of Modes.
	Modes []Mode
	// Only are words of the names of events; no other event happens, but for those that undo one
	// of these. None is all.
	Only []string
	// Short is for tests: fewer connections, shorter looks, no variants.
	Short bool
	// Patient allows the times that are promised three times over, as a machine needs that
	// has other things to do. What is counted stays as promised.
	Patient bool
	// Loss is how long boxes hear each other badly.
	Loss time.Duration
	// Progress is told what happens; nil is nobody.
	Progress io.Writer
}

// scene is one event, and what comes after it: a cable that is pulled is put back.
type scene []event

// scenes are those of a mode.
func scenes(m Mode, o Options) []scene {
	hold := 8 * time.Second
	if o.Short {
		hold = 6 * time.Second
	}
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
		scene{apart(hold), together()},
		scene{split(), joined()},
		scene{oneWay(o.Loss)},
		scene{thirdLost(o.Loss)},
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
	return all
}

// chosen tells whether a scene's first event is one of those wanted.
func (o Options) chosen(s scene) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(word string) bool { return strings.Contains(s[0].name, word) })
}

// Run drills modes on a site, one after the other, and gives all rows that it could measure. An
// event that goes wrong ends its mode: the error says so.
func Run(ctx context.Context, s *Site, o Options) ([]Row, error) {
	var rows []Row
	var failed []error
	for _, m := range o.Modes {
		more, err := runSetup(ctx, s, setup{mode: m}, o)
		rows = append(rows, more...)
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return rows, errors.Join(failed...)
}

// Variants drills the power cut once more, where connections survive by other means, or not.
func Variants(ctx context.Context, s *Site, o Options) ([]Row, error) {
	o.Only = []string{powerCut().name}
	var rows []Row
	var failed []error
	for _, how := range []setup{
		{mode: L2, sync: true}, {mode: ActiveStandby, sync: true}, {mode: L2, masqueraded: true},
	} {
		if !slices.Contains(o.Modes, how.mode) {
			continue
		}
		more, err := runSetup(ctx, s, how, o)
		rows = append(rows, more...)
		failed = append(failed, err)
	}
	return rows, errors.Join(failed...)
}

func runSetup(ctx context.Context, s *Site, how setup, o Options) (rows []Row, err error) {
	size, out := full, o.Progress
	if o.Short {
		size = short
	}
	if out == nil {
		out = io.Discard
	}
	f, err := s.run(ctx, how, out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", how, err)
	}
	defer func() { err = errors.Join(err, f.End(ctx)) }()
	for _, sc := range scenes(how.mode, o) {
		if !o.chosen(sc) {
			continue
		}
		for _, e := range sc {
			row, err := f.try(ctx, e, size)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", how, err)
			}
			if o.Patient {
				row.Promise = row.Promise.patient()
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// Broken gives an error for each promise that a row breaks.
func Broken(rows []Row) error {
	var broken []error
	for _, r := range rows {
		broken = append(broken, r.Broken())
	}
	return errors.Join(broken...)
}
