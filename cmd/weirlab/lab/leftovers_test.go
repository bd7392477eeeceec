package lab_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// role makes this test binary, started again by a test, play a part: TestPlayRole.
const role = "WEIRLAB_TEST_ROLE"

// TestPlayRole is what child processes of other tests run; by itself it does nothing.
func TestPlayRole(t *testing.T) {
	switch os.Getenv(role) {
	case "hold":
		holdLab(t)
	case "fail":
		failWithLab(t)
	}
}

// play starts this test binary in a role.
func play(t *testing.T, part string, env ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestPlayRole$", "-test.v")
	cmd.Env = append(append(os.Environ(), role+"="+part), env...)
	return cmd
}

// holdLab is a test that runs a busy lab until it is killed.
func holdLab(t *testing.T) {
	site := lab.Start(t, oneOfEach())
	for _, m := range site.Machines() {
		if _, err := m.Start("sh", "-c", "setsid sleep 1000 & sleep 1000"); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("holding")
	<-make(chan struct{})
}

// TestNothingIsLeftBehind kills a test process with a busy lab and looks for what is left of it.
func TestNothingIsLeftBehind(t *testing.T) {
	lab.Require(t, lab.UML)
	temp := t.TempDir()
	cmd := play(t, "hold", "TMPDIR="+temp)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	waitForLine(t, bufio.NewScanner(stdout), "holding")
	processes := descendants(t, cmd.Process.Pid)
	if len(processes) < 10 {
		t.Errorf("the lab has %d processes only: %v", len(processes), processes)
	}
	namespaces := namespacesOf(processes)

	start, before := time.Now(), uptime(t)
	cmd.Process.Kill()
	cmd.Wait()
	waitGone(t, "processes", func() []string { return alive(processes) })
	waitGone(t, "namespaces", func() []string { return inUse(namespaces, before) })
	t.Logf("%d processes in %d namespaces went within %v", len(processes), len(namespaces),
		time.Since(start).Round(time.Millisecond))
	if left := contentOf(t, temp); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	work := filepath.Join(cache, "weirlab/work")
	if left := contentOf(t, work); len(left) > 0 {
		t.Errorf("the work folder is not empty outside of the lab: %v", left)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), work) {
		t.Errorf("a mount of the lab is seen outside")
	}
	for _, card := range contentOf(t, "/sys/class/net") {
		if card == "front" || strings.HasPrefix(card, "m1.") {
			t.Errorf("network card %s of the lab is seen outside", card)
		}
	}
}

func waitForLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	var said []string
	for lines.Scan() {
		if lines.Text() == want {
			return
		}
		said = append(said, lines.Text())
	}
	t.Fatalf("the child ended without saying %q:\n%s", want, strings.Join(said, "\n"))
}

// process is a process that cannot be confused with a later one of the same id.
type process struct{ pid, started string }

// descendants lists the children of a process, theirs, and so on.
func descendants(t *testing.T, pid int) []process {
	t.Helper()
	var found []process
	parents := []string{strconv.Itoa(pid)}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		must(t, err)
		for _, stat := range stats {
			child := filepath.Base(filepath.Dir(stat))
			fields := statOf(child)
			if len(fields) > 19 && fields[1] == parent {
				parents = append(parents, child)
				found = append(found, process{pid: child, started: fields[19]})
			}
		}
	}
	return found
}

// statOf returns /proc/PID/stat after the program's name: state, parent, ..., start time at index 19.
func statOf(pid string) []string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

func alive(processes []process) []string {
	var left []string
	for _, p := range processes {
		if fields := statOf(p.pid); len(fields) > 19 && fields[19] == p.started {
			left = append(left, p.pid)
		}
	}
	return left
}

// namespacesOf lists the namespaces of processes that are not this process's own.
func namespacesOf(processes []process) []string {
	own := inNamespaces("self")
	var found []string
	for _, p := range processes {
		for _, ns := range inNamespaces(p.pid) {
			if !slices.Contains(own, ns) && !slices.Contains(found, ns) {
				found = append(found, ns)
			}
		}
	}
	return found
}

func inNamespaces(pid string) []string {
	var found []string
	for _, kind := range []string{"net", "mnt", "pid", "uts", "ipc"} {
		if ns, err := os.Readlink("/proc/" + pid + "/ns/" + kind); err == nil {
			found = append(found, ns)
		}
	}
	return found
}

// uptime returns how long the machine runs, in ticks of /proc/PID/stat (USER_HZ is 100 on Linux).
func uptime(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	must(t, err)
	var seconds float64
	_, err = fmt.Sscan(string(text), &seconds)
	must(t, err)
	return seconds * 100
}

// inUse lists those of some namespaces that a process of the machine is in, if it began before a tick. A later one may be
// in a new namespace with the number of one that has ended.
func inUse(namespaces []string, before float64) []string {
	var left []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		fields := statOf(filepath.Base(filepath.Dir(stat)))
		if len(fields) <= 19 {
			continue
		}
		if began, err := strconv.ParseFloat(fields[19], 64); err != nil || began > before {
			continue
		}
		for _, ns := range inNamespaces(filepath.Base(filepath.Dir(stat))) {
			if slices.Contains(namespaces, ns) {
				left = append(left, ns)
			}
		}
	}
	return left
}

// waitGone waits for the kernel to finish what a kill began. It has no event to wait for: nothing
// informs a process that is no parent about its end.
func waitGone(t *testing.T, what string, left func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(left()) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s are left: %v", what, left())
		}
	}
}

func contentOf(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
