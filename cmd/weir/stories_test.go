package main

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what commands print into the stories")

// Each file in testdata/stories is a story: what a daemon answers, and what the command
// line makes of it. The text before the first section describes the story. The
// sections, each begun by a line of its own, are worked through in order:
//
//	-- GET /status --        the daemon answers this from now on, whatever the query;
//	-- GET /conns?match= --  with a query: only that one
//	-- POST /reload 500 --   the same with another status; what follows is its text
//	-- file weir.toml --     a file in the folder where the commands run; weir.toml is
//	                         given with -c to each command that takes it
//	-- terminal 80x24 --     from now on commands write to a terminal
//	-- story --              the commands, each with what it prints below it
//
// In a story, lines of standard error have "! " before them, escape sequences of a
// terminal are words such as <red>, and an exit status other than 0 is a line of its own.
// It is always the first second of 2026. Without any answers, no daemon runs.
//
//	go test ./cmd/weir -run TestStories -update
//
// writes what the commands print today into the stories, to be read before it is committed.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			file, err := filepath.Abs(file)
			must(t, err)
			text, err := os.ReadFile(file)
			must(t, err)
			told := play(t, string(text))
			if *update {
				must(t, os.WriteFile(file, []byte(told), 0o600))
				return
			}
			if d := cmp.Diff(string(text), told); d != "" {
				t.Errorf("(-told +happens):\n%s", d)
			}
		})
	}
}

var heading = regexp.MustCompile(`(?m)^-- (.+) --\n`)

// play returns a story with the output of its commands.
func play(t *testing.T, text string) string {
	t.Chdir(t.TempDir())
	w := world{t: t, answers: map[string]answer{}, socket: filepath.Join(t.TempDir(), "weir.sock")}
	var out strings.Builder
	at := heading.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		t.Fatal("no section")
	}
	out.WriteString(text[:at[0][0]])
	for i, m := range at {
		title, end := text[m[2]:m[3]], len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out.WriteString(text[m[0]:m[1]])
		out.WriteString(w.section(title, text[m[1]:end], i+1 == len(at)))
	}
	return out.String()
}

// world is where a story takes place.
type world struct {
	t       *testing.T
	socket  string
	answers map[string]answer // by method and path, with or without a query
	running bool
	screen  func() screen
}

type answer struct {
	code int
	body string
}

// section works through one section, and gives it with what its commands print.
func (w *world) section(title, body string, last bool) string {
	words := strings.Fields(title)
	switch {
	case title == "story":
		return w.story(body, last)
	case words[0] == "file" && len(words) == 2:
		if err := os.WriteFile(words[1], []byte(body), 0o600); err != nil {
			w.t.Fatal(err)
		}
	case words[0] == "terminal" && len(words) == 2:
		var s screen
		if _, err := fmt.Sscanf(words[1], "%dx%d", &s.width, &s.height); err != nil {
			w.t.Fatalf("%q: %v", title, err)
		}
		w.screen = func() screen { return s }
	case (words[0] == "GET" || words[0] == "POST") && len(words) <= 3:
		a := answer{http.StatusOK, body}
		if len(words) == 3 {
			a.code, _ = strconv.Atoi(words[2])
		}
		w.answers[words[0]+" "+words[1]] = a
		w.run()
	default:
		w.t.Fatalf("there is no section %q", title)
	}
	return body
}

// run begins to answer, unless it does already.
func (w *world) run() {
	if w.running {
		return
	}
	w.running = true
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	srv := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	go srv.Serve(l) //nolint:errcheck // it ends with the test
	w.t.Cleanup(func() { _ = srv.Close() })
}

// ServeHTTP answers as the story wants.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	query, err := url.QueryUnescape(r.URL.RawQuery)
	a, ok := w.answers[r.Method+" "+r.URL.Path+"?"+query]
	if !ok {
		a, ok = w.answers[r.Method+" "+r.URL.Path]
	}
	if !ok || err != nil {
		a = answer{http.StatusNotFound, "the story has no " + r.Method + " " + r.URL.RequestURI()}
	}
	out.WriteHeader(a.code)
	_, _ = out.Write([]byte(a.body))
}

// story runs the commands of a section.
func (w *world) story(body string, last bool) string {
	var out []string
	for line := range strings.Lines(body) {
		if args, ok := strings.CutPrefix(line, "$ weir"); ok {
			out = append(out, line+w.command(strings.Fields(args)))
		} else if strings.HasPrefix(line, "$") {
			w.t.Fatalf("%q is no command of weir's", line)
		}
	}
	text := strings.Join(out, "\n")
	if !last {
		text += "\n"
	}
	return text
}

// command gives what a command prints, and its exit status.
func (w *world) command(args []string) string {
	var stdout, stderr bytes.Buffer
	e := env{
		stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, screen: w.screen,
		now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) },
	}
	code := run(w.t.Context(), e, append(args, w.flags(args)...))
	var out strings.Builder
	out.WriteString(plain(w, stdout.String()))
	for line := range strings.Lines(plain(w, stderr.String())) {
		out.WriteString("! " + line)
	}
	if code != 0 {
		fmt.Fprintf(&out, "[exit status %d]\n", code)
	}
	return out.String()
}

// flags are those by which a command finds the world of its story.
func (w *world) flags(args []string) []string {
	root := rootCommand(env{})
	cmd, _, err := root.Find(args)
	if err != nil {
		return nil
	}
	var out []string
	if cmd.Flag("socket") != nil {
		out = append(out, "--socket="+w.socket)
	}
	if cmd.Flag("config") != nil {
		out = append(out, "--config=weir.toml")
	}
	return out
}

// plain makes text readable that was made for a terminal or names what is another one
// in every run.
func plain(w *world, text string) string {
	text = strings.ReplaceAll(text, w.socket, defaultSocket)
	for word, sequence := range sequences {
		text = strings.ReplaceAll(text, sequence, "<"+word+">")
	}
	return text
}

// sequences are those that terminals receive.
var sequences = map[string]string{
	"home": "\x1b[H", "rest": "\x1b[J", "line": "\x1b[K",
}
