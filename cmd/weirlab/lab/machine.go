package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"weir/cmd/weirlab/internal/agent"
)

// Machine is a host or a box of a lab. Its methods may be used by many goroutines at a time.
type Machine struct {
	plan
	lab *Lab

	mu        sync.Mutex
	power     *power // nil when off
	unplugged map[string]bool
	logs      map[string]int // how many logs of each name there have been
}

// Command is what to run on a machine.
type Command struct {
	Args  []string
	Env   []string // added to the machine's own
	Dir   string   // "" means /root
	Stdin string
	Log   string // the log's name; "" means the program's. Of Launch only
}

// Output is what a finished command printed, and its exit code: 128+n after signal n.
type Output struct {
	Stdout string
	Stderr string
	Code   int
}

// Name is the machine's name in the site, and its host name.
func (m *Machine) Name() string { return m.name }

// Kernel is what the machine runs on.
func (m *Machine) Kernel() Kernel { return m.kernel }

// Run runs a command on the machine and waits for its end. An exit code other than 0 is an error that
// quotes the output of the command; the output is valid with it. When ctx ends, the command is killed
// with its children.
func (m *Machine) Run(ctx context.Context, args ...string) (Output, error) {
	return m.Exec(ctx, Command{Args: args})
}

// Exec is Run with everything a command may need.
func (m *Machine) Exec(ctx context.Context, c Command) (Output, error) {
	what := fmt.Sprintf("%s: run %s", m.name, strings.Join(c.Args, " "))
	var stdout, stderr bytes.Buffer
	result, err := m.ask(ctx, c.request(), &stdout, &stderr)
	out := Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: result.Code}
	if err != nil {
		return out, fmt.Errorf("%s: %w", what, err)
	}
	if out.Code != 0 {
		return out, fmt.Errorf("%s: exit code %d: %s", what, out.Code, lastWords(out))
	}
	return out, nil
}

func lastWords(out Output) string {
	text := strings.TrimSpace(out.Stderr)
	if text == "" {
		text = strings.TrimSpace(out.Stdout)
	}
	return text[max(0, len(text)-1000):]
}

func (c Command) request() agent.Request {
	return agent.Request{Op: agent.Run, Args: c.Args, Env: c.Env, Dir: c.Dir, Data: []byte(c.Stdin)}
}

// Start starts a long-running process, which ends with the machine's power or the lab at the latest.
func (m *Machine) Start(args ...string) (*Proc, error) { return m.Launch(Command{Args: args}) }

// Launch is Start with everything a command may need.
func (m *Machine) Launch(c Command) (*Proc, error) {
	if len(c.Args) == 0 {
		return nil, fmt.Errorf("%s: start: no command given", m.name)
	}
	if c.Log == "" {
		c.Log = filepath.Base(c.Args[0])
	}
	on, err := boot{m}.on()
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%s: %s", m.name, c.Log)
	p, err := m.lab.launch(on.ctx, on.ctx, on.dial, what, c.request(), evidence{m}.newLog(c.Log))
	if err != nil {
		return nil, fmt.Errorf("%s: start: %w", what, err)
	}
	return p, nil
}

// WriteFile writes a file on the machine, making its folders. In memory, unless it is in a folder
// that is kept.
func (m *Machine) WriteFile(ctx context.Context, path, content string, mode os.FileMode) error {
	req := agent.Request{Op: agent.Write, Path: path, Data: []byte(content), Mode: uint32(mode.Perm())}
	if _, err := m.ask(ctx, req, &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		return fmt.Errorf("%s: write %s: %w", m.name, path, err)
	}
	return nil
}

// ReadFile reads a file of the machine.
func (m *Machine) ReadFile(ctx context.Context, path string) (string, error) {
	var content bytes.Buffer
	req := agent.Request{Op: agent.Read, Path: path}
	if _, err := m.ask(ctx, req, &content, &bytes.Buffer{}); err != nil {
		return "", fmt.Errorf("%s: read %s: %w", m.name, path, err)
	}
	return content.String(), nil
}

// ask sends the machine's agent a request and waits for its result.
func (m *Machine) ask(ctx context.Context, req agent.Request, stdout, stderr *bytes.Buffer) (agent.Result, error) {
	on, err := boot{m}.on()
	if err != nil {
		return agent.Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(on.ctx, cancel)()
	result, err := askOver(ctx, on.dial, req, stdout, stderr)
	if errors.Is(err, agent.ErrLost) && on.ctx.Err() != nil {
		return result, ErrPowerLost
	}
	if errors.Is(err, agent.ErrLost) && ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, err
}

type dialer func(ctx context.Context) (net.Conn, error)

func askOver(ctx context.Context, dial dialer, req agent.Request, stdout, stderr *bytes.Buffer) (agent.Result, error) {
	conn, err := dial(ctx)
	if err != nil {
		return agent.Result{}, err
	}
	call, err := agent.Begin(ctx, conn, req)
	if err != nil {
		return agent.Result{}, err
	}
	result, err := call.Wait(stdout, stderr)
	if err == nil && result.Err != "" {
		err = errors.New(result.Err)
	}
	return result, err
}

// newLog names the log of one more process: weir.log, weir-2.log, ...
func (m evidence) newLog(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[name]++
	if n := m.logs[name]; n > 1 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	return m.logPath(name + ".log")
}

func (m evidence) logPath(file string) string { return m.lab.keeper.path(m.name, "log", file) }

// Get asks an HTTP server of a machine for a path, and returns its answer. The network is "tcp" or "unix".
// No program is started: the start of one takes a box a tenth of a second.
func Get(ctx context.Context, m *Machine, network, address, path string) (string, error) {
	what := fmt.Sprintf("%s: get %s of %s", m.name, path, address)
	host := address
	if network == "unix" {
		host = "localhost"
	}
	request := fmt.Sprintf("GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host)
	var text bytes.Buffer
	req := agent.Request{Op: agent.Exchange, Args: []string{network, address}, Data: []byte(request)}
	if _, err := m.ask(ctx, req, &text, &bytes.Buffer{}); err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	body, err := readAnswer(&text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return body, nil
}

// readAnswer reads a whole answer of HTTP. One with another status than 200 is an error.
func readAnswer(text io.Reader) (string, error) {
	response, err := http.ReadResponse(bufio.NewReader(text), nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(body))
	}
	return string(body), nil
}
