package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// Lab is a site that runs.
type Lab struct {
	keeper    *keeper
	lease     *lease // of processors
	own       bool   // the lease ends with the lab
	machines  []*Machine
	recorders []recorder
	ctx       context.Context // ends with the lab
	cancel    context.CancelFunc
	procs     sync.WaitGroup // the goroutines that copy processes' output
}

// Open puts a site on this machine and returns when all of its machines answer. Close it.
func Open(ctx context.Context, site Site) (*Lab, error) {
	if _, err := site.parse(); err != nil { // before a kernel is asked for
		return nil, fmt.Errorf("site: %w", err)
	}
	site, err := site.withKernels()
	if err != nil {
		return nil, err
	}
	plans, err := site.parse()
	if err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	kernels := site.kernels()
	if site.NoIPVS {
		kernels = slices.DeleteFunc(kernels, func(k Kernel) bool { return k == HostKernel })
	}
	if err := Check(kernels...); err != nil {
		return nil, err
	}
	return open(ctx, plans)
}

func open(ctx context.Context, plans []plan) (*Lab, error) {
	cpus, own, err := leaseFor(ctx, plans)
	if err != nil {
		return nil, err
	}
	k, err := startKeeper()
	if err != nil {
		if own {
			cpus.release()
		}
		return nil, err
	}
	l := &Lab{keeper: k, lease: cpus, own: own}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := l.build(ctx, plans); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// build makes the networks and boots all machines side by side.
func (l *Lab) build(ctx context.Context, plans []plan) error {
	if err := l.keeper.makeNetworks(plans); err != nil {
		return err
	}
	if err := l.record(ctx, plans); err != nil {
		return err
	}
	for _, p := range plans {
		m := &Machine{plan: p, lab: l, unplugged: map[string]bool{}, logs: map[string]int{}}
		if err := os.MkdirAll((evidence{m}).logPath(""), 0o755); err != nil {
			return err
		}
		l.machines = append(l.machines, m)
	}
	return SideBySide(len(l.machines), func(i int) error { return l.machines[i].Boot(ctx) })
}

// SideBySide calls do n times at once, and returns all errors.
func SideBySide(n int, do func(i int) error) error {
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failed[i] = do(i) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// Host returns a host of the site. It panics when the site has none of that name.
func (l *Lab) Host(name string) *Machine { return l.machine(name, "host") }

// Box returns a box of the site. It panics when the site has none of that name.
func (l *Lab) Box(name string) *Machine { return l.machine(name, "box") }

func (l *Lab) machine(name, kind string) *Machine {
	for _, m := range l.machines {
		if m.name == name && (m.kernel == shared) == (kind == "host") {
			return m
		}
	}
	panic(fmt.Sprintf("lab: the site has no %s called %q", kind, name))
}

// Machines returns all hosts and boxes, in the order of their declaration.
func (l *Lab) Machines() []*Machine { return append([]*Machine(nil), l.machines...) }

// Close ends everything the lab runs. It may be called more than once.
func (l *Lab) Close() {
	l.cancel()
	l.keeper.stop()
	l.procs.Wait()
	for _, m := range l.machines {
		m.mu.Lock()
		boot{m}.switchOff()
		m.mu.Unlock()
	}
	if l.own {
		l.lease.release()
	}
}
