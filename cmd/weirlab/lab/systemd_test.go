package lab

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestABoxWithSystemdIsAMachineOfItsOwn(t *testing.T) {
	RequireSystemd(t)
	site := Start(t, Site{
		Hosts: []Host{{Name: "client", Nets: Nets{"front": "10.1.0.2/24"}}},
		Boxes: []Box{{Name: "box1", Systemd: true, Nets: Nets{"front": "10.1.0.1/24"}}},
	})
	box := site.Box("box1")
	must(t, box.AwaitSystemd(t.Context()))
	if init := box.Must(t, "cat", "/proc/1/comm"); init != "systemd\n" {
		t.Errorf("process 1 is %q", init)
	}
	if failed := box.Must(t, "systemctl", "--failed", "--no-legend"); failed != "" {
		t.Errorf("units that failed: %s", failed)
	}
	if _, err := site.Host("client").DialContext(t.Context(), "tcp", "10.1.0.1:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a client is not answered: %v", err)
	}
	must(t, box.WriteFile(t.Context(), "/etc/weir/kept", "yes", 0o644))

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
	must(t, box.Boot(t.Context()))
	must(t, box.AwaitSystemd(t.Context()))
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
