package k8ssync

import (
	"context"
	"time"
)

// session is a client for as long as it may be used.
type session struct {
	client *client
	prefix string // of annotations
	// life ends when the client must no longer be used.
	life context.Context
	end  context.CancelFunc
	// reserved has a value while a user needs the client for one more request after
	// that, for at most shutdownGrace.
	reserved chan struct{}
}

// shutdownGrace is how long the close of a client waits for a reservation.
const shutdownGrace = 2 * time.Second

func newSession(c *client, prefix string) *session {
	life, end := context.WithCancel(context.Background())
	return &session{client: c, prefix: prefix, life: life, end: end, reserved: make(chan struct{}, 1)}
}

// follow runs a feed beside those of the cluster, until ctx or the session ends.
func (s *session) follow(ctx context.Context, f *feed, backoff time.Duration) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.life, stop)()
	f.run(ctx, s.client, backoff)
}

// reserve delays the close of the client until release; there is one reservation at most.
func (s *session) reserve() bool {
	select {
	case s.reserved <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *session) release() { <-s.reserved }

// close ends the session, after its reservation.
func (s *session) close() {
	s.end()
	late := time.NewTimer(shutdownGrace)
	defer late.Stop()
	select {
	case s.reserved <- struct{}{}:
	case <-late.C:
	}
}
