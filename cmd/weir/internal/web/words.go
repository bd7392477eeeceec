package web

import (
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/cmd/weir/internal/status"
	"weir/packaging/doc"
)

// number writes an integer with a mark at the thousands.
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

// count writes how many there are of something.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}

// perSecond writes a rate in three digits or so: 0, 0.4, 12, 1.2k, 34M.
func perSecond(v float64) string {
	for _, unit := range []string{"", "k", "M", "G", "T"} {
		switch {
		case v == 0:
			return "0"
		case v < 9.95:
			return strconv.FormatFloat(math.Max(v, 0.1), 'f', 1, 64) + unit
		case v < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + unit
		}
		v /= 1000
	}
	return "very many"
}

// maxWord bounds what comes from elsewhere, in bytes: names and messages of clusters,
// errors of checks.
const maxWord = 300

// cut shortens what is too long to be read, and makes it plain.
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

// plain is a text of one line, with nothing in it that is no text.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\ufffd' {
			return ' '
		}
		return r
	}, status.Plain(s))
}

// next says what to do about each thing that keeps a box from being ok: a command, or
// where to look. It goes by the beginning of what status.Judge says.
var next = []struct {
	about *regexp.Regexp
	do    string
}{
	{regexp.MustCompile(`^the kernel can't be read`), "`weir doctor` looks for modules and rights; `journalctl -u weir` has the error in full"},
	{regexp.MustCompile(`^the kernel does not hold`), "wait for the first checks and clusters; `weir events` tells how far it is"},
	{regexp.MustCompile(`^this kernel has no IPVS`), "boot a kernel with `ip_vs`: `weir doctor`"},
	{regexp.MustCompile(`^weir stops`), "nothing: it ends when no connection is left"},
	{regexp.MustCompile(`DRAINED`), "`weir undrain` brings it back; `weir drain` tells how far it is"},
	{regexp.MustCompile(`^the last reload was refused`), "`weir check` says where; put it right, then `weir reload`"},
	{regexp.MustCompile(`^cluster `), "look at the API server and the kubeconfig; what was heard last is served on"},
	{regexp.MustCompile(`^BGP`), "`weir bgp neighbors`; then the router's side"},
	{regexp.MustCompile(`VIPs? without a backend announced`), "`weir health`: the backends, or the way to them"},
	{regexp.MustCompile(`^other members`), "look at their power, cables and `journalctl -u weir`; others serve their VIPs meanwhile"},
	{regexp.MustCompile(`^this box (is|takes)`), "`weir members` on this box and on another one"},
	{regexp.MustCompile(`^nothing is answered on`), "look at the cable and at `ip link`"},
	{regexp.MustCompile(`^no addresses are given`), "`weir pools`"},
	{regexp.MustCompile(`which is held`), "if it is meant so: `weir guard release CLUSTER`"},
	{regexp.MustCompile(`operations failed`), "`weir plan` shows them, `weir events` says why"},
	{regexp.MustCompile(`^\d+ notes?$`), "the notes are below, each with what to do"},
	{regexp.MustCompile(`backends are down$`), "`weir health` has what each check met; the services are below"},
	{regexp.MustCompile(`^the file is not what is in force`), "`weir plan` tells what it would change"},
}

// nextOf gives what to do; of what nobody foresaw, who knows more.
func nextOf(why string) template.HTML {
	for _, n := range next {
		if n.about.MatchString(why) {
			return code(n.do)
		}
	}
	return code("`weir doctor`")
}

// code is a text with what is in backticks as code, as HTML.
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

// meaning is what the documentation says of a reason for Notes.
type meaning struct{ Means, Do template.HTML }

// meanings are those of notes.md: the rows of its table.
var meanings = func() map[string]meaning {
	text, err := doc.Files.ReadFile("notes.md")
	if err != nil {
		panic("web: " + err.Error()) // it is embedded
	}
	return readMeanings(string(text))
}()

// readMeanings reads "| `reason` | meaning | what to do |".
func readMeanings(text string) map[string]meaning {
	out := map[string]meaning{}
	for line := range strings.Lines(text) {
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
}
