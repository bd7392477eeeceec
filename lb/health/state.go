package health

import "time"

// state is the state of a backend.
type state uint8

const (
	unknown state = iota
	up
	down
)

func (v state) String() string {
	return [...]string{"unknown", "up", "down"}[v]
}

// record is a state and the streak of checks against it. It outlives a new configuration.
type record struct {
	state  state
	since  time.Time
	streak int    // checks in a row with the other result
	flaps  uint64 // changes between up and down
}

// after returns the record after one more check.
func (r record) after(result state, c *Check, now time.Time) record {
	need := c.Fall
	if result == up {
		need = c.Rise
	}
	if result == r.state {
		r.streak = 0
		return r
	}
	r.streak++
	switch {
	case r.state == unknown:
		return record{state: result, since: now}
	case r.streak >= need:
		return record{state: result, since: now, flaps: r.flaps + 1}
	}
	return r
}

// tally counts backends by their states: those of a port with weight, or all of a table.
type tally [down + 1]int

func (t tally) all() int { return t[unknown] + t[up] + t[down] }

// lost reports whether the port is lost, given its previous state.
//
// A port with fewer backends than its quorum needs all of them, so that it can recover; one
// without backends is lost. A backend without a result can't make it lost: it may be up.
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
