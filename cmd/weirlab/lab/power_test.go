package lab_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// soon is how long a connection may take that is expected to fail.
const soon = 300 * time.Millisecond

func reaches(t *testing.T, from *lab.Machine, address string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		// An answer from the machine itself, "connection refused", has come over the cable too.
		return strings.Contains(err.Error(), "refused")
	}
	conn.Close()
	return true
}

// reachesAgain waits until the kernels have asked again for neighbours that did not answer.
func reachesAgain(t *testing.T, from *lab.Machine, addresses ...string) {
	t.Helper()
	ctx := within(t)
	for _, address := range addresses {
		for !reaches(t, from, address) {
			if ctx.Err() != nil {
				t.Fatalf("%s does not reach %s", from.Name(), address)
			}
		}
	}
}

func TestCablesAndPower(t *testing.T) {
	site := lab.Start(t, oneOfEach())
	box, host := site.Box("box1"), site.Host("host1")
	t.Run("a cable", func(t *testing.T) { unplugs(t, host, box) })
	t.Run("control survives the firewall", func(t *testing.T) { survives(t, box) })
	t.Run("a box's power", func(t *testing.T) { losesPower(t, host, box) })
	t.Run("a host's power", func(t *testing.T) { hostLosesPower(t, host, box) })
	t.Run("nothing is written outside", func(t *testing.T) { writesNothing(t, box, host) })
}

func unplugs(t *testing.T, host, box *lab.Machine) {
	for _, m := range []*lab.Machine{box, host} {
		reachesAgain(t, host, "10.1.0.1:9", "[fd01::1]:9")
		lab.Must(t, m.Unplug("front"))
		if reaches(t, host, "10.1.0.1:9") || reaches(t, host, "[fd01::1]:9") {
			t.Errorf("the host reaches the box without the cable of %s", m.Name())
		}
		lab.Must(t, m.Plug("front"))
	}
	if err := box.Unplug("nowhere"); err == nil {
		t.Error("pulled a cable that is not there")
	}
}

// survives takes away all that a network could carry control over.
func survives(t *testing.T, box *lab.Machine) {
	box.Must(t, "sh", "-ec", `
		for tool in iptables ip6tables; do
			for chain in INPUT OUTPUT FORWARD; do $tool -P $chain DROP; done
			$tool -t nat -F; $tool -t raw -A PREROUTING -j DROP; $tool -t raw -A OUTPUT -j DROP
		done
		ip addr flush dev front; ip link set front down; ip link set lo down; ip route flush table main`)
	lab.Must(t, box.Unplug("front"))
	if out := box.Must(t, "echo", "still here"); out != "still here\n" {
		t.Errorf("the box says %q", out)
	}
	if out := box.Must(t, "ip", "-br", "link"); strings.Contains(out, "vec") {
		t.Errorf("the management card is seen on the box:\n%s", out)
	}
}

func losesPower(t *testing.T, host, box *lab.Machine) {
	ctx := within(t)
	lab.Must(t, box.Plug("front"))
	for _, file := range []string{"/etc/weir/kept", "/var/lib/weir/deep/kept", "/srv/lost"} {
		lab.Must(t, box.WriteFile(ctx, file, "content", 0o644))
	}
	box.Must(t, "sync")
	daemon, err := box.Start("sleep", "1000")
	lab.Must(t, err)
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := box.Run(over, "true"); err == nil || !lab.Powered(box) {
		t.Errorf("a command that can't run, and power %v: %v", lab.Powered(box), err)
	}
	box.PowerCut()
	box.PowerCut() // without effect
	if lab.Powered(box) {
		t.Error("a box has power after a cut")
	}
	if _, err := daemon.Wait(ctx); err == nil {
		t.Error("the daemon's end was seen, though the power was cut")
	}
	if _, err := box.Run(ctx, "true"); !errors.Is(err, lab.ErrPowerLost) {
		t.Errorf("run without power: %v", err)
	}
	start := time.Now()
	lab.Must(t, box.Boot(ctx))
	t.Logf("booted in %v", time.Since(start).Round(time.Millisecond))
	if err := box.Boot(ctx); err == nil {
		t.Error("booted what is on")
	}
	for _, file := range []string{"/etc/weir/kept", "/var/lib/weir/deep/kept"} {
		if content, err := box.ReadFile(ctx, file); content != "content" || err != nil {
			t.Errorf("%s after a power cut: %q, %v", file, content, err)
		}
	}
	if _, err := box.ReadFile(ctx, "/srv/lost"); err == nil {
		t.Error("a file in memory outlived the power cut")
	}
	reachesAgain(t, host, "10.1.0.1:9", "[fd01::1]:9")
}

func hostLosesPower(t *testing.T, host, box *lab.Machine) {
	ctx := within(t)
	lab.Must(t, host.Unplug("front"))
	host.PowerCut()
	lab.Must(t, host.Boot(ctx))
	if reaches(t, host, "10.1.0.1:9") {
		t.Error("the cable was put back by a boot")
	}
	lab.Must(t, host.Plug("front"))
	reachesAgain(t, host, "10.1.0.1:9", "[fd01::1]:9")
}

func writesNothing(t *testing.T, machines ...*lab.Machine) {
	for _, m := range machines {
		for _, file := range []string{"/etc/weirlab-test", "/usr/weirlab-test", "/tmp/weirlab-test", "/var/lib/weir/weirlab-test"} {
			if err := m.WriteFile(within(t), file, "x", 0o644); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(file); err == nil {
				t.Errorf("%s wrote %s of the machine that carries the lab", m.Name(), file)
				os.Remove(file)
			}
		}
	}
}
