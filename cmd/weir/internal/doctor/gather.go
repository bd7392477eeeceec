package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/status"
)

// Options say where to look. The zero Root is the box itself; tests have a folder with
// files as they are below /.
type Options struct {
	ConfigFile string
	Root       string
	// Ask asks the daemon for a document by its path. An error that wraps NotRunning says
	// that there is none.
	Ask        func(ctx context.Context, path string, doc any) error
	NotRunning error
	Now        func() time.Time
	// Version is this program's.
	Version string
}

const (
	// patience is how long each look may take. What takes longer is given up and said to
	// be unknown; the whole, two rounds of looks that go on side by side, takes twice
	// that at most.
	patience = 4 * time.Second
	// sample is the time between two readings of a counter that must not grow.
	sample = time.Second
)

// look finds one Part out. What it gives puts that into Facts, so that a look that is
// given up can't write any more.
type look struct {
	part Part
	do   func(context.Context) (func(*Facts), error)
}

// Gather finds out what there is to know.
func Gather(ctx context.Context, o Options) Facts {
	f := Facts{Missing: map[Part]string{}, ConfigFile: o.ConfigFile, Now: o.Now(), Version: o.Version}
	f.readConfig()
	g := gatherer{Options: o, cfg: f.Config}
	f.take(ctx, g.box())
	// What it serves may be known by the daemon alone.
	g.served, g.pid, g.neighbors, g.fleet = f.served(), f.pid(), f.Neighbors, f.Fleet
	f.take(ctx, g.beyond())
	return f
}

// gatherer holds the looks. cfg is nil without a valid configuration; what follows
// it is known in the second round.
type gatherer struct {
	Options
	cfg       *config.Config
	served    served
	pid       int
	neighbors status.Neighbors
	fleet     status.Members
}

// beyond are the looks at others, and at what depends on the first round.
func (g gatherer) beyond() []look {
	return []look{
		{Ways, g.ways}, {Speakers, g.speakers}, {Members, g.members}, {APIs, g.apis}, {System, g.system}, {Files, g.files},
	}
}

// box are the looks at the box itself, which need nothing of each other.
func (g gatherer) box() []look {
	return []look{
		{Daemon, g.daemon}, {Modules, g.kernel}, {Sysctls, g.sysctls}, {SysctlFiles, g.sysctlFiles},
		{Conntrack, g.conntrack}, {Rules, g.rules}, {Sockets, g.sockets}, {Processes, g.processes},
		{Network, g.network}, {Clock, g.clock},
	}
}

// take takes in looks, all at once.
func (f *Facts) take(ctx context.Context, looks []look) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	results := make([]func(*Facts), len(looks))
	var wg sync.WaitGroup
	for i, l := range looks {
		wg.Go(func() { results[i] = l.run(ctx) })
	}
	wg.Wait()
	for _, put := range results {
		put(f)
	}
}

// run does one look and waits for it until ctx is over.
func (l look) run(ctx context.Context) func(*Facts) {
	done := make(chan func(*Facts), 1)
	go func() {
		put, err := l.do(ctx)
		if err != nil {
			put = l.missing(err.Error())
		}
		done <- put
	}()
	select {
	case put := <-done:
		return put
	case <-ctx.Done():
		return l.missing(fmt.Sprintf("it takes longer than %s", patience))
	}
}

func (l look) missing(why string) func(*Facts) {
	return func(f *Facts) { f.Missing[l.part] = why }
}

// readConfig reads the configuration; what is wrong with it is a finding of its own.
func (f *Facts) readConfig() {
	cfg, err := config.Load(f.ConfigFile)
	if invalid := (*config.Errors)(nil); errors.As(err, &invalid) {
		f.Problems = invalid.Problems
	} else if err != nil {
		f.Problems = []config.Problem{{Severity: config.Error, File: f.ConfigFile, Text: err.Error()}}
	}
	if err != nil {
		f.Missing[Configuration] = "it is not valid, or not there"
		return
	}
	f.Config, f.Problems = cfg, cfg.Warnings
}

// path is where a file of the box is.
func (g gatherer) path(name string) string { return filepath.Join(g.Root, name) }

// read gives a small file of the box, without the space around it.
func (g gatherer) read(name string) (string, error) {
	b, err := os.ReadFile(g.path(name))
	return strings.TrimSpace(string(b)), err
}

// number reads a file that has one number; 0 if it is not there.
func (g gatherer) number(name string) (n int) {
	text, err := g.read(name)
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(text, &n) // no number is none
	return n
}

// wait waits between two readings; false if there is no time for it.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// daemon asks the daemon for its documents.
func (g gatherer) daemon(ctx context.Context) (func(*Facts), error) {
	var d Facts
	st := new(status.Status)
	switch err := g.Ask(ctx, "/status", st); {
	case errors.Is(err, g.NotRunning):
		why := err.Error()
		return func(f *Facts) { f.NotRunning, f.Missing[Daemon] = why, why }, nil
	case err != nil:
		return nil, err
	}
	err := errors.Join(g.Ask(ctx, "/services", &d.Services), g.Ask(ctx, "/bgp/neighbors", &d.Neighbors), g.Ask(ctx, "/members", &d.Fleet))
	if err != nil {
		return nil, err
	}
	d.Fleet.Judge()
	return func(f *Facts) { f.Running, f.Services, f.Neighbors, f.Fleet = st, d.Services, d.Neighbors, d.Fleet }, nil
}
