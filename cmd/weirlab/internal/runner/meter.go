package runner

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// meter counts the processor time of a test with all its machines, in a control group (cgroups(7),
// version 2) of its own. What the kernel of this machine adds up for a process lacks its machines: they
// are killed without a wait for their end.
type meter struct {
	folder *os.File
}

// newMeter returns nil where no process can begin in a group of its own: only root may make one, in a
// mounted hierarchy that permits it, as a trial shows.
func newMeter() *meter {
	path, err := ownGroup()
	if err != nil {
		return nil
	}
	if path, err = os.MkdirTemp(path, "weirlab-"); err != nil {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		_ = os.Remove(path)
		return nil
	}
	m := &meter{folder}
	trial := exec.Command("true")
	trial.SysProcAttr = &syscall.SysProcAttr{}
	if m.begin(trial.SysProcAttr); trial.Run() != nil {
		m.remove()
		return nil
	}
	return m
}

// ownGroup is the folder of this process's control group.
func ownGroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	_, own, _ := bytes.Cut(append([]byte("\n"), groups...), []byte("\n0::"))
	own, _, _ = bytes.Cut(own, []byte("\n"))
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return filepath.Join(f[1], string(own)), nil
		}
	}
	return "", fmt.Errorf("no cgroup2 in /proc/self/mounts: %w", os.ErrNotExist)
}

// begin has a process begin in the group.
func (m *meter) begin(attr *syscall.SysProcAttr) {
	if m != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(m.folder.Fd())
	}
}

// end returns what the processes of the group have used, or else, and removes the group.
func (m *meter) end(otherwise time.Duration) time.Duration {
	if m == nil {
		return otherwise
	}
	defer m.remove()
	text, err := os.ReadFile(filepath.Join(m.folder.Name(), "cpu.stat"))
	if err != nil {
		return otherwise
	}
	var microseconds int64
	if _, err := fmt.Sscanf(string(text), "usage_usec %d", &microseconds); err != nil {
		return otherwise
	}
	return time.Duration(microseconds) * time.Microsecond
}

// leaveLimit is how long killed machines may take to end after their test.
const leaveLimit = 10 * time.Second

// left returns the names of the processes that the test has left behind, and that do not end within a limit.
func (m *meter) left(limit time.Duration) []string {
	if m == nil {
		return nil
	}
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(m.folder.Name(), "cgroup.procs"))
		if err != nil || len(text) == 0 {
			return nil
		}
		if time.Now().Before(end) {
			continue
		}
		var names []string
		for _, pid := range strings.Fields(string(text)) {
			name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
			if err == nil {
				names = append(names, fmt.Sprintf("%s (%s)", bytes.TrimSpace(name), pid))
			}
		}
		return names
	}
}

// removeLimit is how long a group may wait for its last processes, which are killed.
const removeLimit = 2 * time.Second

// remove kills what is left in the group, and removes it.
func (m *meter) remove() {
	defer m.folder.Close()
	path := m.folder.Name()
	_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0o644) // since Linux 5.14; else the limit decides
	for end := time.Now().Add(removeLimit); os.Remove(path) != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}
