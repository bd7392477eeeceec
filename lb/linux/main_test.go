package linux

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMain runs the tests as root again in a new network namespace, which they may change.
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

// inNamespace skips a test that changes the network, if TestMain could not create a namespace.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Getenv("WEIR_NETNS") == "" {
		t.Skip("SKIPPED: needs root, for a network namespace of its own")
	}
	sh(t, "ip link set lo up")
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
