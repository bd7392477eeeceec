package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answer carries out the one request of a connection. A client that has gone wants no result.
func answer(conn net.Conn) {
	defer conn.Close()
	f := &frames{conn: conn}
	kind, payload, err := f.receive()
	if err != nil || kind != frameRequest {
		return
	}
	var req Request
	if err := json.Unmarshal(payload, &req); err != nil {
		_ = f.sendJSON(frameResult, Result{Err: fmt.Sprintf("parse request: %v", err)})
		return
	}
	_ = f.sendJSON(frameResult, carryOut(f, req))
}

func carryOut(f *frames, req Request) Result {
	switch req.Op {
	case Run:
		return run(f, req)
	case Read:
		return errorResult(read(f, req.Path))
	case Write:
		return errorResult(write(req))
	case Exchange:
		return errorResult(exchange(f, req))
	}
	return Result{Err: fmt.Sprintf("unknown request %q", req.Op)}
}

func errorResult(err error) Result {
	if err != nil {
		return Result{Err: err.Error()}
	}
	return Result{}
}

// stdinGrace is how long a finished command's input may still be written, into a pipe that a process
// it left behind keeps open.
const stdinGrace = time.Second

// run starts the command in a process group of its own, so that it can be killed with its children.
func run(f *frames, req Request) Result {
	if len(req.Args) == 0 {
		return Result{Err: "no command given"}
	}
	stdout, err := newOutput(stream{f, frameStdout})
	if err != nil {
		return errorResult(err)
	}
	stderr, err := newOutput(stream{f, frameStderr})
	if err != nil {
		stdout.abandon()
		return errorResult(err)
	}
	cmd := req.command()
	cmd.Stdout, cmd.Stderr = stdout.end, stderr.end
	if err := cmd.Start(); err != nil {
		stdout.abandon()
		stderr.abandon()
		return errorResult(err)
	}
	_ = f.sendJSON(frameStarted, cmd.Process.Pid) // before any output; obey sees a client that has gone
	stdout.follow()
	stderr.follow()
	go obey(f, cmd.Process)
	err = cmd.Wait()
	stdout.finish()
	stderr.finish()
	return result(err, cmd.ProcessState)
}

func (r Request) command() *exec.Cmd {
	cmd := exec.Command(r.Args[0], r.Args[1:]...)
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Dir = r.Dir
	if len(r.Data) > 0 {
		cmd.Stdin = bytes.NewReader(r.Data)
	}
	cmd.WaitDelay = stdinGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r.Apart {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
			unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	}
	return cmd
}

// obey passes the client's signals on; it ends, and the whole process group with it, when the
// connection does. A signal to what has already gone is no error.
func obey(f *frames, p *os.Process) {
	for {
		kind, payload, err := f.receive()
		if err != nil {
			_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
			return
		}
		if kind != frameSignal || len(payload) != 1 {
			continue
		}
		sig := syscall.Signal(payload[0])
		if sig == syscall.SIGKILL {
			_ = syscall.Kill(-p.Pid, sig)
			continue
		}
		_ = p.Signal(sig)
	}
}

func result(err error, state *os.ProcessState) Result {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return Result{Code: 128 + int(status.Signal())}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return Result{Code: state.ExitCode(), Err: err.Error()}
	}
	return Result{Code: state.ExitCode()}
}

func read(f *frames, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(stream{f, frameStdout}, file)
	return err
}

func write(req Request) error {
	if err := os.MkdirAll(filepath.Dir(req.Path), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(req.Mode)
	if err := os.WriteFile(req.Path, req.Data, mode); err != nil {
		return err
	}
	return os.Chmod(req.Path, mode)
}

// exchangeLimit is how long an exchange with a server may take.
const exchangeLimit = 30 * time.Second

func exchange(f *frames, req Request) error {
	if len(req.Args) != 2 {
		return fmt.Errorf("exchange with %v: want a network and an address", req.Args)
	}
	conn, err := net.DialTimeout(req.Args[0], req.Args[1], exchangeLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(exchangeLimit)); err != nil {
		return err
	}
	if _, err := conn.Write(req.Data); err != nil {
		return err
	}
	_, err = io.Copy(stream{f, frameStdout}, conn)
	return err
}
