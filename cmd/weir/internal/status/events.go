package status

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Events are what weir did lately, the oldest first: the records of its log from level
// info up. The daemon keeps the last thousand, in memory alone.
type Events struct {
	Events []Event `json:"events"`
	// Last is the number of the newest record of all, to ask for those after it.
	Last uint64 `json:"last"`
	// Forgotten is how many that were asked for are not kept any more.
	Forgotten uint64 `json:"forgotten,omitempty"`
}

// Event is a record of the daemon's log.
type Event struct {
	// Seq counts from 1, since the start of the daemon.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	// Level is info (something changed), warn (somebody should look) or error (weir did
	// not do its job).
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

// String is an Event as it reads: its text, and the attributes behind it.
func (e Event) String() string {
	var out strings.Builder
	out.WriteString(e.Text)
	for i, a := range e.Attrs {
		if i == 0 {
			out.WriteString(":")
		}
		value := a.Value
		if value == "" || strings.ContainsAny(value, " \t\n\"=") {
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&out, " %s=%s", strings.ReplaceAll(a.Key, " ", "_"), value)
	}
	return out.String()
}

// Table implements Tabler.
func (e Events) Table(w io.Writer, now time.Time) {
	if e.Forgotten > 0 {
		fmt.Fprintf(w, "(%d before these are not kept any more: journalctl -u weir)\n", e.Forgotten)
	}
	if len(e.Events) == 0 {
		fmt.Fprintln(w, "nothing has happened since weir started")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tAGE\tLEVEL\tEVENT")
	for _, x := range e.Events {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", x.Time.Format(time.DateTime), age(now, x.Time), x.Level, x)
	}
	tw.Flush()
}

// Line is an Event on a line of its own, where others follow.
func (e Event) Line() string {
	return fmt.Sprintf("%s  %-5s  %s", e.Time.Format(time.DateTime), e.Level, e)
}

// Newest leaves the n newest.
func (e Events) Newest(n int) Events {
	e.Events = e.Events[max(0, len(e.Events)-n):]
	return e
}
