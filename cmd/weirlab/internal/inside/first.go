package inside

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/internal/agent"
)

// Run plays a role until its end: "keeper FOLDER", "machine", "agent" or "trial". The first
// process of a machine never ends well: it is ended. So there is always an error.
func Run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "keeper":
		return Keeper(args[1])
	case len(args) == 1 && args[0] == "machine":
		return Machine()
	case len(args) == 1 && args[0] == "agent":
		return Agent()
	case len(args) == 1 && args[0] == "trial":
		return Trial()
	}
	return fmt.Errorf("no role of the lab's first processes: %q", args)
}

// Trial is the first process of a kernel that has only to show that it boots, and that it runs programs.
func Trial() error {
	fmt.Println(Ready)
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// agentListener is the file descriptor at which the agent finds its listener.
const agentListener = 3

// Agent answers requests on the listener its parent opened.
func Agent() error {
	file := os.NewFile(agentListener, "listener")
	l, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("agent listener: %w", err)
	}
	return agent.Serve(l)
}

// runAgent starts the agent, prints Ready, and reaps every process that ends until the agent itself has.
// It is apart from the agent because the first process must wait for all orphans, and an
// agent for each of its own. With become the first process is another program from then on, which
// must reap them.
func runAgent(listener *os.File, become []string) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"weirlab", "agent"}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), 1, 2, listener.Fd()},
	})
	if err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	listener.Close()
	null.Close()
	fmt.Println(Ready)
	if len(become) > 0 {
		return fmt.Errorf("become %s: %w", become[0], syscall.Exec(become[0], become, os.Environ()))
	}
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the agent: %w", err)
		}
		if ended == pid {
			return fmt.Errorf("the agent ended: status %d", status)
		}
	}
}
