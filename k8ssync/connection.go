package k8ssync

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// quietKlog silences client-go's own logger, which is that of the whole process. Errors
// are in Status, and are logged when they change.
var quietKlog = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// connection keeps the feeds of a cluster running, with a new client whenever the
// credentials change.
type connection struct {
	cfg     *Config
	log     *slog.Logger
	timing  *timing
	feeds   []*feed
	store   *store
	unsaved chan struct{} // the snapshot is out of date
	// use receives each client; problems returns the errors beside those of the
	// connection.
	use      func(*client)
	problems func() []error

	mu          sync.Mutex
	credentials error
	server      string
	connected   bool
	since       time.Time // of connected
	reported    bool      // that it is not connected
	session     *session  // nil without a client
}

// run follows the cluster until ctx ends.
func (c *connection) run(ctx context.Context) {
	now, sum := c.connect(ctx, [sha256.Size]byte{})
	for now != nil {
		feeds, stop := context.WithCancel(ctx)
		c.use(now)
		end := c.begin(now)
		var tasks sync.WaitGroup
		for _, f := range c.feeds {
			tasks.Go(func() { f.run(feeds, now, c.timing.backoff) })
		}
		var next *client
		next, sum = c.connect(ctx, sum)
		stop()
		tasks.Wait()
		end()
		now.close()
		now = next
	}
}

// connect waits for usable credentials other than those of sum, or for a reason to read
// all objects again. It returns nil when ctx ends.
func (c *connection) connect(ctx context.Context, sum [sha256.Size]byte) (*client, [sha256.Size]byte) {
	poll := time.NewTicker(c.timing.poll)
	defer poll.Stop()
	later := sum != [sha256.Size]byte{} // than the load of the configuration, which warns of what it reads
	for {
		a, err := readAccess(*c.cfg)
		if err == nil && (a.sum != sum || c.hasRoom()) {
			var next *client
			if next, err = newClient(a, c.cfg.Version, c.timing.timeouts); err == nil {
				c.setCredentials(nil)
				if later && a.risk != "" && a.sum != sum {
					c.log.Warn("API server not authenticated", "server", next.server, "reason", a.risk)
				}
				return next, a.sum
			}
		}
		c.setCredentials(err)
		select {
		case <-ctx.Done():
			return nil, sum
		case <-poll.C:
			later = true
		}
	}
}

// hasRoom reports whether a limit left out objects which would fit now. While a list comes this is unknown: the
// store does not have its objects yet, and another list would cut off this one.
func (c *connection) hasRoom() bool {
	full := false
	for _, f := range c.feeds {
		s := f.current()
		if s.listing {
			return false
		}
		full = full || s.full != ""
	}
	return full && c.store.hasRoom()
}

// begin makes a client that of the connection until end is called. The known objects are
// those of the earlier server until its successor is listed.
func (c *connection) begin(with *client) (end func()) {
	s := newSession(with, c.cfg.prefix())
	c.mu.Lock()
	c.server, c.session = with.server, s
	c.mu.Unlock()
	c.store.notify()
	return func() {
		c.mu.Lock()
		c.session = nil
		c.mu.Unlock()
		s.close()
	}
}

// current returns the session; nil is none.
func (c *connection) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *connection) setCredentials(err error) {
	c.mu.Lock()
	if err != nil && (c.credentials == nil || c.credentials.Error() != err.Error()) {
		c.log.Warn("credentials rejected", "error", err)
	}
	c.credentials = err
	c.mu.Unlock()
	signal(c.store.wake)
}

// feedChanged follows a change of the state of a feed: the snapshot may be
// wanted, or have to be written for another server.
func (c *connection) feedChanged(relisted bool) {
	c.check()
	signal(c.store.wake)
	if relisted {
		signal(c.unsaved)
	}
}

// check records and logs whether the connection works.
func (c *connection) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	works := c.watching()
	fails := slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.current().err != nil })
	if works == c.connected && (works || c.reported || !fails) { // it may only have begun
		return
	}
	if works != c.connected {
		c.connected, c.since = works, time.Now()
		c.store.notify()
	}
	c.reported = !works
	if works {
		c.log.Info("cluster connected", "server", c.server)
		return
	}
	c.log.Warn("cluster unreachable", "server", c.server, "error", c.problem())
}

// watching reports whether all feeds have listed and watch.
func (c *connection) watching() bool {
	return !slices.ContainsFunc(c.feeds, func(f *feed) bool {
		s := f.current()
		return !s.listed || !s.watching
	})
}

// origin returns the server of all known objects, and the time of its last answer; not ok
// is that there is none, or that it is not the one of the session.
func (c *connection) origin() (server string, contact time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.current().server != c.server })
	return c.server, c.contact(), !other
}

// contact returns the time of the last answer of the API server.
func (c *connection) contact() time.Time {
	var last time.Time
	for _, f := range c.feeds {
		if s := f.current(); s.contact.After(last) {
			last = s.contact
		}
	}
	return last
}

// progress reports whether all resources have been listed, and whether an error prevents
// that.
func (c *connection) progress() (listed, prevented bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	listed, prevented = true, c.credentials != nil
	for _, f := range c.feeds {
		s := f.current()
		listed = listed && s.listed
		prevented = prevented || !s.listed && s.err != nil
	}
	return listed, prevented
}

// problem returns all errors of the cluster as one text. c.mu is held.
func (c *connection) problem() string {
	errs := append([]error{c.credentials}, c.problems()...)
	for _, f := range c.feeds {
		errs = append(errs, f.current().problems()...)
	}
	var texts []string
	for _, err := range errs {
		if err != nil && !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	return strings.Join(texts, "; ")
}

// status adds the state of the connection to s.
func (c *connection) status(s *Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Connected, s.Since, s.Error = c.connected, c.since, c.problem()
	if contact := c.contact(); !contact.IsZero() {
		s.LastContact = contact
	}
	for _, f := range c.feeds {
		s.Relists += f.current().lists
	}
}
