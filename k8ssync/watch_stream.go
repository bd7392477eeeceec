package k8ssync

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch that replaces each event by those of a function. Its goroutine ends with the
// reader, unlike that of watch.Filter.
type stream struct {
	in   watch.Interface
	out  chan watch.Event
	done chan struct{}
	stop sync.Once
}

func newStream(in watch.Interface, f func(watch.Event) []watch.Event) *stream {
	s := &stream{in: in, out: make(chan watch.Event), done: make(chan struct{})}
	go s.run(f)
	return s
}

func (s *stream) run(f func(watch.Event) []watch.Event) {
	defer close(s.out)
	for e := range s.in.ResultChan() {
		for _, e := range f(e) {
			select {
			case <-s.done: // before the reader: no event after Stop
				return
			default:
			}
			select {
			case s.out <- e:
			case <-s.done:
				return
			}
		}
	}
}

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.stop.Do(func() { close(s.done) })
	s.in.Stop()
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }
