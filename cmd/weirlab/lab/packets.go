package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"weir/cmd/weirlab/internal/agent"
)

// PacketsVariable names the environment variable that has a lab keep the last packets of every network:
// "1". It costs processor time, and so is for one test at a time.
const PacketsVariable = "WEIR_LAB_PACKETS"

// recorder is a tcpdump on a network's switch. It keeps the last two files of 8 million bytes.
type recorder struct {
	network string
	dump    *Proc
}

// record starts the recorders, if PacketsVariable asks for them.
func (l *Lab) record(ctx context.Context, plans []plan) error {
	if os.Getenv(PacketsVariable) == "" {
		return nil
	}
	if err := os.MkdirAll(l.keeper.path("packets"), 0o777); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, p := range plans {
		for _, c := range p.cards {
			if seen[c.net] {
				continue
			}
			seen[c.net] = true
			r, err := l.recordNetwork(ctx, c.net)
			if err != nil {
				return fmt.Errorf("record packets of %s: %w", c.net, err)
			}
			l.recorders = append(l.recorders, r)
		}
	}
	return nil
}

func (l *Lab) recordNetwork(ctx context.Context, network string) (recorder, error) {
	req := agent.Request{Op: agent.Run, Args: []string{
		findProgram("tcpdump"), "-Z", "root", "-i", network, "-s", "256", "-U", "-C", "8", "-W", "2", "-w", l.keeper.name("packets", network+".pcap"),
	}}
	dump, err := l.launch(ctx, l.ctx, l.keeper.dial, "tcpdump "+network, req, l.keeper.path("packets", network+".log"))
	if err != nil {
		return recorder{}, err
	}
	return recorder{network, dump}, dump.Expect(ctx, "listening on")
}

// savePackets ends the recorders and copies what they have into a folder.
func (l *Lab) savePackets(folder string) error {
	var failed []error
	for _, r := range l.recorders {
		_ = r.dump.Signal(syscall.SIGTERM) // or it has ended by itself, and its file is there
		ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
		_, err := r.dump.Wait(ctx)
		cancel()
		failed = append(failed, err, copyFiles(l.keeper.path("packets", r.network+".pcap*"), folder))
	}
	l.recorders = nil
	return errors.Join(failed...)
}
