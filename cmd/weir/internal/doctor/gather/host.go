package gather

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status"
	"weir/cmd/weir/internal/status/routing"
)

// Options are the sources of Facts. The empty Root is the box itself; tests have a folder
// with files as below /.
type Options struct {
	ConfigFile string
	Root       string
	// Ask requests a document of the daemon by its path. The error wraps NotRunning if
	// there is no daemon, and fs.ErrPermission if only other users may ask it.
	Ask        func(ctx context.Context, path string, doc any) error
	NotRunning error
	Now        func() time.Time
	// Version is the version of this program.
	Version string
}

const (
	// timeout is the limit of each probe; a slower one makes its part missing. Probes run
	// in two concurrent rounds, so that the whole takes at most twice that.
	timeout = 4 * time.Second
	// sample is the time between two readings of a counter that must not grow.
	sample = time.Second
)

// gatherer has the probes. cfg is nil without a valid configuration; the fields after it
// are known in the second round.
type gatherer struct {
	host
	Options
	cfg       *config.Config
	served    facts.Served
	pid       int
	neighbors routing.Neighbors
	fleet     status.Members
}

// host is the box with its files below a root folder.
type host struct{ root string }

// path returns the path of a file of the box.
func (g host) path(name string) string { return filepath.Join(g.root, name) }

// read returns a small file of the box, without surrounding space.
func (g host) read(name string) (string, error) {
	b, err := os.ReadFile(g.path(name))
	return strings.TrimSpace(string(b)), err
}

// number reads a file with one number; 0 if it is missing.
func (g host) number(name string) (n int) {
	text, err := g.read(name)
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(text, &n) // an invalid number is 0
	return n
}

// wait waits between two readings; false if the time is over.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
