package drill

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Promise is what is written of an event: the most that each figure may be. Any is no limit.
type Promise struct {
	Gap    time.Duration
	Lost   int
	Cut    int
	Double time.Duration
	Moves  int
	// Why says why not more is promised.
	Why string
}

// Any is no limit.
const Any = -1

// nothing is what restarts promise: no client notices.
func nothing() Promise { return Promise{Gap: smooth, Double: 0} }

// smooth is how long a box with one simulated processor may be busy with something else, on a
// machine that is busy itself: no gap.
const smooth = time.Second

// patient has all times be three times as long, but for those that may not be at all.
func (p Promise) patient() Promise {
	if p.Gap != Any {
		p.Gap *= 3
	}
	if p.Double != Any {
		p.Double *= 3
	}
	return p
}

// String says it in words.
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

// slack is how long two boxes may both be seen as owners while one hands over to the other: a
// question that was on its way.
const slack = 3 * askBeat

// Broken gives an error for each promise that the figures break.
func (r Row) Broken() error {
	var broken []error
	miss := func(format string, args ...any) {
		broken = append(broken, fmt.Errorf("%s, %s: "+format, append([]any{r.Event, r.Mode}, args...)...))
	}
	p := r.Promise
	if p.Gap != Any && r.Gap > p.Gap {
		miss("no service for %s, promised at most %s", span(r.Gap), p.Gap)
	}
	for _, limit := range []struct {
		what      string
		got, most int
	}{{"requests lost", r.Lost, p.Lost}, {"connections cut", r.Cut, p.Cut}, {"moves", r.Moves, p.Moves}} {
		if limit.most != Any && limit.got > limit.most {
			miss("%d %s, promised at most %d", limit.got, limit.what, limit.most)
		}
	}
	if p.Double != Any && r.Double > p.Double+slack {
		miss("two owners for %s, promised at most %s", span(r.Double), p.Double)
	}
	return errors.Join(broken...)
}

func span(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
