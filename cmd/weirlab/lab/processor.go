package lab

import (
	"fmt"
	"os"
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
