package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/cmd/weir/internal/status/text"
)

// Events are the recent log records of the daemon from level info up, the oldest first.
// The daemon keeps the last thousand in memory.
type Events struct {
	Events []Event `json:"events"`
	// Last is the number of the newest record; the next request continues after it, unless Began differs.
	Last uint64 `json:"last"`
	// Began is the start of the daemon: the numbers begin with it.
	Began time.Time `json:"began"`
	// Expired counts the requested records that have expired.
	Expired uint64 `json:"expired,omitempty"`
}

// Event is a record of the daemon's log.
type Event struct {
	// Seq counts from 1, since the start of the daemon.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	// Level is info (something changed), warn (needs attention) or error (weir failed).
	Level string `json:"level"`
	Text  string `json:"text"`
	// Attrs in the order in which they were logged; long ones are cut.
	Attrs []Attr `json:"attrs"`
}

// Attr is an attribute of an Event.
type Attr struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// String returns the text of an Event, followed by its attributes.
func (e Event) String() string {
	var out strings.Builder
	out.WriteString(e.Text)
	for i, a := range e.Attrs {
		if i == 0 {
			out.WriteString(":")
		}
		value := a.Value
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' }) {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&out, " %s=%s", strings.ReplaceAll(a.Key, " ", "_"), value)
	}
	return out.String()
}

// Table implements Tabler.
func (e Events) Table(w io.Writer, now time.Time) {
	if e.Expired > 0 {
		fmt.Fprintf(w, "(%d before these have expired: journalctl -u weir)\n", e.Expired)
	}
	if len(e.Events) == 0 {
		fmt.Fprintln(w, "no events since the start of weir")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tAGE\tLEVEL\tEVENT")
	for _, x := range e.Events {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", x.Time.Format(time.DateTime), text.Age(now.Sub(x.Time)), x.Level, x)
	}
	tw.Flush()
}

// Line returns an Event as a line of a list.
func (e Event) Line() string {
	return fmt.Sprintf("%s  %-5s  %s", e.Time.Format(time.DateTime), e.Level, e)
}

// Newest returns the n newest.
func (e Events) Newest(n int) Events {
	e.Events = e.Events[max(0, len(e.Events)-n):]
	return e
}
