package lab

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// places is how many labs share a processor. Labs mostly wait for timers: two processors were idle for more
// than half of the time with one lab each, and with two while tests with several boxes ran. make test starts
// no more tests than its processors can serve: see package runner.
const places = 4

// lease is a place on some of this machine's processors, which no other lab has at the same time: neither
// one of this process nor one of another. More labs side by side would disturb each other.
type lease struct {
	cpus  []int
	files []*os.File // locked: the kernel releases them at the end of this process at the latest
}

// Places is how many processors all labs of this machine can have leased together.
func Places() int {
	cpus, err := allowedCPUs()
	if err != nil {
		return places
	}
	return places * len(cpus)
}

type leaseKey struct{}

// Lease takes processors for all labs that are opened with the context it returns: a test that has two
// labs at once must not take them one after the other, or it could wait for another test that does the
// same. Without it each lab takes its own. Call release when the labs are closed.
func Lease(ctx context.Context, n int) (_ context.Context, release func(), err error) {
	l, err := takeCPUs(ctx, n)
	if err != nil {
		return ctx, nil, err
	}
	return context.WithValue(ctx, leaseKey{}, l), l.release, nil
}

// leaseFor returns a lease for the machines of a lab: a processor for each box, one for a lab without,
// but no more than there are.
func leaseFor(ctx context.Context, plans []plan) (l *lease, own bool, err error) {
	if l, ok := ctx.Value(leaseKey{}).(*lease); ok {
		return l, false, nil
	}
	wanted := 0
	for _, p := range plans {
		switch p.kernel {
		case shared:
		case Qemu:
			wanted += 2 // it has two processors, and emulates both
		default:
			wanted++
		}
	}
	l, err = takeCPUs(ctx, max(1, wanted))
	return l, true, err
}

// takeCPUs waits for n processors, or for all that this process may use if those are fewer. Only one lab
// at a time waits for processors, all others wait behind it: so none that wants several is passed by
// those that want one.
func takeCPUs(ctx context.Context, n int) (*lease, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	n = min(n, len(allowed))
	folder, err := cacheFolder("processors")
	if err != nil {
		return nil, err
	}
	said := time.AfterFunc(10*time.Second, func() {
		fmt.Fprintf(os.Stderr, "weirlab: waiting for %d processors that other labs of this machine use\n", n)
	})
	defer said.Stop()
	next, err := lock(ctx, filepath.Join(folder, "queue"))
	if err != nil {
		return nil, fmt.Errorf("wait for processors that other labs use: %w", err)
	}
	defer next()
	for {
		l, err := tryCPUs(folder, allowed, n)
		if err != nil {
			return nil, err
		}
		if l != nil {
			if err := report(n); err != nil {
				l.release()
				return nil, err
			}
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d processors that other labs use: %w", n, ctx.Err())
		case <-time.After(20 * time.Millisecond): // a lock of a file can't be waited for with a limit
		}
	}
}

// tryCPUs leases a place on n of the allowed processors, those with the most free places, and returns nil if fewer have
// one. The caller holds the queue: no other lab takes places meanwhile.
func tryCPUs(folder string, allowed []int, n int) (*lease, error) {
	free := map[int][]*os.File{}
	defer func() {
		for _, files := range free {
			for _, file := range files {
				file.Close()
			}
		}
	}()
	for _, cpu := range allowed {
		for place := range places {
			file, err := tryLock(filepath.Join(folder, fmt.Sprintf("%d.%d", cpu, place)))
			if err != nil {
				return nil, err
			}
			if file != nil {
				free[cpu] = append(free[cpu], file)
			}
		}
	}
	if len(free) < n {
		return nil, nil
	}
	cpus := slices.SortedStableFunc(slices.Values(allowed), func(a, b int) int { return cmp.Compare(len(free[b]), len(free[a])) })
	l := &lease{cpus: cpus[:n]}
	for _, cpu := range l.cpus {
		l.files, free[cpu] = append(l.files, free[cpu][0]), free[cpu][1:]
	}
	return l, nil
}

// LeaseVariable names the environment variable with a file to which each lease adds a line, its number
// of processors: for those who plan which tests run side by side.
const LeaseVariable = "WEIR_LAB_LEASES"

func report(n int) error {
	path := os.Getenv(LeaseVariable)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintln(file, n)
	return err
}

// release may be called more than once.
func (l *lease) release() {
	for _, file := range l.files {
		file.Close()
	}
	l.files = nil
}

// pin is the beginning of a command that keeps the i-th box on one processor. User-mode Linux switches
// between two processes at every system call; on different processors everything takes two to seven
// times as long.
func (l *lease) pin(i int) []string {
	return []string{"taskset", "--cpu-list", strconv.Itoa(l.cpus[i%len(l.cpus)])}
}

func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("ask for this process's processors: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
