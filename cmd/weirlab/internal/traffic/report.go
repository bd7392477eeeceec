package traffic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Try is one new connection with a request and its answer.
type Try struct {
	Addr, Server string
	Began, Ended time.Time
	Err          error
}

// Outcome returns the end of the try.
func (t Try) Outcome() Outcome { return OutcomeOf(t.Err) }

// Tries are some of a load's.
type Tries []Try

// Where returns the tries for which keep is true.
func (t Tries) Where(keep func(Try) bool) (out Tries) {
	for _, one := range t {
		if keep(one) {
			out = append(out, one)
		}
	}
	return out
}

// Lost returns those without an answer.
func (t Tries) Lost() Tries { return t.Where(func(one Try) bool { return one.Err != nil }) }

// To returns those to one address.
func (t Tries) To(addr string) Tries { return t.Where(func(one Try) bool { return one.Addr == addr }) }

// Between returns those that began at or after from and before to. A zero to sets no limit.
func (t Tries) Between(from, to time.Time) Tries {
	return t.Where(func(one Try) bool { return !one.Began.Before(from) && (to.IsZero() || one.Began.Before(to)) })
}

// Split returns the tries that ended before from, those that began after to, and the rest.
func (t Tries) Split(from, to time.Time) (before, between, after Tries) {
	for _, one := range t {
		switch {
		case one.Ended.Before(from):
			before = append(before, one)
		case one.Began.After(to):
			after = append(after, one)
		default:
			between = append(between, one)
		}
	}
	return before, between, after
}

// By counts the answers of each server.
func (t Tries) By() map[string]int {
	by := map[string]int{}
	for _, one := range t {
		if one.Err == nil {
			by[one.Server]++
		}
	}
	return by
}

// Err returns the first n errors, with the time of each since the first try.
func (t Tries) Err(n int) error {
	var all []error
	for _, one := range t.Lost() {
		if len(all) < n {
			all = append(all, fmt.Errorf("%s, %s after the first: %w", one.Addr, Round(one.Began.Sub(t[0].Began)), one.Err))
		}
	}
	return errors.Join(all...)
}

// Gap is the longest time without an answer of one of the addresses.
func (t Tries) Gap() (longest time.Duration) {
	byEnd := slices.SortedStableFunc(slices.Values(t), func(a, b Try) int { return a.Ended.Compare(b.Ended) })
	last := map[string]time.Time{}
	for _, one := range byEnd {
		if _, known := last[one.Addr]; !known {
			last[one.Addr] = one.Began
		}
		if one.Err == nil {
			longest = max(longest, one.Ended.Sub(last[one.Addr]))
			last[one.Addr] = one.Ended
		}
	}
	for _, one := range byEnd { // an address that never answered again
		longest = max(longest, one.Began.Sub(last[one.Addr]))
	}
	return longest
}

// LateAfter is longer than an answer takes unless TCP had to send its first packet again.
const LateAfter = 900 * time.Millisecond

// Report returns the figures of tries.
func (t Tries) Report() Report {
	r := Report{Gap: t.Gap(), Ends: Outcomes{}}
	for _, one := range t {
		switch o := one.Outcome(); o {
		case Answered:
			r.Answered++
			if one.Ended.Sub(one.Began) > LateAfter {
				r.Late++
			}
		case Refused:
			r.Refused++
		default:
			r.Failed++
			r.Ends[o]++
		}
	}
	return r
}

// Report is the result of a load: new connections, and connections that were held.
type Report struct {
	Answered int // new connections
	Late     int // of these, answered only after TCP had sent its first packet again
	Refused  int // new connections
	Failed   int // new connections that ended in any other way
	Held     int // connections
	Cut      int // of these
	// Gap is the longest time without an answer.
	Gap time.Duration
	// Ends are the outcomes of the failed, Cuts those of the cut.
	Ends, Cuts Outcomes
}

// Tried is the number of new connections.
func (r Report) Tried() int { return r.Answered + r.Lost() }

// Lost is the number of new connections without an answer.
func (r Report) Lost() int { return r.Refused + r.Failed }

// And adds another report to this one.
func (r Report) And(o Report) Report {
	return Report{
		Answered: r.Answered + o.Answered, Late: r.Late + o.Late, Refused: r.Refused + o.Refused, Failed: r.Failed + o.Failed,
		Held: r.Held + o.Held, Cut: r.Cut + o.Cut, Gap: max(r.Gap, o.Gap), Ends: r.Ends.and(o.Ends), Cuts: r.Cuts.and(o.Cuts),
	}
}

func (o Outcomes) and(other Outcomes) Outcomes {
	out := Outcomes{}
	maps.Copy(out, o)
	for one, n := range other {
		out[one] += n
	}
	return out
}

// String is the report in one line.
func (r Report) String() string {
	var words []string
	if r.Tried() > 0 {
		words = append(words, fmt.Sprintf("%d answered", r.Answered), fmt.Sprintf("%d refused", r.Refused), fmt.Sprintf("%d failed", r.Failed)+in(r.Ends))
	}
	if r.Held > 0 {
		words = append(words, fmt.Sprintf("%d of %d cut", r.Cut, r.Held)+in(r.Cuts))
	}
	if len(words) == 0 {
		return "no traffic"
	}
	return strings.Join(append(words, "longest gap "+Round(r.Gap)), ", ")
}

func in(o Outcomes) string {
	if len(o) == 0 {
		return ""
	}
	return " (" + o.String() + ")"
}

// Round is a duration without the digits that do not matter.
func Round(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
