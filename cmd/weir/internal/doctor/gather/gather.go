// Package gather collects the facts about a box for weir doctor: from /proc and /sys, links,
// routes, rules, sockets, the daemon, and other hosts. It never changes anything; each probe
// has a timeout.
package gather

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/source"
	"weir/cmd/weir/internal/doctor/facts"
	"weir/cmd/weir/internal/status"
)

// probe gathers one Part. Its result sets the Part, so that a probe after its timeout
// can't write any more.
type probe struct {
	part facts.Part
	do   func(context.Context) (func(*facts.Facts), error)
}

// Gather collects the facts.
func Gather(ctx context.Context, o Options) facts.Facts {
	f := facts.Facts{Missing: map[facts.Part]string{}, ConfigFile: o.ConfigFile, Now: o.Now(), Version: o.Version}
	readConfig(&f)
	g := gatherer{host: host{o.Root}, Options: o, cfg: f.Config}
	take(ctx, &f, g.box())
	// The Services of clusters are known only by the daemon.
	g.served, g.pid, g.neighbors, g.fleet = facts.ServedBy(&f), facts.PID(&f), f.Neighbors, f.Fleet
	take(ctx, &f, g.beyond())
	return f
}

// beyond returns the probes of other hosts, and those that depend on the first round.
func (g gatherer) beyond() []probe {
	return []probe{
		{facts.Ways, g.ways}, {facts.Speakers, g.speakers}, {facts.Members, g.members}, {facts.APIs, g.apis}, {facts.System, g.system}, {facts.Files, g.files},
	}
}

// box returns the independent probes of the box itself.
func (g gatherer) box() []probe {
	return []probe{
		{facts.Daemon, g.daemon}, {facts.Modules, g.kernel}, {facts.Sysctls, g.sysctls}, {facts.SysctlFiles, g.sysctlFiles},
		{facts.Conntrack, g.conntrack}, {facts.Rules, g.rules}, {facts.NFRules, g.nfRules}, {facts.Sockets, g.sockets},
		{facts.Processes, g.processes}, {facts.Network, g.network}, {facts.Clock, g.clock},
	}
}

// take runs probes concurrently.
func take(ctx context.Context, f *facts.Facts, probes []probe) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results := make([]func(*facts.Facts), len(probes))
	var wg sync.WaitGroup
	for i, l := range probes {
		wg.Go(func() { results[i] = l.run(ctx) })
	}
	wg.Wait()
	for _, put := range results {
		put(f)
	}
}

// run runs one probe until ctx is over.
func (l probe) run(ctx context.Context) func(*facts.Facts) {
	done := make(chan func(*facts.Facts), 1)
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
		return l.missing(fmt.Sprintf("it takes longer than %s", timeout))
	}
}

func (l probe) missing(reason string) func(*facts.Facts) {
	return func(f *facts.Facts) { f.Missing[l.part] = reason }
}

// readConfig reads the configuration; its errors are findings.
func readConfig(f *facts.Facts) {
	cfg, err := load.File(f.ConfigFile)
	if invalid, ok := errors.AsType[*source.Errors](err); ok {
		f.Problems = invalid.Problems
	} else if err != nil {
		f.Problems = []source.Problem{{Severity: source.Error, File: f.ConfigFile, Text: err.Error()}}
	}
	if err != nil {
		f.Missing[facts.Configuration] = "it is invalid or missing"
		return
	}
	f.Config, f.Problems = cfg, cfg.Warnings
}

// daemon requests the documents of the daemon.
func (g gatherer) daemon(ctx context.Context) (func(*facts.Facts), error) {
	var d facts.Facts
	st := new(status.Status)
	switch err := g.Ask(ctx, "/status", st); {
	case errors.Is(err, g.NotRunning):
		reason := err.Error()
		return func(f *facts.Facts) { f.NotRunning, f.Missing[facts.Daemon] = reason, reason }, nil
	case errors.Is(err, fs.ErrPermission):
		reason := err.Error()
		return func(f *facts.Facts) { f.NoAccess, f.Missing[facts.Daemon] = true, reason }, nil
	case err != nil:
		return nil, err
	}
	err := errors.Join(g.Ask(ctx, "/services", &d.Services), g.Ask(ctx, "/bgp/neighbors", &d.Neighbors), g.Ask(ctx, "/members", &d.Fleet))
	if err != nil {
		return nil, err
	}
	d.Fleet.Judge()
	return func(f *facts.Facts) {
		f.Running, f.Services, f.Neighbors, f.Fleet = st, d.Services, d.Neighbors, d.Fleet
	}, nil
}
