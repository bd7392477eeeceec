package web

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
	"weir/cmd/weir/internal/status/text"
	"weir/packaging/doc"
)

// number formats an integer with separators at the thousands.
func number[T int | uint32 | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// count formats a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// first returns the rows of a list that a section shows.
func first(list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(v.Len(), rowsAtMost)).Interface()
}

// more returns the number of rows that a section does not show.
func more(list any) int { return max(0, reflect.ValueOf(list).Len()-rowsAtMost) }

// maxWord bounds texts from outside, in bytes: names and messages of clusters, errors
// of checks.
const maxWord = 300

// cut shortens a long text, and makes it plain.
func cut(s string) string { return text.Cut(plain(s), maxWord) }

// plain returns a text as one line without control characters.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\ufffd' {
			return ' '
		}
		return r
	}, text.Plain(s))
}

// code returns a text as HTML, with the parts in backticks as code.
func code(text string) template.HTML {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		out.WriteString(part)
	}
	return template.HTML(out.String())
}

// advice is a row of the documentation, and its path on the page.
type advice struct {
	Means, Do template.HTML
	Doc       string
}

// adviceFor returns the documentation of a problem.
func adviceFor(p status.Problem) advice { return problemRows()[string(p.Code)] }

// The rows of the documentation: problems by code, Notes by reason.
var (
	problemRows = sync.OnceValue(func() map[string]advice { return advices("problems.md") })
	noteRows    = sync.OnceValue(func() map[string]advice { return advices("notes.md") })
)

// advices returns the rows of the table of a document, by the word in their first cell.
func advices(name string) map[string]advice {
	text, err := doc.Files.ReadFile(name)
	if err != nil {
		panic("web: " + err.Error()) // it is embedded
	}
	out := map[string]advice{}
	for line := range strings.Lines(string(text)) {
		if m := docRow.FindStringSubmatch(line); m != nil { // | `word` | meaning | action |
			means, do, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(m[2]), "|"), " | ")
			out[m[1]] = advice{code(means), code(strings.TrimSpace(do)), "/doc/" + name + "#" + m[1]}
		}
	}
	return out
}

// docRow is a row of a table that begins with a code or a reason.
var docRow = regexp.MustCompile("^\\| `([a-z0-9-]+)` \\| (.*)")

// document serves a file of the documentation as written. A row that begins with a code
// or a reason has an anchor, the first of each.
func document(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := doc.Files.ReadFile(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>%[1]s - weir</title>\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"stylesheet\" href=\"/weir.css\">\n<pre class=\"doc\">\n", template.HTMLEscapeString(name))
	named := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line, m := template.HTMLEscapeString(line), docRow.FindStringSubmatch(line)
		if m != nil && !named[m[1]] {
			named[m[1]] = true
			line = `<span id="` + m[1] + `">` + line + "</span>"
		}
		_, _ = io.WriteString(w, line) // the client may be gone
	}
}

// stateClass returns the style of the state of a box.
func stateClass(s status.State) string {
	switch s {
	case status.OK:
		return "good"
	case status.Failed:
		return "bad"
	}
	return "warn"
}

// memberClass returns the style of the state of a member.
func memberClass(m status.Member) string {
	switch m.State {
	case status.MemberServing, status.MemberStandby:
		return "good"
	case status.MemberDead, status.MemberDaemonDown:
		return "bad"
	case status.MemberLeft:
		return "dim"
	}
	return "warn"
}

// peerState returns the state of a session; a range has none.
func peerState(n routing.Neighbor) string {
	if n.Address == "" && n.Range != "" {
		return "waiting"
	}
	return n.State
}

// peerClass returns the style of a session.
func peerClass(n routing.Neighbor) string {
	switch {
	case peerState(n) == "waiting":
		return "dim"
	case n.State == routing.Established && n.Problem == "":
		return "good"
	case n.State == routing.Established:
		return "warn"
	}
	return "bad"
}

// peerReason returns the problem of a session.
func peerReason(n routing.Neighbor) string {
	if n.State == routing.Established {
		return n.Problem
	}
	return n.Down
}

// clusterReason returns the problem of a cluster.
func clusterReason(c status.Cluster) string {
	text := cmp.Or(c.Error, c.SnapshotError, c.EventsError)
	if c.Stale {
		text = strings.TrimSuffix("from its file; "+text, "; ")
	}
	return text
}

// levelClass returns the style of the level of an event.
func levelClass(level string) string {
	switch level {
	case "error":
		return "bad"
	case "warn":
		return "warn"
	}
	return "dim"
}

// latency formats the duration of a check.
func latency(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// checked returns the number of backends with a check.
func checked(b status.Backends) int { return b.Up + b.Down + b.Unknown }

// title returns the title of the page: the box, its state and the number of problems.
func title(r *reading) string {
	out := string(r.Status.State)
	if n := len(r.Status.Problems); n > 0 {
		out += fmt.Sprintf(" (%d)", n)
	}
	if r.Name != "" {
		out = cut(r.Name) + " - " + out
	}
	return out
}
