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
	groups  map[int]bool    // the process groups of running programs
	running map[string]bool // their values of runVariable
	last    int
}

// runVariable numbers the program that a process belongs to, even after it has left the group and
// lost its parent. Only a process that clears its environment loses it.
const runVariable = "WEIR_RUN="

// newChildren makes this process the parent of orphans below it.
func newChildren() (*children, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	return &children{groups: map[int]bool{}, running: map[string]bool{}}, nil
}

// start starts a program, with a number at the end of its environment.
func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	run := strconv.Itoa(c.last)
	cmd.Env = append(cmd.Env, runVariable+run)
	if err := cmd.Start(); err != nil {
		return err
	}
	c.groups[cmd.Process.Pid], c.running[run] = true, true
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
	delete(c.groups, cmd.Process.Pid)
	delete(c.running, strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], runVariable))
	for c.killOrphans() > 0 {
	}
}

// killOrphans kills the children of this process that belong to no running program, and returns
// their number. Children of theirs become orphans, too.
func (c *children) killOrphans() int {
	n := 0
	for pid, group := range childrenOf(os.Getpid()) {
		if c.groups[group] || c.running[runOf(pid)] {
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

// runOf returns the number of the program that a process belongs to, "" if it is unknown.
func runOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for _, v := range strings.Split(string(b), "\x00") {
		if run, ok := strings.CutPrefix(v, runVariable); ok {
			return run
		}
	}
	return ""
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
