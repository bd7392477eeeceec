package web

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/status"
)

// kind is one of the pages.
type kind struct {
	Path, Title string
	sections    []string
}

// kinds in the order in which the page names them. Sections are templates, and elements
// of the page by the same name.
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
	// unfolded is up to how many frontends their backends are shown with them, if those
	// are not more than backendsAtMost in all.
	unfolded       = 12
	backendsAtMost = 120
	// maxBackends is how many a frontend has on its own page; an IPVS service has
	// thousands at most.
	maxBackends = 1000
)

// view is what the templates are given.
type view struct {
	*reading
	Kind  kind
	Kinds []kind
	Query query
	selection
	// Unfold tells that backends are shown with their frontends.
	Unfold bool
	// Pages is how many the rows have, Rows how many there are.
	Pages, Rows int
	NoteGroups  []noteGroup
	EventRows   []status.Event
	now         time.Time
}

// noteGroup are Notes of one reason.
type noteGroup struct {
	Reason string
	meaning
	Notes []status.Note
	// All is how many there are; Notes may be the first of them.
	All           int
	Informational bool
}

// newView makes what a page shows of a reading.
func newView(k kind, r *reading, q query, now time.Time) *view {
	if k.Path == "" {
		q = parseQuery(nil) // there is nothing to choose on the overview
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

// notes takes the Notes of the page: what needs a look first, by reason.
func (v *view) notes(perPage int) {
	var found []status.Note
	text := strings.ToLower(v.Query.Text)
	for _, n := range v.Status.Notes {
		if v.Kind.Path != "notes" || strings.Contains(strings.ToLower(n.Service+" "+n.Reason+" "+n.Text), text) {
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b status.Note) int {
		return cmp.Or(boolCompare(a.Informational, b.Informational), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Service, b.Service))
	})
	all := map[string]int{}
	for _, n := range found {
		all[n.Reason]++
	}
	q := v.Query
	from, to := q.span(len(found), perPage)
	for _, n := range found[from:to] {
		if i := len(v.NoteGroups) - 1; i < 0 || v.NoteGroups[i].Reason != n.Reason {
			v.NoteGroups = append(v.NoteGroups, noteGroup{Reason: n.Reason, meaning: meanings[n.Reason], All: all[n.Reason], Informational: n.Informational})
		}
		g := &v.NoteGroups[len(v.NoteGroups)-1]
		g.Notes = append(g.Notes, n)
	}
	if v.Kind.Path == "notes" {
		v.Query, v.Rows, v.Pages = q, len(found), pages(len(found), perPage)
	}
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// events takes the events of the page, the newest first.
func (v *view) events(perPage int) {
	var found []status.Event
	text := strings.ToLower(v.Query.Text)
	for _, e := range slices.Backward(v.Events.Events) {
		if v.Kind.Path != "events" || (v.Query.State == "" || v.Query.State == e.Level) && strings.Contains(strings.ToLower(e.String()), text) {
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

// section makes one part of the page.
func (v *view) section(name string) (template.HTML, error) {
	var out bytes.Buffer
	err := page.ExecuteTemplate(&out, "section-"+name, v)
	return template.HTML(out.String()), err
}

// Sections are all parts of the page, for a whole one.
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

// page answers with a whole page.
func (p *Page) page(k kind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := p.read.get(r.Context())
		if read == nil {
			http.Error(w, "weir is busy, and has had no time to say how it is: try again, or ask weir status", http.StatusServiceUnavailable)
			return
		}
		var out bytes.Buffer
		if err := page.ExecuteTemplate(&out, "page", newView(k, read, parseQuery(r.URL.Query()), p.now())); err != nil {
			http.Error(w, "the page can't be made: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(out.Bytes()) // the reader has gone; nobody to tell
	})
}

// Overview tells whether it is the first page.
func (v *view) Overview() bool { return v.Kind.Path == "" }

// Clock is when what is shown was so.
func (v *view) Clock() string { return v.at.Format(time.TimeOnly) }

// Stamp is the same for a program.
func (v *view) Stamp() string { return v.at.UTC().Format(time.RFC3339) }

// Problem is why the kernel could not be read, and how old the frontends are.
func (v *view) Problem() string {
	switch {
	case v.problem == "":
		return ""
	case v.old.IsZero():
		return v.problem
	}
	return fmt.Sprintf("%s; what is shown is of %s ago", v.problem, status.Age(v.now.Sub(v.old)))
}

// Ago says how long ago something was; "-" if it never was.
func (v *view) Ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return status.Age(v.now.Sub(t))
}

// Until says how long something will last.
func (v *view) Until(t time.Time) string { return status.Age(t.Sub(v.now)) }

// Rated tells whether there are rates: two readings.
func (v *view) Rated() bool { return v.rates.Seconds > 0 }

// Per writes a rate, if there is one.
func (v *view) Per(rate float64) string {
	if !v.Rated() {
		return "–"
	}
	return perSecond(rate)
}

// Total is the traffic of all frontends.
func (v *view) Total() status.Rate { return v.rates.Total }

// Link is the address of a page that differs in something.
func (v *view) Link(q query) string { return "/" + v.Kind.Path + q.encode() }
