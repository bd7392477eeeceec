package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

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
func cut(s string) string {
	s = plain(s)
	if len(s) <= maxWord {
		return s
	}
	end := maxWord
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + " ..."
}

// plain returns a text as one line without control characters.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\ufffd' {
			return ' '
		}
		return r
	}, text.Plain(s))
}

// advice is the next step for a problem, and the page of the documentation about it.
type advice struct {
	Do  template.HTML
	Doc string // a path of the page
}

// advices are the next steps by the codes of problems.
var advices = map[status.ProblemCode]struct{ do, doc string }{
	status.ProblemStarting:     {"wait for the first checks and clusters; `weir events` shows the progress", "operations.md"},
	status.ProblemKernel:       {"`weir doctor` checks modules and rights; `journalctl -u weir` has the complete error", "errors.md"},
	status.ProblemNoIPVS:       {"boot a kernel with `ip_vs`: `weir doctor`", "kernel.md"},
	status.ProblemStopping:     {"nothing: it ends when no connection is left", "operations.md"},
	status.ProblemDrained:      {"`weir undrain` ends the drain; `weir drain` shows its progress", "operations.md"},
	status.ProblemDrainState:   {"check the disk and the rights of `daemon.state_dir`: `weir doctor files disk`", "operations.md"},
	status.ProblemRolledBack:   {"`weir plan` shows the changes of the file", "operations.md"},
	status.ProblemReload:       {"`weir check` shows the line; correct it, then `weir reload`", "errors.md"},
	status.ProblemCluster:      {"check the API server and the kubeconfig; the last known state is served", "kubernetes.md"},
	status.ProblemBGP:          {"`weir bgp neighbors`; then the configuration of the router", "errors.md"},
	status.ProblemMinAnnounced: {"`weir health`: check the backends, or the network between", "errors.md"},
	status.ProblemMember:       {"`weir members` on this box and on another one", "fleet.md"},
	status.ProblemOtherMembers: {"check their power, cables and `journalctl -u weir`; other members serve their VIPs", "fleet.md"},
	status.ProblemL2:           {"check the cable and `ip link`", "fleet.md"},
	status.ProblemAddresses:    {"`weir pools`", "addresses.md"},
	status.ProblemGuarded:      {"to accept the deletions: `weir guard release CLUSTER`", "operations.md"},
	status.ProblemOperations:   {"`weir plan` shows them, `weir events` has the reason", "errors.md"},
	status.ProblemNotes:        {"see the notes below, each with its remedy", "notes.md"},
	status.ProblemBackends:     {"`weir health` has the error of each check; see the services below", "operations.md"},
}

// adviceFor returns the next step for a problem.
func adviceFor(p status.Problem) advice {
	a, ok := advices[p.Code]
	if !ok {
		return advice{code("`weir doctor`"), docPath("doctor.md", "")}
	}
	return advice{code(a.do), docPath(a.doc, "")}
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

// docPath returns the path of a document on the page, and of a word in it.
func docPath(name, word string) string {
	if word != "" {
		return "/doc/" + name + "#:~:text=" + word
	}
	return "/doc/" + name
}

// document serves a file of the documentation as text.
func document(w http.ResponseWriter, r *http.Request) {
	text, err := doc.Files.ReadFile(r.PathValue("name"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text) // the client may be gone
}

// meaning is the documentation of a reason for Notes.
type meaning struct{ Means, Do template.HTML }

// meanings returns the rows of the table of notes.md, by reason.
var meanings = sync.OnceValue(func() map[string]meaning {
	text, err := doc.Files.ReadFile("notes.md")
	if err != nil {
		panic("web: " + err.Error()) // it is embedded
	}
	out := map[string]meaning{}
	for line := range strings.Lines(string(text)) { // | `reason` | meaning | remedy |
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 5 {
			continue
		}
		reason := strings.TrimSpace(cells[1])
		if name := strings.Trim(reason, "`"); name != reason {
			out[name] = meaning{code(strings.TrimSpace(cells[2])), code(strings.TrimSpace(strings.Join(cells[3:len(cells)-1], "|")))}
		}
	}
	return out
})

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

// frontendInfo returns the kind of a frontend's VIP and its owner in the fleet.
func frontendInfo(s *server) string {
	var out []string
	if s.Mark != 0 {
		out = append(out, "inside")
	}
	if s.Kind != "" && s.Kind != "LoadBalancer" {
		out = append(out, s.Kind)
	}
	if s.Local {
		out = append(out, "Local")
	}
	if s.Role != "" && s.Role != status.RoleOwner {
		out = append(out, string(s.Role))
		if s.Owner != "" {
			out = append(out, s.Owner+" owns it")
		}
	}
	return strings.Join(out, ", ")
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
