package lab_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"weir/cmd/weirlab/lab"
)

// oneOfEach is a host and a box on one network.
func oneOfEach() lab.Site {
	return lab.Site{
		Hosts: []lab.Host{{Name: "host1", Nets: lab.Nets{"front": "10.1.0.2/24 fd01::2/64"}}},
		Boxes: []lab.Box{{Name: "box1", Nets: lab.Nets{"front": "10.1.0.1/24 fd01::1/64"}}},
	}
}

// TestCommands shows that hosts and boxes run commands alike.
func TestCommands(t *testing.T) {
	site := lab.Start(t, oneOfEach())
	for _, m := range site.Machines() {
		t.Run(m.Name(), func(t *testing.T) {
			t.Run("exit codes and streams", func(t *testing.T) { runsCommands(t, m) })
			t.Run("many at a time", func(t *testing.T) { runsMany(t, m) })
			t.Run("large output", func(t *testing.T) { carriesMuch(t, m) })
			t.Run("a command ends with its context", func(t *testing.T) { endsWithContext(t, m) })
			t.Run("long-running processes", func(t *testing.T) { runsProcesses(t, m) })
			t.Run("files", func(t *testing.T) { carriesFiles(t, m) })
		})
	}
}

func runsCommands(t *testing.T, m *lab.Machine) {
	for _, tc := range []struct {
		name    string
		command lab.Command
		want    lab.Output
		wantErr string // "" for none
	}{
		{name: "success", command: lab.Command{Args: []string{"echo", "a b", "c"}}, want: lab.Output{Stdout: "a b c\n"}},
		{name: "exit code",
			command: lab.Command{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}},
			want:    lab.Output{Stdout: "out\n", Stderr: "err\n", Code: 3}, wantErr: "exit code 3: err"},
		{name: "signal", command: lab.Command{Args: []string{"sh", "-c", "kill -TERM $$"}},
			want: lab.Output{Code: 128 + 15}, wantErr: "exit code 143"},
		{name: "standard input", command: lab.Command{Args: []string{"wc", "-c"}, Stdin: "12345"}, want: lab.Output{Stdout: "5\n"}},
		{name: "environment and folder",
			command: lab.Command{Args: []string{"sh", "-c", "echo $COLOUR $PWD $HOME"}, Env: []string{"COLOUR=green"}, Dir: "/tmp"},
			want:    lab.Output{Stdout: "green /tmp /root\n"}},
		{name: "host name", command: lab.Command{Args: []string{"hostname"}}, want: lab.Output{Stdout: m.Name() + "\n"}},
		{name: "no such program", command: lab.Command{Args: []string{"frobnicate"}}, wantErr: "executable file not found"},
		{name: "nothing", command: lab.Command{}, wantErr: "no command given"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := m.Exec(within(t), tc.command)
			if out != tc.want {
				t.Errorf("output %+v, want %+v", out, tc.want)
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}

func runsMany(t *testing.T, m *lab.Machine) {
	ctx := within(t)
	lab.Must(t, lab.SideBySide(40, func(i int) error {
		out, err := m.Run(ctx, "echo", fmt.Sprint(i))
		if err == nil && out.Stdout != fmt.Sprintln(i) {
			err = fmt.Errorf("command %d printed %q", i, out.Stdout)
		}
		return err
	}))
}

func carriesMuch(t *testing.T, m *lab.Machine) {
	const bytes = 8 << 20
	out := m.Must(t, "head", "-c", fmt.Sprint(bytes), "/dev/zero")
	if len(out) != bytes || strings.Trim(out, "\x00") != "" {
		t.Errorf("got %d bytes, want %d zeros", len(out), bytes)
	}
}

func endsWithContext(t *testing.T, m *lab.Machine) {
	// The pipe's reader learns of the end of all its writers: the shell's child too must have gone.
	m.Must(t, "mkfifo", "/run/alive")
	reader, err := m.Start("sh", "-c", "cat /run/alive; echo all gone")
	lab.Must(t, err)
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error)
	go func() {
		_, err := m.Run(ctx, "sh", "-c", "exec >/run/alive; echo running; sleep 1000; true")
		ended <- err
	}()
	lab.Must(t, reader.Expect(within(t), "running"))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v, want a cancelled context", err)
	}
	if err := reader.Expect(within(t), "all gone"); err != nil {
		t.Error(err)
	}
}

func runsProcesses(t *testing.T, m *lab.Machine) {
	ctx := within(t)
	// A shell runs a trap only between two commands, so the one in between must end with it.
	p, err := m.Start("sh", "-c", `trap "echo caught; exit 7" TERM; echo ready; while :; do sleep 0.05; done`)
	lab.Must(t, err)
	lab.Must(t, p.Expect(ctx, "ready"))
	lab.Must(t, p.Signal(syscall.SIGTERM))
	if code, err := p.Wait(ctx); code != 7 || err != nil {
		t.Errorf("exit code %d, error %v, want 7", code, err)
	}
	if got := p.Output(); got != "ready\ncaught\n" {
		t.Errorf("output %q", got)
	}
	if err := p.Expect(ctx, "never"); err == nil || !strings.Contains(err.Error(), "caught") {
		t.Errorf("error %v, want one that quotes the last words", err)
	}
	p.Kill() // of what has ended: nothing

	p, err = m.Start("sleep", "1000")
	lab.Must(t, err)
	p.Kill()
	if code, err := p.Wait(ctx); code != 128+9 || err != nil {
		t.Errorf("killed: exit code %d, error %v, want 137", code, err)
	}
	if _, err := m.Start("frobnicate"); err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("start of no program: %v", err)
	}
}

func carriesFiles(t *testing.T, m *lab.Machine) {
	ctx := within(t)
	content := "a\x00b\xff\n" + strings.Repeat("x", 1<<20)
	lab.Must(t, m.WriteFile(ctx, "/srv/new/folder/file", content, 0o750))
	got, err := m.ReadFile(ctx, "/srv/new/folder/file")
	if err != nil || got != content {
		t.Errorf("read back %d bytes, error %v, want what was written", len(got), err)
	}
	if mode := m.Must(t, "stat", "-c", "%a", "/srv/new/folder/file"); mode != "750\n" {
		t.Errorf("mode %q, want 750", mode)
	}
	if _, err := m.ReadFile(ctx, "/srv/none"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("read of no file: %v", err)
	}
}
