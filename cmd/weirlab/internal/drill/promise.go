package drill

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/cmd/weirlab/internal/known"
	"weir/cmd/weirlab/internal/traffic"
)

// Promise is the most that each figure of an event may be. Any is no limit.
type Promise struct {
	Gap    time.Duration
	Lost   int
	Cut    int
	Double time.Duration
	Moves  int
	// Reason is that of a promise of no more.
	Reason string
}

// Any is no limit.
const Any = -1

// nothing is the promise of restarts: no client notices.
func nothing() Promise { return Promise{Gap: smooth, Double: 0} }

// smooth is how long a box with one simulated processor may be busy with something else: no gap.
const smooth = time.Second

// slack is how long two boxes may both be seen as owners while one hands over to the other: a
// question that was on its way.
const slack = 3 * askBeat

// String lists the limits.
func (p Promise) String() string {
	var words []string
	if p.Gap > smooth {
		words = append(words, "gap <= "+p.Gap.String())
	}
	for _, limit := range []struct {
		what string
		most int
	}{{"lost", p.Lost}, {"cut", p.Cut}, {"moves", p.Moves}} {
		switch {
		case limit.most == 0:
			words = append(words, limit.what+" 0")
		case limit.most > 0:
			words = append(words, fmt.Sprintf("%s <= %d", limit.what, limit.most))
		}
	}
	switch {
	case p.Double == 0:
		words = append(words, "one owner")
	case p.Double > 0:
		words = append(words, "two owners <= "+p.Double.String())
	}
	return strings.Join(words, ", ")
}

// count is the promise of a number: that of requests lost, of connections cut, of moves.
type count struct {
	what      string
	got, most int
}

func (r Row) counts() []count {
	p := r.Promise
	return []count{{"requests lost", r.Lost(), p.Lost}, {"connections cut", r.Cut, p.Cut}, {"moves", r.Moves, p.Moves}}
}

// Broken returns an error for each count that is larger than promised, unless it is a known failure,
// and for each known failure that does not fail any more.
func (r Row) Broken(list known.List) error {
	var broken []error
	for _, c := range r.counts() {
		name := fmt.Sprintf("drill %s: %s: %s", r.Mode, r.Event, c.what)
		var err error
		if c.most != Any && c.got > c.most {
			err = fmt.Errorf("%s: %d, promised at most %d", name, c.got, c.most)
		}
		broken = append(broken, list.Compare(name, err))
	}
	return errors.Join(broken...)
}

// Slow returns the durations that are longer than promised. A slow machine makes them so: they are
// printed and fail nothing.
func (r Row) Slow() (words []string) {
	if p := r.Promise.Gap; p != Any && r.Gap > p {
		words = append(words, fmt.Sprintf("no service for %s, promised at most %s", traffic.Round(r.Gap), p))
	}
	if p := r.Promise.Double; p != Any && r.Double > p+slack {
		words = append(words, fmt.Sprintf("two owners for %s, promised at most %s", traffic.Round(r.Double), p))
	}
	return words
}

// Broken returns an error for each promise of a count that rows break.
func Broken(rows []Row, list known.List) error {
	var broken []error
	for _, r := range rows {
		broken = append(broken, r.Broken(list))
	}
	return errors.Join(broken...)
}
