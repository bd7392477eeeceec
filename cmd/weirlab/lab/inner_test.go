package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSiteIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		site Site
		want string
	}{
		{"no name", Site{Hosts: []Host{{}}}, "machine name"},
		{"a path for a name", Site{Boxes: []Box{{Name: "../box"}}}, "machine name"},
		{"two of one name", Site{Hosts: []Host{{Name: "a"}}, Boxes: []Box{{Name: "a"}}}, "two machines are called a"},
		{"no address", Site{Hosts: []Host{{Name: "a", Nets: Nets{"front": "10.1.0.1"}}}}, "a: network front: "},
		{"a long network", Site{Hosts: []Host{{Name: "a", Nets: Nets{"a-network-of-some": ""}}}}, "1 to 15 letters"},
		{"loopback", Site{Hosts: []Host{{Name: "a", Nets: Nets{"lo": ""}}}}, "the lab uses it itself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Open(t.Context(), tc.site); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestMissingPackagesAreNamedOnceAndSorted(t *testing.T) {
	needs := []need{{"zip", "zip"}, {"depmod", "kmod"}, {"modprobe", "kmod"}, {"ip", "iproute2"}}
	got := packagesOf(needs, func(program string) bool { return program != "ip" })
	if diff := cmp.Diff([]string{"kmod", "zip"}, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestRequired(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"by hand", nil, false},
		{"in CI", map[string]string{"CI": "true"}, true},
		{"asked for", map[string]string{"WEIR_LAB": "require"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := required(func(name string) string { return tc.env[name] }); got != tc.want {
				t.Errorf("required is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestCachedOnce lets many ask for one folder, of which a killed process left a half.
func TestCachedOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := cacheFolder()
	Must(t, err)
	Must(t, os.MkdirAll(filepath.Join(cache, "thing.unfinished/half"), 0o755))
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := cached("thing", func(dir string) error {
				made.Add(1)
				return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
			})
			if err != nil {
				t.Error(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != "whole" {
				t.Errorf("the folder holds %v (%v), want what was made", entries, err)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
	failure := errors.New("no disk")
	if _, err := cached("other", func(string) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v, want the maker's", err)
	}
	if _, err := os.Stat(filepath.Join(cache, "other")); err == nil {
		t.Error("a folder that could not be made is there")
	}
}

// TestHostKernelBox boots a box on this machine's kernel, IPVS or not: all but that must be as on
// others.
func TestHostKernelBox(t *testing.T) {
	Require(t)
	if err := CheckHostKernel(); err != nil && !strings.Contains(err.Error(), "has no IPVS") {
		t.Errorf("error %v, want it to say what the kernel lacks", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := Open(ctx, Site{NoIPVS: true, Boxes: []Box{{Name: "box1", Kernel: HostKernel, Nets: Nets{"front": "10.1.0.1/24"}}}})
	Must(t, err)
	defer l.Close()
	box := l.Box("box1")
	Must(t, box.WriteFile(ctx, "/etc/weir/kept", "content", 0o600))
	box.PowerCut()
	Must(t, box.Boot(ctx))
	if content, err := box.ReadFile(ctx, "/etc/weir/kept"); content != "content" || err != nil {
		t.Errorf("kept file: %q, %v", content, err)
	}
	if out := box.Must(t, "ip", "-br", "addr", "show", "dev", "front"); !strings.Contains(out, "10.1.0.1/24") {
		t.Errorf("after the boot the card is %s", out)
	}
}

// TestCloseEndsEverything shows that goroutines and files of a lab go with it.
func TestCloseEndsEverything(t *testing.T) {
	Require(t)
	before := openFiles(t)
	for range 3 {
		l, err := Open(t.Context(), Site{Hosts: []Host{{Name: "a", Nets: Nets{"front": ""}}, {Name: "b"}}})
		Must(t, err)
		if _, err := l.Host("a").Start("sleep", "1000"); err != nil {
			t.Fatal(err)
		}
		l.Close()
		l.Close()
		if _, err := l.Host("a").Run(t.Context(), "true"); !errors.Is(err, ErrPowerLost) {
			t.Errorf("run in a closed lab: %v", err)
		}
	}
	// A few belong to the runtime: its poller and the like.
	if after := openFiles(t); after > before+5 {
		t.Errorf("%d files are open after three labs, %d were before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	Must(t, err)
	return len(entries)
}

// TestServicesAreForbidden: while packages are installed their services are not started, unless the
// machine has its own policy for that; afterwards nothing is left.
func TestServicesAreForbidden(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy-rc.d")
	allow, err := forbidServices(file)
	Must(t, err)
	var exit *exec.ExitError
	if err := exec.Command(file, "bird", "start").Run(); !errors.As(err, &exit) || exit.ExitCode() != 101 {
		t.Errorf("asked whether bird may start: %v, want exit code 101, which forbids it", err)
	}
	others, err := forbidServices(file)
	Must(t, err)
	Must(t, others())
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what was there before was taken away: %v", err)
	}
	Must(t, allow())
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestReadAnswer(t *testing.T) {
	for _, tc := range []struct{ name, text, want, wantErr string }{
		{"all", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}", ""},
		{"in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}", ""},
		{"cut", "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}", "", "unexpected EOF"},
		{"nothing", "", "", "unexpected EOF"},
		{"another status", "HTTP/1.0 404 Not Found\r\n\r\nno such document\n", "", "404 Not Found: no such document"},
	} {
		got, err := readAnswer(strings.NewReader(tc.text))
		if got != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%s: %q, %v; want %q, %q", tc.name, got, err, tc.want, tc.wantErr)
		}
	}
}

func TestABoxWithSystemdIsAMachineOfItsOwn(t *testing.T) {
	RequireSystemd(t)
	site := Start(t, Site{
		Hosts: []Host{{Name: "client", Nets: Nets{"front": "10.1.0.2/24"}}},
		Boxes: []Box{{Name: "box1", Systemd: true, Nets: Nets{"front": "10.1.0.1/24"}}},
	})
	box := site.Box("box1")
	Must(t, box.AwaitSystemd(t.Context()))
	if init := box.Must(t, "cat", "/proc/1/comm"); init != "systemd\n" {
		t.Errorf("process 1 is %q", init)
	}
	if failed := box.Must(t, "systemctl", "--failed", "--no-legend"); failed != "" {
		t.Errorf("units that failed: %s", failed)
	}
	if _, err := site.Host("client").DialContext(t.Context(), "tcp", "10.1.0.1:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a client is not answered: %v", err)
	}
	Must(t, box.WriteFile(t.Context(), "/etc/weir/kept", "yes", 0o644))

	box.Must(t, "systemctl", "reboot")
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		_, err := box.Run(t.Context(), "true")
		if errors.Is(err, ErrPowerLost) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not go down: %v", err)
		}
	}
	Must(t, box.Boot(t.Context()))
	Must(t, box.AwaitSystemd(t.Context()))
	if kept, err := box.ReadFile(t.Context(), "/etc/weir/kept"); err != nil || strings.TrimSpace(kept) != "yes" {
		t.Errorf("kept is %q, %v", kept, err)
	}
}

func TestSystemdIsForUserModeLinux(t *testing.T) {
	_, err := Open(t.Context(), Site{Boxes: []Box{{Name: "box1", Kernel: Qemu, Systemd: true}}})
	if err == nil || !strings.Contains(err.Error(), "user-mode Linux") {
		t.Errorf("%v", err)
	}
}
