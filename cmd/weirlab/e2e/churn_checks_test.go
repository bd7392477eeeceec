package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// The load of the churn, and the checks of its invariants.

const (
	// unexcused is the reason of losses that fail the test.
	unexcused = "none"
	// routeNotice is how late the test may learn of a moved route.
	routeNotice = 250 * time.Millisecond
	// staleFor is how much older than its death the state may be that a box serves until it reaches the
	// API server: snapshots are written every 30 s at most, 5 s after a change.
	staleFor = 45 * time.Second
	// judgedAfter is how long a judgement waits for changes that the router and the API server report.
	judgedAfter = 3 * time.Second
)

// tally counts.
type tally struct {
	mu       sync.Mutex
	faults   int
	wrong    int // answers
	actions  map[string][]time.Duration
	answered map[string]int // by load
	lost     map[string]int // by reason
	cut      map[string]int
	checked  int
	foreign  int // comparisons
	changed  int // foreign objects
	polled   time.Time

	answers []churnAnswer
	losses  []churnLoss
}

// churnAnswer is an answer that has not been judged yet.
type churnAnswer struct {
	identity
	from, to time.Time
}

// churnLoss is a lost request or a cut connection that has not been judged yet.
type churnLoss struct {
	what     string
	cut      bool
	from, to time.Time
}

// fault fails the test, and ends the churn.
func (c *churn) fault(format string, args ...any) {
	c.t.Errorf("%s: %s", c.now(), fmt.Sprintf(format, args...))
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	c.tally.faults++
}

// count adds one to a number of the tally.
func (c *churn) count(number *int) {
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	*number++
}

func (c *churn) hasFailed() bool {
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	return c.tally.faults > 0
}

// now is the time since the begin, as in the log.
func (c *churn) now() string { return fmt.Sprintf("%8.2fs", time.Since(c.began).Seconds()) }

func (c *churn) lose(what string, cut bool, from, to time.Time) {
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	c.tally.losses = append(c.tally.losses, churnLoss{what, cut, from, to})
}

// received takes the answer of a server, "shop3@web1".
func (c *churn) received(load, server, vip string, from, to time.Time) {
	service, host, _ := strings.Cut(server, "@")
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	c.tally.answered[load]++
	c.tally.answers = append(c.tally.answers, churnAnswer{identity{service, host, vip}, from, to})
}

// loads sends requests to the victim, until ctx ends: new connections, datagrams, held connections. The
// prober asks all addresses that a Service may have.
func (c *churn) loads(ctx context.Context, all *sync.WaitGroup) {
	client := c.client1
	all.Go(func() {
		c.newConnections(ctx, "new connections", 50*time.Millisecond, traffic.HTTP(client.DialContext), at(c.victim, 80))
	})
	all.Go(func() { c.newConnections(ctx, "datagrams", 100*time.Millisecond, askUDP(client), at(c.victim, 7000)) })
	for range 6 {
		all.Go(func() { c.heldConnection(ctx, client) })
	}
	all.Go(func() { c.probe(ctx, c.client2) })
}

// newConnections runs loads of five seconds, so that the results of each are judged while the next one
// runs.
func (c *churn) newConnections(ctx context.Context, name string, beat time.Duration, ask traffic.Ask, addr string) {
	o := traffic.Options{Ask: ask, Beat: beat}
	collect := func(l *traffic.Load) {
		for _, one := range l.Stop() {
			if one.Err != nil {
				c.lose(fmt.Sprintf("%s: %s", name, one.Err), false, one.Began, one.Ended)
				continue
			}
			c.received(name, one.Server, c.victim, one.Began, one.Ended)
		}
	}
	last := traffic.Start(context.WithoutCancel(ctx), o, addr)
	for traffic.Pause(ctx, 5*time.Second) == nil {
		next := traffic.Start(context.WithoutCancel(ctx), o, addr)
		collect(last)
		last = next
	}
	collect(last)
}

// askUDP asks a server of package traffic with a datagram, which is repeated every second.
func askUDP(from *lab.Machine) traffic.Ask {
	return func(ctx context.Context, addr string) (string, error) {
		c, err := from.DialContext(ctx, "udp", addr)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close() }()
		limit, _ := ctx.Deadline()
		buf := make([]byte, 64)
		n, err := askUntil(c, []byte("?"), buf, limit)
		return strings.TrimPrefix(string(buf[:n]), "? "), err
	}
}

// heldConnection opens connections to the victim, each when the one before was cut.
func (c *churn) heldConnection(ctx context.Context, from *lab.Machine) {
	o := traffic.HoldOptions{Beat: 200 * time.Millisecond, Patience: holdPatience}
	for ctx.Err() == nil {
		began := time.Now()
		h, err := traffic.Hold(context.WithoutCancel(ctx), from.DialContext, at(c.victim, 7000), o)
		if err != nil {
			c.lose(err.Error(), false, began, time.Now())
			_ = traffic.Pause(ctx, 200*time.Millisecond)
			continue
		}
		c.received("held connections", h.Server, c.victim, began, time.Now())
		for h.Err() == nil && traffic.Pause(ctx, 200*time.Millisecond) == nil {
		}
		if err := h.Release(); err != nil {
			c.lose(err.Error(), true, h.LastAnswer(), h.Ended())
		}
	}
}

// probe asks random addresses: an answer must come from the Service that has the address.
func (c *churn) probe(ctx context.Context, from *lab.Machine) {
	random := rand.New(rand.NewPCG(c.seed, 0))
	var all sync.WaitGroup
	defer all.Wait()
	for traffic.Pause(ctx, 50*time.Millisecond) == nil {
		vip := fmt.Sprintf("192.0.2.%d", 64+random.IntN(32))
		switch random.IntN(8) {
		case 0:
			vip = fmt.Sprintf("198.51.100.%d", 64+random.IntN(16))
		case 1:
			vip = staticVIP
		}
		all.Go(func() {
			one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			began := time.Now()
			if a, err := props.Ask(one, from.DialContext, at(vip, 80)); err == nil {
				c.received("probes", a.Server, vip, began, time.Now())
			}
		})
	}
}

// judge judges losses and answers until ctx ends, and then all that are left.
func (c *churn) judge(ctx context.Context) {
	since := c.began
	for ended := false; !ended; {
		ended = traffic.Pause(ctx, time.Second) != nil
		if ended {
			_ = traffic.Pause(context.WithoutCancel(ctx), judgedAfter)
		}
		for _, e := range c.watch.of(c.victim, since) {
			c.note("the router's route to the victim changed at %.2fs, exists: %v", e.at.Sub(c.began).Seconds(), e.here)
			c.windows.add(window{routeMoved, e.at.Add(-routeNotice), e.at.Add(routeNotice)})
			since = e.at.Add(1)
		}
		c.poll(ctx)
		c.judgeLosses()
		c.judgeAnswers()
	}
}

func (c *churn) judgeLosses() {
	c.tally.mu.Lock()
	var due, later []churnLoss
	for _, l := range c.tally.losses {
		if time.Since(l.to) < judgedAfter {
			later = append(later, l)
		} else {
			due = append(due, l)
		}
	}
	c.tally.losses = later
	c.tally.mu.Unlock()
	for _, l := range due {
		reason := c.windows.excuse(l.from, l.to)
		if reason == "" {
			c.fault("lost from %.2fs to %.2fs, when no box was dead and no route moved: %s", l.from.Sub(c.began).Seconds(), l.to.Sub(c.began).Seconds(), l.what)
			reason = unexcused
		}
		c.tally.mu.Lock()
		if l.cut {
			c.tally.cut[reason]++
		} else {
			c.tally.lost[reason]++
		}
		c.tally.mu.Unlock()
	}
}

func (c *churn) judgeAnswers() {
	c.tally.mu.Lock()
	var due, later []churnAnswer
	for _, a := range c.tally.answers {
		if c.tally.polled.Sub(a.to) < judgedAfter {
			later = append(later, a)
		} else {
			due = append(due, a)
		}
	}
	c.tally.answers = later
	c.tally.checked += len(due)
	c.tally.mu.Unlock()
	for _, a := range due {
		from := a.from
		if since := c.stale.since(a.from, a.to); since.Before(from) {
			from = since.Add(-staleFor)
		}
		if wrong := c.truth.wrongAnswer(a.identity, from, a.to); wrong != "" {
			c.count(&c.tally.wrong)
			c.fault("WRONG ANSWER: from %.2fs to %.2fs: %s", a.from.Sub(c.began).Seconds(), a.to.Sub(c.began).Seconds(), wrong)
		}
	}
}

// poll reads all Services: the addresses that they have, and none of them twice.
func (c *churn) poll(ctx context.Context) {
	began := time.Now()
	one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	status, text, err := c.prod.Do(one, lab.KubeAdmin, http.MethodGet, "/api/v1/services", "")
	if err != nil || status != http.StatusOK {
		return // the API server is down
	}
	var list struct {
		Items []struct {
			serviceDoc
			Metadata struct {
				Name, Namespace   string
				CreationTimestamp time.Time
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		c.fault("read all Services: %v", err)
		return
	}
	addrs := map[string][]string{}
	for _, s := range list.Items {
		name, service := s.Metadata.Namespace+"/"+s.Metadata.Name, s.Metadata.Name
		if s.Metadata.Namespace == "tenant" {
			service = "hostile"
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			addrs[name] = append(addrs[name], ingress.IP)
			c.truth.observe(identity{service: service, vip: ingress.IP}.atVIP(), s.Metadata.CreationTimestamp, began)
		}
	}
	for _, twice := range duplicates(addrs) {
		c.fault("DUPLICATE ADDRESS: %s", twice)
	}
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	c.tally.polled = began
}

// footprint are the metrics of a daemon that must not grow.
var footprint = []string{"process_resident_memory_bytes", "go_goroutines", "process_open_fds"}

// footprintAllowance is the growth over the longest life that trend.grows permits, and hourlyAllowance the slope that
// slope.leaks permits. The heap grows a little during the first hour.
var (
	footprintAllowance = map[string]float64{footprint[0]: 32 << 20, footprint[1]: 40, footprint[2]: 20}
	hourlyAllowance    = map[string]float64{footprint[0]: 16 << 20, footprint[1]: 5, footprint[2]: 3}
)

// objectsScript lists the objects of a kernel for objectsOf. It is run all the time, and each program that a box starts
// takes its processor from weir: the lines get their form outside of the box.
const objectsScript = `
ipvsadm -Sn; ipset save
for x in iptables ip6tables; do echo "# $x"; $x-save; done
echo "# addresses"; ip -o addr show scope global
true`

// objectsOf has a line for each object, without counters and random numbers, which change.
func objectsOf(text string) string {
	var out strings.Builder
	part, table := "", ""
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "#":
			part = f[1]
		case len(f) == 0 || f[0] == "#":
		case part == "addresses":
			fmt.Fprintln(&out, f[1], f[3])
		case part == "":
			for _, option := range []string{"hashsize", "initval"} {
				if i := slices.Index(f, option); i >= 0 && f[0] == "create" {
					f = slices.Delete(f, i, i+2)
				}
			}
			fmt.Fprintln(&out, strings.Join(f, " "))
		case f[0][0] == '*':
			table = f[0]
		case f[0][0] == '-':
			fmt.Fprintln(&out, part, table, strings.Join(f, " "))
		case f[0][0] == ':' && f[1] != "ACCEPT":
			fmt.Fprintln(&out, part, table, f[0], f[1])
		}
	}
	return out.String()
}

// watchBoxes compares the foreign objects of each box with those before weir started, and reads the
// footprint of its daemon.
func (c *churn) watchBoxes(ctx context.Context, beat, warmUp time.Duration) {
	for traffic.Pause(ctx, beat) == nil {
		for _, b := range c.boxes {
			c.watchBox(context.WithoutCancel(ctx), b, warmUp)
		}
	}
}

func (c *churn) watchBox(ctx context.Context, b *churnBox, warmUp time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !b.up.TryRLock() {
		return
	}
	defer b.up.RUnlock()
	now, err := b.box.Run(ctx, "sh", "-c", objectsScript)
	if err != nil {
		c.fault("%s: read the kernel's objects: %v", b.box.Name(), err)
		return
	}
	for _, line := range gone(b.foreign, objectsOf(now.Stdout)) {
		c.count(&c.tally.changed)
		c.fault("FOREIGN OBJECT: %s: gone or changed: %q", b.box.Name(), line)
	}
	c.count(&c.tally.foreign)
	metrics, err := lab.Get(ctx, b.box, "tcp", "127.0.0.1:10266", "/metrics")
	if err != nil {
		c.fault("%s: read the metrics: %v", b.box.Name(), err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	age := time.Since(b.started)
	for line := range strings.Lines(metrics) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(footprint, name) {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(text, &value); err == nil && age > warmUp {
			last := len(b.lives[name]) - 1
			b.lives[name][last] = append(b.lives[name][last], reading{age, value})
		}
	}
}
