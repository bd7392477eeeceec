package membership

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"weir/cluster"
	"weir/cmd/weir/internal/statefile"
	"weir/cmd/weir/internal/status"
)

const (
	// memoryFile is the name in daemon.state_dir, which a reboot does not empty.
	memoryFile = "fleet-epochs.json"
	// memoryEvery is how often changes are written.
	memoryEvery = 10 * time.Second
	// maxMemoryFile bounds the file: a thousand members have less.
	maxMemoryFile = 1 << 20
	// diskPatience is shorter than fleet.JoinWindow.
	diskPatience = time.Second
)

// remembering is a Fleet that writes its Memory to a file for the next start.
type remembering struct {
	*cluster.Fleet
	file string
	log  *slog.Logger
	// replace is statefile.Replace, or a test's.
	replace func(name string, content []byte) error

	written cluster.Memory
	err     string // of the last write
}

// remember joins a fleet with the Memory of the last start. A file that cannot be used
// counts as none: the epoch is that of the clock, and other members correct it.
func remember(cfg cluster.Config, dir string, log *slog.Logger, now time.Time) (*remembering, error) {
	f, err := cluster.New(cfg, log)
	if err != nil {
		return nil, err
	}
	r := &remembering{Fleet: f, file: filepath.Join(dir, memoryFile), log: log, replace: statefile.Replace}
	last, err := readMemory(r.file)
	if err != nil {
		log.Warn("fleet epochs not read: recorded states of members are refused only after they answer", "error", err)
	}
	f.Restore(last, now)
	return r, nil
}

// readMemory reads a file. A missing one is empty; one without valid content is set aside.
func readMemory(file string) (cluster.Memory, error) {
	content, err := statefile.Read(file, maxMemoryFile)
	if errors.Is(err, fs.ErrNotExist) {
		return cluster.Memory{}, nil
	}
	if err != nil {
		return cluster.Memory{}, err
	}
	last, err := parseMemory(content)
	if err != nil {
		return cluster.Memory{}, errors.Join(err, statefile.SetAside(file))
	}
	return last, nil
}

// parseMemory parses the content of a file.
func parseMemory(content []byte) (last cluster.Memory, err error) {
	if err := statefile.Decode(content, &last); err != nil {
		return cluster.Memory{}, err
	}
	return last, nil
}

// Run takes part in the fleet until ctx ends. The epoch is on the disk before it is
// published, unless the disk hangs: a box that does not join takes the VIPs of all others.
func (r *remembering) Run(ctx context.Context) error {
	saved, done, end := make(chan struct{}), make(chan struct{}), sync.WaitGroup{}
	end.Go(func() {
		r.save()
		close(saved)
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.save()
			}
		}
	})
	defer r.save() // a restart goes on with the last states
	defer end.Wait()
	defer close(done)
	select {
	case <-saved:
	case <-time.After(diskPatience):
		r.log.Warn("disk hangs: this box joins the fleet before its epoch is written", "file", r.file)
	}
	return r.Fleet.Run(ctx)
}

// save writes the Memory if it has changed. It waits for the disk.
func (r *remembering) save() {
	now := r.Memory()
	if reflect.DeepEqual(now, r.written) {
		return
	}
	content, err := json.Marshal(now)
	if err == nil {
		err = r.replace(r.file, content)
	}
	if err == nil {
		r.written = now
	}
	if text := status.ErrorText(err); text != r.err {
		if err != nil {
			r.log.Warn("fleet epochs not written: after a restart, recorded states of members are refused only after they answer", "error", err)
		}
		r.err = text
	}
}
