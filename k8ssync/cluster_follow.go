package k8ssync

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// quietKlog silences client-go's own logger, which is the whole process's: what is
// wrong is in Status, and in the log when it changes.
var quietKlog = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// follow keeps the feeds running, with a new client whenever credentials change.
func (c *Cluster) follow(ctx context.Context) {
	now, sum := c.connect(ctx, [sha256.Size]byte{})
	for now != nil {
		feeds, stop := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
		c.told.use(now)
		c.at(now.server)
		back := c.lend(now)
		var tasks sync.WaitGroup
		for _, f := range c.feeds {
			r := c.reflector(f, now)
			tasks.Go(func() { r.RunWithContext(feeds) })
		}
		var next *client
		next, sum = c.connect(ctx, sum)
		stop()
		tasks.Wait()
		back()
		now.close()
		now = next
	}
}

// connect waits for credentials that are usable and other than those of sum, or
// for a reason to read everything again. nil is the end of ctx.
func (c *Cluster) connect(ctx context.Context, sum [sha256.Size]byte) (*client, [sha256.Size]byte) {
	poll := time.NewTicker(c.timing.poll)
	defer poll.Stop()
	for {
		a, err := readAccess(c.cfg)
		if err == nil && (a.sum != sum || c.roomy()) {
			var next *client
			if next, err = newClient(a, c.cfg.Version, c.timing.silence); err == nil {
				c.setCredentials(nil)
				return next, a.sum
			}
		}
		c.setCredentials(err)
		select {
		case <-ctx.Done():
			return nil, sum
		case <-poll.C:
		}
	}
}

// roomy tells that objects were left out which would find room now.
func (c *Cluster) roomy() bool {
	c.mu.Lock()
	full := slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.full != "" })
	c.mu.Unlock()
	c.in.Lock()
	defer c.in.Unlock()
	return full && c.live.roomy()
}

// reflector makes what follows one feed with one client.
func (c *Cluster) reflector(f *feed, with *client) *cache.Reflector {
	l := &lister{feed: f, client: with}
	const first, factor = 500 * time.Millisecond, 2.0
	return cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: l.List, WatchFuncWithContext: l.Watch}, nil, f,
		cache.ReflectorOptions{
			Name: c.cfg.Name, TypeDescription: f.name, Logger: new(klog.Logger),
			Backoff: &wait.Backoff{
				Duration: min(first, c.timing.backoff), Cap: c.timing.backoff, Factor: factor, Jitter: 1,
				Steps: 1 + int(math.Log2(float64(c.timing.backoff/min(first, c.timing.backoff)))),
			},
		})
}

// change lets f change what the API server says.
func (c *Cluster) change(f func(*objects)) {
	c.in.Lock()
	f(c.live)
	c.in.Unlock()
	signal(c.wake)
}

// skew is how far a cluster's clock may be ahead of this box's.
const skew = time.Minute

// put takes an object in. A slice that is no Service's is nobody's.
func (c *Cluster) put(o *objects, object any) (full string) {
	if s, ok := object.(*slice); ok && s.Service == "" {
		o.drop(s)
		return ""
	}
	return o.put(object, c.started, time.Now().Add(skew))
}

// What follows is told by feeds.

func (c *Cluster) heard() {
	c.mu.Lock()
	c.status.Heard = time.Now()
	c.mu.Unlock()
}

func (c *Cluster) listed(f *feed) {
	c.mu.Lock()
	f.listed, f.server = true, c.server
	c.status.Relists++
	c.weighUp()
	c.mu.Unlock()
	signal(c.wake)
	signal(c.unsaved) // it may be another server
}

func (c *Cluster) watching(f *feed) {
	c.mu.Lock()
	f.watching, f.err = true, nil
	c.status.Heard = time.Now()
	c.weighUp()
	c.mu.Unlock()
}

func (c *Cluster) broken(f *feed, err error) {
	c.mu.Lock()
	f.watching, f.err = false, err
	c.weighUp()
	c.mu.Unlock()
	signal(c.wake) // the last-known-good file may be wanted
}

// rest waits for as long as an API server asks for, if that is sane; the Reflector
// waits by itself, too.
func (c *Cluster) rest(ctx context.Context, seconds int) {
	const sane = time.Minute
	wait := time.NewTimer(min(sane, time.Duration(seconds)*time.Second))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

func (c *Cluster) odd(f *feed, err error) {
	c.mu.Lock()
	f.odd = err
	c.mu.Unlock()
}

func (c *Cluster) full(f *feed, of string) {
	c.mu.Lock()
	f.full = of
	c.mu.Unlock()
}

func (c *Cluster) setCredentials(err error) {
	c.mu.Lock()
	if err != nil && (c.credentials == nil || c.credentials.Error() != err.Error()) {
		c.log.Warn("credentials can't be used", "error", err)
	}
	c.credentials = err
	c.mu.Unlock()
	signal(c.wake)
}

// at notes which server it is. What is known is the old one's until it is listed.
func (c *Cluster) at(server string) {
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
}

// origin gives the server that said all that is known, and when it last did;
// false is none, or another one than now.
func (c *Cluster) origin() (server string, heard time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.server != c.server })
	return c.server, c.status.Heard, c.status.Synced && !c.status.Stale && !others
}

// weighUp notes and logs when the connection begins or ends to work.
func (c *Cluster) weighUp() {
	works := !slices.ContainsFunc(c.feeds, func(f *feed) bool { return !f.listed || !f.watching })
	if works == c.status.Connected {
		return
	}
	c.status.Connected, c.status.Since = works, time.Now()
	c.ring()
	if works {
		c.log.Info("connected", "server", c.server)
		return
	}
	c.log.Warn("not connected", "server", c.server, "error", c.wrong())
}

// wrong tells everything that is wrong at the moment. c.mu is held.
func (c *Cluster) wrong() string {
	errs := []error{c.credentials, c.stranger, c.excess, c.meaning}
	for _, f := range c.feeds {
		errs = append(errs, f.err, f.odd)
		if f.full != "" {
			errs = append(errs, errors.New(f.full+": the rest is ignored"))
		}
	}
	var texts []string
	for _, err := range errs {
		if err != nil && !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	return strings.Join(texts, "; ")
}

// standing tells whether everything has been listed, and whether something that
// hinders it is known.
func (c *Cluster) standing() (synced, hindered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	synced, hindered = true, c.credentials != nil
	for _, f := range c.feeds {
		synced = synced && f.listed
		hindered = hindered || !f.listed && f.err != nil
	}
	return synced, hindered
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
