package lab

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Used is the processor time of a box's kernel.
type Used struct {
	User   time.Duration // its own code, with interrupts and softirqs
	System time.Duration // of this machine's kernel for it, such as its network cards
}

// ProcessorTime returns the time that a box's kernel has taken of this machine. User-mode Linux runs its programs in
// other processes, so they are no part of it. The box's own /proc/stat counts by ticks, which it takes after its
// interrupts: of packets it sees little.
func ProcessorTime(m *Machine) (Used, error) {
	on, err := boot{m}.on()
	if err != nil {
		return Used{}, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/%d/stat", m.lab.keeper.cmd.Process.Pid, on.kernel.Pid()))
	if err != nil {
		return Used{}, fmt.Errorf("%s: processor time: %w", m.name, err)
	}
	_, fields, _ := strings.Cut(string(text), ") ") // the name may have spaces
	words := strings.Fields(fields)
	const user, system, least = 11, 12, 13 // fields 14 and 15 of proc(5)
	if len(words) < least {
		return Used{}, fmt.Errorf("%s: processor time: %q", m.name, text)
	}
	var ticks [2]int
	if _, err := fmt.Sscan(words[user]+" "+words[system], &ticks[0], &ticks[1]); err != nil {
		return Used{}, fmt.Errorf("%s: processor time: %w", m.name, err)
	}
	const tick = time.Second / 100 // USER_HZ
	return Used{time.Duration(ticks[0]) * tick, time.Duration(ticks[1]) * tick}, nil
}
