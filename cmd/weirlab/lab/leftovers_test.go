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
	lab.Must(t, err)
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
	lab.Must(t, err)
	lab.Must(t, cmd.Start())
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
	lab.Must(t, err)
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
		lab.Must(t, err)
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
	lab.Must(t, err)
	var seconds float64
	_, err = fmt.Sscan(string(text), &seconds)
	lab.Must(t, err)
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
	lab.Must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// failWithLab is a test that fails with a lab that has a box without power.
func failWithLab(t *testing.T) {
	wish := oneOfEach()
	wish.Boxes = append(wish.Boxes, lab.Box{Name: "box2"})
	site := lab.Start(t, wish)
	p, err := site.Box("box1").Start("sh", "-c", "echo the daemon says something; ipvsadm -A -t 192.0.2.1:80")
	lab.Must(t, err)
	if code, err := p.Wait(within(t)); code != 0 || err != nil {
		t.Fatalf("%d, %v, %s", code, err, p.Output())
	}
	site.Box("box2").PowerCut()
	t.Error("this is to fail")
}

// TestFailureKeepsEverything runs a failing test in a process of its own and checks what it leaves.
func TestFailureKeepsEverything(t *testing.T) {
	lab.Require(t, lab.UML)
	folder := t.TempDir()
	out, err := play(t, "fail", "WEIR_LAB_ARTIFACTS="+folder, lab.PacketsVariable+"=1").CombinedOutput()
	if err == nil {
		t.Fatalf("the child did not fail:\n%s", out)
	}
	kept, err := filepath.Glob(filepath.Join(folder, "TestPlayRole-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("folders %v, %v, want one; the child said:\n%s", kept, err, out)
	}
	if !strings.Contains(string(out), kept[0]) {
		t.Errorf("the folder's name %s is not printed:\n%s", kept[0], out)
	}
	if packets, err := filepath.Glob(filepath.Join(kept[0], "*.pcap*")); err != nil || len(packets) == 0 {
		t.Errorf("no packets were kept (%v)", err)
	}
	for file, want := range map[string]string{
		"box1/console.log":    "weirlab: ready",
		"box1/sh.log":         "the daemon says something",
		"box1/ipvsadm.txt":    "TCP  192.0.2.1:80 wlc",
		"box1/iptables.txt":   "iptables-save",
		"box1/addresses.txt":  "inet 10.1.0.1/24",
		"box1/dmesg.txt":      "Linux version",
		"box2/console.log":    "weirlab: ready",
		"host1/addresses.txt": "inet 10.1.0.2/24",
	} {
		text, err := os.ReadFile(filepath.Join(kept[0], file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q (%v):\n%s", file, want, err, text)
		}
	}
}
