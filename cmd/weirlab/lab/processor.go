package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ProcessorTime returns the user time of the process that is a box's kernel: that of its own code, with interrupts and
// softirqs, but without the system calls for its network cards. User-mode Linux runs its programs in other processes.
// Its own /proc/stat counts by ticks, which it takes after its interrupts: of packets it sees little.
func ProcessorTime(m *Machine) (time.Duration, error) {
	on, err := boot{m}.on()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/%d/stat", m.lab.keeper.cmd.Process.Pid, on.kernel.Pid()))
	if err != nil {
		return 0, fmt.Errorf("%s: processor time: %w", m.name, err)
	}
	_, fields, _ := strings.Cut(string(text), ") ") // the name may have spaces
	const user = 11                                 // field 14 of proc(5)
	words, ticks := strings.Fields(fields), 0
	if len(words) <= user {
		return 0, fmt.Errorf("%s: processor time: %q", m.name, text)
	}
	if _, err := fmt.Sscan(words[user], &ticks); err != nil {
		return 0, fmt.Errorf("%s: processor time: %w", m.name, err)
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ
}

// Waits are the times for which tasks of the host have waited for one of its processors, by task.
type Waits map[string]time.Duration

// ProcessorWaits returns the waits of a box. A program of user-mode Linux is a process of the host.
func ProcessorWaits(m *Machine) (Waits, error) {
	on, err := boot{m}.on()
	if err != nil {
		return nil, err
	}
	root := fmt.Sprintf("/proc/%d/root/proc/", m.lab.keeper.cmd.Process.Pid)
	kernel := strconv.Itoa(on.kernel.Pid())
	children, err := os.ReadFile(root + kernel + "/task/" + kernel + "/children")
	if err != nil {
		return nil, fmt.Errorf("%s: programs of the box: %w", m.name, err)
	}
	out := Waits{}
	for _, pid := range append(strings.Fields(string(children)), kernel) {
		out.add(root + pid)
	}
	return out, nil
}

// add adds the tasks of a process. One that has ended meanwhile has none.
func (w Waits) add(process string) {
	files, _ := filepath.Glob(process + "/task/*/schedstat")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		var ran, waited time.Duration // nanoseconds (Documentation/scheduler/sched-stats.rst)
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			w[file] = waited
		}
	}
}

// Since returns how long all tasks together have waited since before. User-mode Linux has one processor, so of its
// kernel and its programs only one is ready at a time.
func (w Waits) Since(before Waits) (sum time.Duration) {
	for task, waited := range w {
		sum += waited - before[task]
	}
	return sum
}
