package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin keeps this process, and so all that it starts, on one processor. User-mode
// Linux switches between two processes of the host at every system call; when the
// host spreads them over processors, everything in the box takes two to seven
// times as long, today this part and tomorrow that one.
func pin() error {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("ask which processors may be used: %w", err)
	}
	cpu := 0
	for i := range len(allowed) * 64 {
		if allowed.IsSet(i) {
			cpu = i // the last one: the first often has the interrupts
		}
	}
	one.Set(cpu)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &one); err != nil {
			return fmt.Errorf("stay on processor %d: %w", cpu, err)
		}
	}
	return nil
}
