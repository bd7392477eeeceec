package lab

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// enter calls do with the calling goroutine in a network namespace. Goroutines that do starts are not
// in it; sockets it opens stay in it for good.
func enter(namespace *os.File, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	// Deferred, as do may end the goroutine (t.Fatal). A thread that cannot return to its namespace is not unlocked:
	// it ends with the goroutine.
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return do()
}
