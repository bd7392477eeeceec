package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/internal/inside"
)

// keeper is the process that holds a lab. Everything the lab makes lives in the keeper's namespaces,
// so that it is gone when the keeper is; and the keeper ends when its standard input does, which is
// a pipe that this process holds and the kernel closes, however this process ends.
type keeper struct {
	cmd     *exec.Cmd
	life    io.Closer // the pipe
	program string    // of the lab's first processes
	inner   string    // the work folder's name inside the lab
	outer   *os.File  // the same folder, for this process
	network *os.File  // the keeper's network namespace: the switch between the machines
}

func startKeeper() (*keeper, error) {
	program, err := Binary(firstPackage)
	if err != nil {
		return nil, err
	}
	work, err := cacheFolder("work")
	if err != nil {
		return nil, err
	}
	k := &keeper{program: program, inner: work}
	k.cmd = exec.Command(program, "keeper", k.inner)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setpgid:    true, // Ctrl-C is for us: we end the lab in order
	}
	var complaint bytes.Buffer
	k.cmd.Stderr = &complaint
	if k.life, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if line != inside.Ready+"\n" {
		k.stop()
		return nil, fmt.Errorf("start keeper: %s%s", line, bytes.TrimSpace(complaint.Bytes()))
	}
	if err := errors.Join(k.open(), k.takeProgram()); err != nil {
		k.stop()
		return nil, err
	}
	return k, nil
}

// takeProgram copies the program into the lab, which may run longer than the cache keeps it.
func (k *keeper) takeProgram() error {
	content, err := os.ReadFile(k.program)
	if err != nil {
		return err
	}
	k.program = k.name("first")
	return os.WriteFile(k.path("first"), content, 0o755)
}

// open takes hold of the keeper's folder and network while it certainly is the one we started.
func (k *keeper) open() error {
	root := fmt.Sprintf("/proc/%d/root", k.cmd.Process.Pid)
	fd, err := unix.Open(root+k.inner, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open work folder: %w", err)
	}
	k.outer = os.NewFile(uintptr(fd), k.inner)
	k.network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", k.cmd.Process.Pid))
	return err
}

// path is how this process names a file of the work folder.
func (k *keeper) path(elements ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/self/fd/%d", k.outer.Fd())}, elements...)...)
}

// name is how the lab names the same file.
func (k *keeper) name(elements ...string) string {
	return filepath.Join(append([]string{k.inner}, elements...)...)
}

// dial connects to the keeper's own agent.
func (k *keeper) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", k.path(inside.KeeperSocket))
}

// namespaceOf opens the network namespace of a process that the keeper's agent started.
func (k *keeper) namespaceOf(pid int) (*os.File, error) { return os.Open(k.procOf(pid) + "/ns/net") }

// rootOf is where this process finds the files that such a process has.
func (k *keeper) rootOf(pid int) string { return k.procOf(pid) + "/root" }

func (k *keeper) procOf(pid int) string {
	return fmt.Sprintf("/proc/%d/root/proc/%d", k.cmd.Process.Pid, pid)
}

// stop ends the keeper and waits until the kernel has ended all that lives in it.
func (k *keeper) stop() {
	k.life.Close()
	_ = k.cmd.Wait() // its exit status means nothing: it may have been killed
	for _, file := range []*os.File{k.outer, k.network} {
		if file != nil {
			file.Close()
		}
	}
}
