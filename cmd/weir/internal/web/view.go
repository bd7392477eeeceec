package web

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/text"
	"weir/cmd/weir/internal/status/traffic"
)

// kind is one page of the status page.
type kind struct {
	Path, Title string
	sections    []string
}

// kinds are the pages in the order of the menu. Sections are templates, and elements of the
// page with the same name.
var kinds = []kind{
	{"", "Overview", []string{"head", "facts", "services", "members", "bgp", "pools", "clusters", "drains", "notes", "events"}},
	{"services", "Services", []string{"head", "services"}},
	{"notes", "Notes", []string{"head", "notes"}},
	{"events", "Events", []string{"head", "events"}},
}

func (k kind) pattern() string {
	if k.Path == "" {
		return "/{$}"
	}
	return "/" + k.Path
}

// Rows of a page, and of a section of the overview.
const (
	rowsPerPage = 50
	rowsAtMost  = 12
	// unfolded is the greatest number of frontends that are shown with their backends, if
	// those are at most backendsAtMost.
	unfolded       = 12
	backendsAtMost = 120
	// maxBackends is the greatest number of backends on the page of one frontend.
	maxBackends = 1000
)

// view is the data of the templates.
type view struct {
	*reading
	Kind  kind
	Kinds []kind
	Query query
	selection
	// Unfold is set if backends are shown with their frontends.
	Unfold bool
	// Pages and Rows are the numbers of pages and rows.
	Pages, Rows int
	NoteGroups  []noteGroup
	EventRows   []status.Event
	now         time.Time
}

// noteGroup are Notes of one reason.
type noteGroup struct {
	Reason string
	advice
	Notes []status.Note
	// All is the number of notes; Notes may be the first of them.
	All           int
	Informational bool
}

// newView returns the view of a reading.
func newView(k kind, r *reading, q query, now time.Time) *view {
	if k.Path == "" {
		q = parseQuery(nil) // the overview has no parameters
	}
	v := &view{reading: r, Kind: k, Kinds: kinds, Query: q, now: now}
	switch k.Path {
	case "":
		v.selection = choose(r.servers, &v.Query, rowsAtMost)
		v.notes(rowsAtMost)
		v.events(rowsAtMost)
	case "services":
		v.selection = choose(r.servers, &v.Query, rowsPerPage)
		v.Rows, v.Pages = v.Matching, pages(v.Matching, rowsPerPage)
	case "notes":
		v.notes(rowsPerPage)
	default:
		v.events(2 * rowsPerPage)
	}
	backends := 0
	for _, s := range v.Shown {
		backends += len(s.Backends)
	}
	v.Unfold = q.At != "" || v.Matching <= unfolded && backends <= backendsAtMost
	return v
}

// notes selects the Notes of the page, by reason, the informational ones last.
func (v *view) notes(perPage int) {
	var found []status.Note
	wanted := strings.ToLower(v.Query.Text)
	for _, n := range v.Status.Notes {
		if v.Kind.Path != "notes" || strings.Contains(strings.ToLower(n.Service+" "+n.Reason+" "+n.Text), wanted) {
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b status.Note) int {
		return cmp.Or(text.TrueFirst(b.Informational, a.Informational), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Service, b.Service))
	})
	all := map[string]int{}
	for _, n := range found {
		all[n.Reason]++
	}
	q := v.Query
	from, to := q.span(len(found), perPage)
	for _, n := range found[from:to] {
		if i := len(v.NoteGroups) - 1; i < 0 || v.NoteGroups[i].Reason != n.Reason {
			v.NoteGroups = append(v.NoteGroups, noteGroup{Reason: n.Reason, advice: noteRows()[n.Reason], All: all[n.Reason], Informational: n.Informational})
		}
		g := &v.NoteGroups[len(v.NoteGroups)-1]
		g.Notes = append(g.Notes, n)
	}
	if v.Kind.Path == "notes" {
		v.Query, v.Rows, v.Pages = q, len(found), pages(len(found), perPage)
	}
}

// events selects the events of the page, the newest first.
func (v *view) events(perPage int) {
	var found []status.Event
	wanted := strings.ToLower(v.Query.Text)
	for _, e := range slices.Backward(v.Events.Events) {
		if v.Kind.Path != "events" || (v.Query.State == "" || v.Query.State == e.Level) && strings.Contains(strings.ToLower(e.String()), wanted) {
			found = append(found, e)
		}
	}
	q := v.Query
	from, to := q.span(len(found), perPage)
	v.EventRows = found[from:to]
	if v.Kind.Path == "events" {
		v.Query, v.Rows, v.Pages = q, len(found), pages(len(found), perPage)
	}
}

// section renders one section of the page.
func (v *view) section(name string) (template.HTML, error) {
	var out bytes.Buffer
	err := page.ExecuteTemplate(&out, "section-"+name, v)
	return template.HTML(out.String()), err
}

// Sections renders all sections of the page.
func (v *view) Sections() (template.HTML, error) {
	var out strings.Builder
	for _, name := range v.Kind.sections {
		part, err := v.section(name)
		if err != nil {
			return "", err
		}
		out.WriteString(string(part))
		out.WriteByte('\n')
	}
	return template.HTML(out.String()), nil
}

// Overview reports whether it is the first page.
func (v *view) Overview() bool { return v.Kind.Path == "" }

// Clock returns the time of the reading.
func (v *view) Clock() string { return v.at.Format(time.TimeOnly) }

// Stamp returns the time of the reading for a program.
func (v *view) Stamp() string { return v.at.UTC().Format(time.RFC3339) }

// Problem returns the reason why the kernel could not be read, and the age of the frontends.
func (v *view) Problem() string {
	switch {
	case v.problem == "":
		return ""
	case v.old.IsZero():
		return v.problem
	}
	return fmt.Sprintf("%s; the counters are %s old", v.problem, text.Age(v.now.Sub(v.old)))
}

// Ago formats the time since t; "-" for a zero t.
func (v *view) Ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return text.Age(v.now.Sub(t))
}

// Until formats the time until t.
func (v *view) Until(t time.Time) string { return text.Age(t.Sub(v.now)) }

// Trial returns the time left of the trial of a configuration; "" without one.
func (v *view) Trial() string {
	if v.Status.Config.Trial == nil {
		return ""
	}
	return v.Status.Config.Trial.Text(v.now)
}

// Rated reports whether there are rates: two readings.
func (v *view) Rated() bool { return v.rates.Seconds > 0 }

// Per formats a rate, if there is one.
func (v *view) Per(rate float64) string {
	if !v.Rated() {
		return "–"
	}
	return text.Short(rate)
}

// Bits formats a rate of bytes in bits.
func (v *view) Bits(rate float64) string { return v.Per(8 * rate) }

// Total returns the traffic of all frontends.
func (v *view) Total() traffic.Rate { return v.rates.Total }

// Link returns the link to the page with another query.
func (v *view) Link(q query) string { return "/" + v.Kind.Path + q.encode() }
