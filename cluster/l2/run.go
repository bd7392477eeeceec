package l2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Run opens sockets, follows interfaces and their carriers, and answers until ctx ends.
// Then every claim is Idle. It may be called again. An error means that the process lacks
// CAP_NET_RAW or that the kernel lacks a feature; the problem of a single interface is in
// Status.
func (a *Answerer) Run(ctx context.Context) error {
	if !a.begin() {
		return errors.New("answer for addresses: is running already")
	}
	defer a.end() // after a panic, too: Run must be possible again
	r := runner{a: a, summary: summary{log: a.log}}
	if err := a.inNamespace(func() error { return r.open() }); err != nil {
		return err
	}
	defer r.close()
	r.readers.Go(func() { r.watch.listen(r.linkHint) })
	r.loop(ctx)
	return nil
}

// end makes every claim Idle.
func (a *Answerer) end() {
	a.with(func(e *engine) {
		for name := range e.links {
			e.setLink(name, linkState{}, time.Now())
		}
		a.running = false
	})
}

// runner is the state of a call of Run, and belongs to its goroutine.
type runner struct {
	a       *Answerer
	watch   *watch
	readers sync.WaitGroup
	summary summary
	logged  atomic.Int64 // when a panic of a reader was last logged
}

func (r *runner) open() (err error) {
	if err := checkPermission(); err != nil {
		return err
	}
	r.watch, err = openWatch()
	return err
}

func (r *runner) close() {
	a := r.a
	a.mu.Lock()
	ports := a.ports
	a.ports = map[string]*port{}
	a.mu.Unlock()
	for _, p := range ports {
		p.close()
	}
	r.watch.close()
	r.readers.Wait()
}

// loop does the work that is due until ctx ends: it inspects interfaces, updates ports,
// runs the engine and writes the log.
func (r *runner) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	looked := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.a.wake:
		case <-timer.C:
		}
		hinted, anyway := r.linksMayDiffer(), time.Since(looked) >= inspectInterval
		if hinted || anyway {
			r.inspectLinks()
		}
		if anyway {
			looked = time.Now()
		}
		more := r.follow(hinted, anyway)
		next := r.tick()
		next = earlier(next, r.summary.write(r.a))
		next = earlier(next, looked.Add(inspectInterval))
		if more {
			next = time.Now()
		}
		timer.Reset(max(time.Until(next), 0))
	}
}

// tick runs the engine and returns when there is more to do.
func (r *runner) tick() time.Time {
	a := r.a
	a.with(func(e *engine) {
		now := time.Now()
		e.tick(now)
		a.signal(now)
		a.done.statusChanges, a.next = e.statusChanges, a.due(now)
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

// linksMayDiffer reports whether interfaces may differ from the last inspection, which the
// caller repeats.
func (r *runner) linksMayDiffer() bool {
	a := r.a
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.done
	a.done.hints, a.done.linksAdded = a.hints, a.engine.linksAdded
	return before != a.done
}

// inspectLinks passes the state of the interfaces to the engine.
func (r *runner) inspectLinks() {
	r.a.mu.Lock()
	names := slices.Sorted(maps.Keys(r.a.engine.links))
	r.a.mu.Unlock()
	for _, name := range names {
		now := r.watch.inspect(name)
		r.a.with(func(e *engine) { e.setLink(name, now, time.Now()) })
	}
}

// task is a port to update, with the interest of its link.
type task struct {
	port     *port
	interest interest
}

// follow updates the ports. more is true if it must be called again soon. Failed work is
// retried after each notification, and everything is checked every inspectInterval.
func (r *runner) follow(hinted, anyway bool) (more bool) {
	tasks, gone := r.tasks(hinted, anyway)
	for _, p := range gone {
		p.close()
	}
	for _, t := range tasks {
		var st portState
		var rest bool
		_ = r.a.inNamespace(func() (err error) { // the error is in the state
			if rest, st.closed, err = t.port.follow(t.interest); err != nil {
				st.problem = err.Error()
			}
			return nil
		})
		more = more || rest
		r.a.with(func(e *engine) {
			t.port.incomplete = rest
			e.setPort(t.port.name, st, time.Now())
		})
	}
	return more
}

// tasks returns the ports that need an update, and those that are no longer used.
func (r *runner) tasks(hinted, anyway bool) (tasks []task, gone []*port) {
	a := r.a
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, p := range a.ports {
		if l := a.engine.links[name]; l == nil || l.index != p.index || p.failed.Load() {
			delete(a.ports, name)
			gone = append(gone, p)
		}
	}
	for name, l := range a.engine.links {
		p := a.ports[name]
		if p == nil && l.index != 0 {
			p = &port{name: name, index: l.index, groups: groups{index: l.index}, listen: r.listen}
			a.ports[name] = p
			l.bindingChanges++ // none of which the new sockets know
		}
		if p != nil && (l.filtersStale() || p.incomplete || anyway || hinted && l.port != (portState{})) {
			l.filtered = l.bindingChanges
			tasks = append(tasks, task{p, l.interest()})
		}
	}
	return tasks, gone
}

// listen starts to read a socket of a port. A frame that makes weir panic is dropped: any host of the LAN can send it
// repeatedly, so it must not cost the socket.
func (r *runner) listen(p *port, s *socket, parse func([]byte) (message, bool)) {
	handle := func(frame []byte) {
		if m, ok := parse(frame); ok {
			r.a.received(p, m)
		}
	}
	r.readers.Go(func() {
		err := s.frames(func(frame []byte) {
			if r.caught("frame not parsed", func() { handle(frame) }) {
				p.panics.Add(1)
			}
		})
		if err == nil {
			return
		}
		r.a.log.Warn("interface sockets failed", "interface", p.name, "error", err)
		time.Sleep(failPause)
		p.failed.Store(true)
		r.linkHint()
	})
}

// linkHint has Run inspect the interfaces.
func (r *runner) linkHint() { r.caught("link change not handled", r.a.linkHint) }

// caught calls a function, and reports whether it has panicked. It logs one panic a minute: any host may cause many.
func (r *runner) caught(line string, do func()) (panicked bool) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		panicked = true
		now, last := time.Now().Unix(), r.logged.Load()
		if now-last >= 60 && r.logged.CompareAndSwap(last, now) {
			r.a.log.Error(line, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	do()
	return false
}

// failPause is the pause before a failed socket is opened again.
const failPause = 200 * time.Millisecond
