package l2

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// runner is what there is only while Run runs, and belongs to its goroutine.
type runner struct {
	a       *Answerer
	watch   *watch
	readers sync.WaitGroup
	notes   notes
}

func (r *runner) open() (err error) {
	if err := mayListen(); err != nil {
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

// loop does what is due until ctx ends: looks at links, has ports follow, lets the
// engine speak, tells the log.
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
		hinted, anyway := r.take(), time.Since(looked) >= lookAnyway
		if hinted || anyway {
			r.look()
		}
		if anyway {
			looked = time.Now()
		}
		more := r.follow(hinted, anyway)
		next := r.tick()
		next = earlier(next, r.notes.tell(r.a))
		next = earlier(next, looked.Add(lookAnyway))
		if more {
			next = time.Now()
		}
		timer.Reset(max(time.Until(next), 0))
	}
}

// tick has the engine do what is due, and tells when something is again.
func (r *runner) tick() (next time.Time) {
	r.a.with(func(e *engine) {
		next = e.tick(time.Now())
		e.stirred = false // tick has just seen to it
	})
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if r.a.owing {
		next = earlier(next, r.a.told.Add(changeGap))
	}
	return next
}

func (r *runner) take() bool {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	hinted := r.a.hinted
	r.a.hinted = false
	return hinted
}

// look tells the engine what has become of the interfaces.
func (r *runner) look() {
	r.a.mu.Lock()
	names := slices.Sorted(maps.Keys(r.a.engine.links))
	r.a.mu.Unlock()
	for _, name := range names {
		now := r.watch.look(name)
		r.a.with(func(e *engine) { e.setLink(name, now, time.Now()) })
	}
}

// task is for a port to follow what its link wants.
type task struct {
	port  *port
	wants wants
}

// follow has the ports be what the links want; more says that it is to be called again
// soon. What could not be done is tried again after each hint, and anyway everything is.
func (r *runner) follow(hinted, anyway bool) (more bool) {
	tasks, gone := r.tasks(hinted, anyway)
	for _, p := range gone {
		p.close()
	}
	for _, t := range tasks {
		var st portState
		var rest bool
		_ = r.a.enter(func() (err error) { // it is told by the state
			if rest, st.deaf, err = t.port.follow(t.wants); err != nil {
				st.trouble = err.Error()
			}
			return nil
		})
		more = more || rest
		r.a.with(func(e *engine) {
			t.port.rest = rest
			e.setPort(t.port.name, st, time.Now())
		})
	}
	return more
}

// tasks gives those ports that have something to follow, and those that are of no more
// use.
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
			l.dirty = true
		}
		if p != nil && (l.dirty || p.rest || anyway || hinted && l.port != (portState{})) {
			l.dirty = false
			tasks = append(tasks, task{p, l.wants()})
		}
	}
	return tasks, gone
}

// listen starts to read a socket of a port.
func (r *runner) listen(p *port, s *socket, parse func([]byte) (message, bool)) {
	r.readers.Go(func() {
		err := s.frames(parse, func(m message) { r.a.heard(p, m) })
		if err == nil {
			return
		}
		r.a.log.Warn("can't listen on an interface, its sockets are opened again", "interface", p.name, "err", err)
		time.Sleep(failPause)
		p.failed.Store(true)
		r.a.hint()
	})
}

// failPause is before a socket that has failed is opened again.
const failPause = 200 * time.Millisecond
