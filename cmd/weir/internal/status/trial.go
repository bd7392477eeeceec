package status

import (
	"fmt"
	"time"
)

// Trial is a configuration that is in force until somebody confirms it.
type Trial struct {
	Began time.Time `json:"began"` // when it was loaded
	Ends  time.Time `json:"ends"`  // when the old one comes back, unless it is confirmed
	Old   time.Time `json:"old"`   // when the old one had been loaded
}

// Returned tells that the configuration from before a trial is in force again, and not
// what the file says.
type Returned struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// Text says in a line how long it has left, as of now.
func (t Trial) Text(now time.Time) string {
	return fmt.Sprintf("unconfirmed: returns to the configuration of %s in %s unless: weir confirm",
		atTime(t.Old, now), max(0, t.Ends.Sub(now)).Truncate(time.Second))
}

// line is Text for those who read it later.
func (t Trial) line() string {
	return fmt.Sprintf("unconfirmed: returns to the configuration of %s at %s unless: weir confirm",
		atTime(t.Old, t.Ends), t.Ends.Format(time.TimeOnly))
}

func (r Returned) text() string {
	return fmt.Sprintf("the file is not what is in force since %s: %s; weir reload tries it again", r.Since.Format(time.DateTime), r.Why)
}

// atTime is when something was, with the day if that is not now's.
func atTime(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.In(t.Location()).Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
