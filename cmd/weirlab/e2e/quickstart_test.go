package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// Quick starts are typed as they are written. A block of packaging/doc/quickstart-*.md that
// begins with ```sh has the input after the prompt of a machine of the lab, "box# " or
// "client$ ", here-documents and continued lines included, and after that what he should see, if
// it is shown. There "..." is any number of lines, and figures that are others each time do not
// count: see blur. Every command ends with 0.

// step is one command of a quick start.
type step struct {
	line    int // in the file
	machine string
	command string
	want    []string // lines; none: it must succeed, whatever its output
}

var prompt = regexp.MustCompile(`^([a-z][a-z0-9]*)[#$] (.*)$`)

// readSteps finds the steps of a quick start.
func readSteps(t testing.TB, file string) []step {
	t.Helper()
	steps := readSection(t, file, "")
	if len(steps) < 5 {
		t.Fatalf("%s has %d steps", file, len(steps))
	}
	return steps
}

// readSection finds the steps below one heading, or all if it is empty.
func readSection(t testing.TB, file, heading string) []step {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "doc", file))
	must(t, err)
	var steps []step
	lines := strings.Split(string(text), "\n")
	below := ""
	for i := 0; i < len(lines); i++ {
		if name, ok := strings.CutPrefix(lines[i], "## "); ok {
			below = name
		}
		if lines[i] != "```sh" || heading != "" && below != heading {
			continue
		}
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			m := prompt.FindStringSubmatch(lines[i])
			if m == nil {
				if len(steps) == 0 {
					t.Fatalf("%s:%d: %q comes before any command", file, i+1, lines[i])
				}
				last := &steps[len(steps)-1]
				last.want = append(last.want, lines[i])
				continue
			}
			s := step{line: i + 1, machine: m[1], command: m[2]}
			for strings.HasSuffix(lines[i], `\`) && i+1 < len(lines) {
				i++
				s.command += "\n" + lines[i]
			}
			if _, end, here := strings.Cut(s.command, "<<"); here {
				end = strings.Trim(strings.Fields(end)[0], `'"`)
				for done := false; !done && i+1 < len(lines); done = lines[i] == end {
					i++
					s.command += "\n" + lines[i]
				}
			}
			steps = append(steps, s)
		}
	}
	return steps
}

// reads are commands that change nothing: a reader who does not see yet what he should types them
// again.
var reads = []string{
	"curl", "for i in", "ip route", "ping", "kubectl get", "systemctl status", "weir status", "weir services", "weir conns", "weir explain",
	"weir pools", "weir bgp", "weir members", "weir health", "weir events", "weir doctor",
}

// kubeconfigFlag may come before the verb of kubectl.
var kubeconfigFlag = regexp.MustCompile(`^kubectl --kubeconfig \S+ `)

// readsOnly reports whether a command is one of reads.
func readsOnly(command string) bool {
	command = kubeconfigFlag.ReplaceAllString(command, "kubectl ")
	return slices.ContainsFunc(reads, func(r string) bool { return strings.HasPrefix(command, r) })
}

// quickstart is a lab in which one is typed.
type quickstart struct {
	*lab.Lab
	file     string
	begin    time.Time // of the first installation
	answered bool
	after    func(step, string) // what is done with the output of a step; may be nil
}

// typeAll types all steps, in their order.
func (q *quickstart) typeAll(t *testing.T) {
	t.Helper()
	steps := readSteps(t, q.file)
	defer q.lastWords(t, steps)
	for _, s := range steps {
		if q.begin.IsZero() && strings.HasPrefix(s.command, "apt install") {
			q.begin = time.Now()
		}
		begin := time.Now()
		out := q.typeOne(t, s)
		t.Logf("%s:%d after %s\n%s: %s\n%s", q.file, s.line, time.Since(begin).Round(time.Millisecond), s.machine, s.command, out)
		if q.after != nil {
			q.after(s, out)
		}
		if !q.answered && strings.Contains(s.command, "curl ") {
			q.answered = true
			figure(t, q.file+": from apt install, all commands typed, until the first request is answered", time.Since(q.begin))
		}
	}
	if !q.answered {
		t.Errorf("%s: nobody asks for anything", q.file)
	}
}

// lastWords has the journals, if something went wrong.
func (q *quickstart) lastWords(t *testing.T, steps []step) {
	for _, s := range steps {
		if strings.HasPrefix(s.command, "apt install") && t.Failed() {
			out, err := q.machine(s.machine).Run(t.Context(), "journalctl", "-u", "weir", "-o", "cat", "--no-pager", "-n", "100")
			t.Logf("%s: its journal: %v\n%s", s.machine, err, out.Stdout)
		}
	}
}

// typeOne types a command, and again if that may help.
func (q *quickstart) typeOne(t *testing.T, s step) (out string) {
	t.Helper()
	m := q.machine(s.machine)
	if m == nil {
		t.Fatalf("%s:%d: there is no machine %s", q.file, s.line, s.machine)
	}
	patience := time.Duration(0)
	if readsOnly(s.command) {
		patience = time.Minute
	}
	eventually(t, patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		got, err := m.Run(ctx, "bash", "-c", "exec 2>&1\n"+s.command)
		out = got.Stdout
		switch {
		case err != nil:
			err = fmt.Errorf("%s:%d: %w\n%s", q.file, s.line, err, out)
		case len(s.want) > 0 && !shows(s.want, out):
			err = fmt.Errorf("%s:%d: %s\nshows\n%s\nand not\n%s", q.file, s.line, s.command, out, strings.Join(s.want, "\n"))
		}
		if err != nil && patience > 0 {
			time.Sleep(200 * time.Millisecond)
		}
		return err
	})
	return out
}

// machine is a host or a box, nil if none has that name.
func (q *quickstart) machine(name string) *lab.Machine {
	for _, m := range q.Machines() {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// What is another each time.
var (
	durations = regexp.MustCompile(`\b[0-9.]+(ns|µs|ms|s|m|h|d)\b`)
	processes = regexp.MustCompile(`\bpid [0-9]+`)
	versions  = regexp.MustCompile(`^(Version: +)[^ ,]+`)
	kernels   = regexp.MustCompile(`^(Kernel: +)[^ ,]+`)
	counts    = regexp.MustCompile(`^(-> \S+ Masq [0-9]+) [0-9]+ [0-9]+`)
	blanks    = regexp.MustCompile(`\s+`)
)

// blur takes from a line what is another each time: ages, process numbers, versions, connections
// counted, and the width of columns.
func blur(line string) string {
	line = strings.TrimSpace(blanks.ReplaceAllString(line, " "))
	line = durations.ReplaceAllString(line, "TIME")
	line = processes.ReplaceAllString(line, "pid N")
	line = versions.ReplaceAllString(line, "${1}VERSION")
	line = kernels.ReplaceAllString(line, "${1}KERNEL")
	return counts.ReplaceAllString(line, "$1 N N")
}

// shows reports whether lines are as wanted.
func shows(want []string, out string) bool {
	got := strings.Split(strings.TrimRight(out, "\n"), "\n")
	return match(trimmed(want), trimmed(got))
}

func trimmed(lines []string) (out []string) {
	for _, l := range lines {
		if l = blur(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

func match(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] == "...":
		return match(want[1:], got) || len(got) > 0 && match(want, got[1:])
	}
	return len(got) > 0 && sameLine(want[0], got[0]) && match(want[1:], got[1:])
}

// sameLine is for one line, in which "..." is anything, too.
func sameLine(want, got string) bool {
	parts := strings.Split(regexp.QuoteMeta(want), regexp.QuoteMeta("..."))
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

func TestQuickStartsAreCompared(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want, got string
		same      bool
	}{
		{"weir is ok: 1 service on 1 VIP", "weir is ok: 1 service on 1 VIP\n", true},
		{"weir is ok: 1 service on 1 VIP", "weir is ok: 2 services on 1 VIP", false},
		{"Version: 1.2.3, pid 4, up 3m\n...\nz", "Version:   devel-7, pid 99, up 7s\na\nb\nz", true},
		{"a\n...", "a", true},
		{"a\n...\nc", "a\nb", false},
		{"-> 10.2.0.11:80 Masq 1 0 3 up", "  -> 10.2.0.11:80   Masq  1   2  77  up", true},
		{"-> 10.2.0.11:80 Masq 1 0 3 up", "  -> 10.2.0.11:80   Masq  0   2  77  up", false},
		{"a", "a\nb", false},
		{"down (...)", "down (connection refused)", true},
		{"down (...)", "up", false},
	} {
		if got := shows(strings.Split(tt.want, "\n"), tt.got); got != tt.same {
			t.Errorf("%q for %q: %v", tt.got, tt.want, got)
		}
	}
	for command, want := range map[string]bool{
		"kubectl get service web": true, "kubectl --kubeconfig prod.admin get service web": true,
		"kubectl --kubeconfig prod.admin apply -f web.yaml": false, "weir reload": false,
	} {
		if got := readsOnly(command); got != want {
			t.Errorf("%s is typed again: %v", command, got)
		}
	}
}
