package program

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children are the processes below this one: programs, and processes that they left behind.
type children struct {
	mu      sync.Mutex
	running map[int]bool
}

// newChildren makes this process the parent of orphans below it.
func newChildren() (*children, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	return &children{running: map[int]bool{}}, nil
}

func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.running[cmd.Process.Pid] = true
	return nil
}

// kill ends a program and its process group.
func (c *children) kill(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an ended group is what is wanted
}

// ended forgets a program that has been waited for. It kills the rest of its group, and all
// processes that have left the groups of programs and lost their parents.
func (c *children) ended(cmd *exec.Cmd) {
	c.kill(cmd)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, cmd.Process.Pid)
	for c.killOrphans() > 0 {
	}
}

// killOrphans kills the children of this process that are in no group of a running program, and
// returns their number. Children of theirs become orphans, too.
func (c *children) killOrphans() int {
	n := 0
	for pid, group := range childrenOf(os.Getpid()) {
		if c.running[group] {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err == nil {
			n++
		}
	}
	return n
}

// childrenOf returns the processes with a parent, and their process groups.
func childrenOf(parent int) map[int]int {
	out := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// "7 (name) S 1 7 ...": parent and group. The name may have spaces and parentheses.
		_, rest, ok := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 3 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if group, err := strconv.Atoi(fields[2]); err == nil {
			out[pid] = group
		}
	}
	return out
}
