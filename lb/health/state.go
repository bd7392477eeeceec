package health

import "time"

// verdict is what is believed of a backend.
type state uint8

const (
	unknown state = iota
	up
	down
)

func (v state) String() string {
	return [...]string{"unknown", "up", "down"}[v]
}

// belief is a verdict, and how near it is to being overturned.
type record struct {
	state  state
	since  time.Time
	streak int // checks in a row that said otherwise
}

// after gives what to believe after one more check.
func (r record) after(result state, c *Check, now time.Time) record {
	need := c.Fall
	if result == up {
		need = c.Rise
	}
	if result == r.state {
		r.streak = 0
		return r
	}
	if r.streak++; r.state == unknown || r.streak >= need {
		return record{state: result, since: now}
	}
	return r
}

// tally counts the backends of a port that take traffic by their verdicts.
type tally [down + 1]int

func (t tally) all() int { return t[unknown] + t[up] + t[down] }

// lost tells whether the port is lost, given whether it was.
//
// A port with fewer backends than its quorum asks for all of them, so that it is
// not lost for ever; one that has none is lost. A backend without a verdict
// can't make it lost: it may be up.
func (t tally) lost(was bool, quorum, hysteresis int) bool {
	back := quorum + hysteresis
	if all := t.all(); all > 0 {
		quorum, back = min(quorum, all), min(back, all)
	}
	if was {
		return t[up] < back
	}
	return t[unknown] == 0 && t[up] < quorum
}
