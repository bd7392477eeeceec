package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/inside"
)

// bootTime is how long a machine may take to answer. The slowest, a kernel that is computed, takes ten
// seconds on an idle machine, and a minute where every processor has four other things to do.
const bootTime = 4 * time.Minute

// kept are the folders of a box that outlive a power cut.
var kept = []string{configFolder, "/var/lib/weir"}

// configFolder is the one that outlives it in a box with systemd, too.
const configFolder = "/etc/weir"

// power is a machine from one boot to the end of its kernel, or of its first process.
type power struct {
	ctx    context.Context // ends with the power
	off    context.CancelFunc
	kernel *Proc    // the process that is the machine
	netns  *os.File // nil with a kernel of its own
	dial   dialer   // connects to the machine's agent
}

// on returns the power, or an error when the machine is off.
func (m boot) on() (*power, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power == nil || m.power.ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", m.name, ErrPowerLost)
	}
	return m.power, nil
}

// Powered reports whether a machine has power. One that hangs has.
func Powered(m *Machine) bool {
	_, err := (boot{m}).on()
	return err == nil
}

// Boot switches a machine without power on, and returns when it answers. Its cards, addresses
// and routes are those of the site, unplugged cables stay unplugged, kept folders are as they were left.
func (m *Machine) Boot(ctx context.Context) error {
	if Powered(m) {
		return fmt.Errorf("%s: boot: it is on", m.name)
	}
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	on, err := boot{m}.switchOn(ctx)
	if err != nil {
		return fmt.Errorf("%s: boot: %w", m.name, err)
	}
	m.mu.Lock()
	boot{m}.switchOff()
	m.power = on
	m.mu.Unlock()
	if err := (wiring{m}).connect(ctx); err != nil {
		return fmt.Errorf("%s: connect: %w", m.name, err)
	}
	return boot{m}.forgetSaved(ctx)
}

// switchOn starts the machine's first process and waits for its agent.
func (m boot) switchOn(ctx context.Context) (*power, error) {
	command, config, err := m.firstProcess()
	if err != nil {
		return nil, err
	}
	if err := m.prepareFolders(config); err != nil {
		return nil, err
	}
	on := &power{}
	on.ctx, on.off = context.WithCancel(m.lab.ctx)
	on.kernel, err = m.lab.launch(ctx, on.ctx, m.lab.keeper.dial, m.name+" console", command, evidence(m).newLog("console"))
	if err != nil {
		return nil, err
	}
	m.lab.procs.Go(func() { <-on.kernel.Done(); on.off() })
	if err := on.kernel.Expect(ctx, inside.Ready); err != nil {
		on.kernel.Kill()
		return nil, err
	}
	if m.kernel == UML {
		if err := m.remind(on); err != nil {
			on.kernel.Kill()
			return nil, err
		}
	}
	return on, m.reach(on)
}

// prepareFolders makes the machine's part of the work folder, and writes what its first process is
// to know.
func (m boot) prepareFolders(config inside.Config) error {
	if err := os.RemoveAll(m.lab.keeper.path(m.name, umlFolder)); err != nil { // of the boot before
		return err
	}
	folders := []string{m.lab.keeper.path(m.name, "scratch")}
	for i := range config.Keep {
		folders = append(folders, m.lab.keeper.path(m.name, keptFolder(i)))
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.lab.keeper.path(m.name, "machine.json"), text, 0o644)
}

func keptFolder(i int) string { return fmt.Sprintf("kept%d", i) }

// PowerCut takes the machine's power away, between two instructions: nothing is written back, no
// process is notified. A machine that is off is success.
func (m *Machine) PowerCut() {
	on, err := boot{m}.on()
	if err != nil {
		return
	}
	on.kernel.Kill()
	m.mu.Lock()
	defer m.mu.Unlock()
	boot{m}.switchOff()
}

// Freeze stops a machine between two instructions, as a host does that has no time for a guest. Thaw lets
// it go on. It needs a kernel of its own.
func Freeze(m *Machine) error { return boot{m}.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func Thaw(m *Machine) error { return boot{m}.signal(syscall.SIGCONT) }

func (m boot) signal(sig syscall.Signal) error {
	on, err := m.on()
	if err != nil {
		return err
	}
	if on.netns != nil {
		return fmt.Errorf("%s: %v: it has no kernel of its own", m.name, sig)
	}
	return on.kernel.Signal(sig)
}

// switchOff forgets a power that is gone. The caller holds mu.
func (m boot) switchOff() {
	if m.power == nil {
		return
	}
	m.power.off()
	if m.power.netns != nil {
		m.power.netns.Close()
	}
	m.power = nil
}
