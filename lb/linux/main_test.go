package linux

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMain runs the tests again in a fresh network namespace, where they may do
// what they like, if it is root who runs them.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv("WEIR_NETNS") != "" {
		os.Exit(m.Run())
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), "WEIR_NETNS=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

// inNamespace skips a test that changes the network, where TestMain could not
// make a namespace for it.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Getenv("WEIR_NETNS") == "" {
		t.Skip("SKIPPED: needs root, for a network namespace of its own")
	}
	sh(t, "ip link set lo up")
}
