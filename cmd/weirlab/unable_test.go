package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weirlab/lab"
)

// TestUnableMachinesGetOneLine runs the commands of a newcomer where they can't work: each ends with one
// line that names the cause and the fix, and leaves nothing behind.
func TestUnableMachinesGetOneLine(t *testing.T) {
	lab.Require(t)
	built := lab.Build(t, "weir/cmd/weirlab")
	folder, err := os.MkdirTemp("/tmp", "weirlab-unable-") // every user can enter it
	lab.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	lab.Must(t, os.Chmod(folder, 0o755))
	program := filepath.Join(folder, "weirlab")
	if out, err := exec.Command("cp", built, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	noSpace := `mount -t tmpfs -o size=1m none ` + folder + `/small && XDG_CACHE_HOME=` + folder + `/small ` + program
	for _, tc := range []struct {
		name, script string
		want         []string
	}{
		{"demo without root", `setpriv --reuid 65534 --regid 65534 --clear-groups ` + program + ` demo`, []string{"run this as root"}},
		{"check without root", `setpriv --reuid 65534 --regid 65534 --clear-groups ` + program + ` check`, []string{"run this as root"}},
		{"install without root", `setpriv --reuid 65534 --regid 65534 --clear-groups ` + program + ` install`, []string{"run this as root (sudo make ...)"}},
		{"demo without a tun device", `mount -t tmpfs none /dev/net && ` + program + ` demo`, []string{"/dev/net/tun", "modprobe tun"}},
		{"install without a tun device", `mount -t tmpfs none /dev/net && ` + program + ` install`, []string{"/dev/net/tun", "modprobe tun"}},
		{"install in a container without rights", `setpriv --bounding-set=-sys_admin ` + program + ` install`, []string{"CAP_SYS_ADMIN", "--privileged"}},
		{"demo without disk space", noSpace + ` demo`, []string{"1 MiB of free disk space", "XDG_CACHE_HOME"}},
		{"check without disk space", noSpace + ` check`, []string{"1 MiB of free disk space", "XDG_CACHE_HOME"}},
		{"install for the demo without disk space", noSpace + ` install --for demo`, []string{"1 MiB of free disk space", "XDG_CACHE_HOME"}},
		{"install without disk space", noSpace + ` install`,
			[]string{"1 MiB of free disk space", "XDG_CACHE_HOME"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			small := filepath.Join(folder, "small")
			lab.Must(t, os.MkdirAll(small, 0o755))
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", tc.script)
			cmd.Env = append(os.Environ(), lab.KernelVariable+"=") // as a newcomer
			out, err := cmd.CombinedOutput()
			text := strings.TrimSpace(string(out))
			if err == nil || cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("it ends with %v:\n%s", err, text)
			}
			last := text[strings.LastIndex(text, "\n")+1:]
			for _, want := range tc.want {
				if !strings.Contains(last, want) {
					t.Errorf("the last line lacks %q:\n%s", want, text)
				}
			}
			if lines := strings.Count(text, "\n"); lines > 0 {
				t.Errorf("%d lines:\n%s", lines+1, text)
			}
			if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
				t.Errorf("left behind: %s (%v)", fmt.Sprint(left), err)
			}
		})
	}
}
