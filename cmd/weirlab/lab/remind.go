package lab

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// remindEvery is the longest that a packet stays unseen.
const remindEvery = 10 * time.Millisecond

// remind has user-mode Linux poll its network cards, until the power is off. The host's driver of a card (tun_net_xmit in
// drivers/net/tun.c) sends the signal for a packet first, and wakes epoll then. A kernel that runs on another processor
// may poll between the two. It finds nothing, and the packet stays there until the next one comes, for seconds.
func (m boot) remind(on *power) error {
	process, err := os.Open(fmt.Sprintf("/proc/%d/root/proc/%d", m.lab.keeper.cmd.Process.Pid, on.kernel.Pid()))
	if err != nil {
		return fmt.Errorf("open the kernel's process: %w", err)
	}
	signal := func() error { return unix.PidfdSendSignal(int(process.Fd()), unix.SIGIO, nil, 0) }
	if err := signal(); err != nil {
		return fmt.Errorf("signal the kernel: %w", err)
	}
	// A reboot ignores the signal until the new kernel has its handler (os_set_ioignore).
	m.lab.procs.Go(func() {
		defer process.Close()
		tick := time.NewTicker(remindEvery)
		defer tick.Stop()
		for signal() == nil { // until the process has ended
			select {
			case <-on.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return nil
}
