package k8ssync

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
)

// stream is a watch that replaces each event by those of a function. One goroutine decodes events and replaces them.
// It is no watch.StreamWatcher: that has a goroutine of its own, which each of tens of thousands of initial objects
// would wake, and each wake-up reads the clock. The goroutine has ended when Stop returns, so that what the function
// uses belongs to the caller again.
type stream struct {
	in   decoder
	out  chan watch.Event
	done chan struct{}
	once sync.Once // closes in and done
}

// decoder reads the events of a watch.
type decoder interface {
	Decode() (watch.EventType, runtime.Object, error)
	Close()
}

// newDecoder returns the decoder of an answer.
func newDecoder(body io.ReadCloser, contentType string, gv schema.GroupVersion) (decoder, error) {
	mediaType, params, _ := mime.ParseMediaType(contentType) // without one, the server is taken to send JSON
	objects, events, framer, err := runtime.NewClientNegotiator(codecs, gv).StreamDecoder(mediaType, params)
	if err != nil {
		_ = body.Close() // the first error counts
		return nil, err
	}
	return restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(body), events), objects), nil
}

// newStream calls ended at the end of the watch, unless an error event or Stop ended it.
func newStream(in decoder, f func(watch.Event) []watch.Event, ended func()) *stream {
	s := &stream{in: in, out: make(chan watch.Event), done: make(chan struct{})}
	go s.run(f, ended)
	return s
}

func (s *stream) run(f func(watch.Event) []watch.Event, ended func()) {
	defer close(s.out)
	defer s.end()
	for {
		typ, object, err := s.in.Decode()
		if err != nil {
			if !s.stopped() {
				ended()
			}
			if s.stopped() || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) {
				return // it is opened again where it ended
			}
			s.in.Close() // nothing can be read after it, and f may wait
			typ, object = watch.Error, unreadable(err)
		}
		for _, e := range f(watch.Event{Type: typ, Object: object}) {
			if s.stopped() { // before the reader: no event after Stop
				return
			}
			select {
			case s.out <- e:
			case <-s.done:
				return
			}
			if e.Type == watch.Error {
				return // the Reflector opens another one
			}
		}
	}
}

// unreadable returns the error of an event that can't be decoded, as client-go does.
func unreadable(err error) runtime.Object {
	return apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET", "ClientWatchDecoding").
		AsObject(fmt.Errorf("unable to decode an event from the watch stream: %w", err))
}

func (s *stream) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *stream) end() {
	s.once.Do(func() {
		close(s.done)
		s.in.Close()
	})
}

// Stop implements watch.Interface. It waits for a running f: the Reflector stops a watch when it has ended, or when
// its context has, which ends each wait of f.
func (s *stream) Stop() {
	s.end()
	for range s.out { // until it is closed
	}
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }
