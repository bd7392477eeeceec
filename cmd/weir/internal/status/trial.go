package status

import (
	"fmt"
	"time"
)

// Trial is a configuration in force that must be confirmed.
type Trial struct {
	Started time.Time `json:"started"` // when it was loaded
	Ends    time.Time `json:"ends"`    // when it is rolled back, unless it is confirmed
	Old     time.Time `json:"old"`     // when the previous one had been loaded
}

// RolledBack is present while the configuration from before a trial is in force, and not
// the file.
type RolledBack struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// Text returns the time left in one line.
func (t Trial) Text(now time.Time) string {
	return fmt.Sprintf("unconfirmed: rollback to the configuration of %s in %s, unless weir confirm",
		atTime(t.Old, now), max(0, t.Ends.Sub(now)).Truncate(time.Second))
}

// line is Text with an absolute time, for a later reader.
func (t Trial) line() string {
	return fmt.Sprintf("unconfirmed: rollback to the configuration of %s at %s, unless weir confirm",
		atTime(t.Old, t.Ends), t.Ends.Format(time.TimeOnly))
}

func (r RolledBack) text() string {
	return fmt.Sprintf("the file is not in force, rolled back at %s: %s; weir reload tries it again", r.Since.Format(time.DateTime), r.Reason)
}

// atTime formats a time, with the day unless that is today.
func atTime(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.In(t.Location()).Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
