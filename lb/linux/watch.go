package linux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir/lb"
)

const (
	// Changes come in bursts; they are looked at together, so long after the
	// first.
	burst = 20 * time.Millisecond
)

// pace is how often Watch looks at rules.
type pace struct {
	// poll is the interval for the legacy tables, which announce nothing.
	poll time.Duration
	// calm is the least time between two looks: each costs one iptables-save.
	minInterval time.Duration
}

var defaultPace = pace{poll: 500 * time.Millisecond, minInterval: 2 * time.Second}

// watcher finds out what others change.
type watcher struct {
	*core
	pace      pace
	addresses *addresses
	ours      ledger
	// own are the numbers of weir's own changes of nf_tables.
	own []uint32
}

// hint is what may have happened. The kernel's announcements are no more than
// that: who did it they don't tell, so Watch looks.
type hint uint32

const (
	hintLinks hint = 1 << iota
	hintRules4
	hintRules6
	hintOverflow
	hintGeneration // generations has collected something
)

// hintRules is the hint that speaks of a family's rules.
func hintRules(f lb.Family) hint {
	if f == lb.IPv6 {
		return hintRules6
	}
	return hintRules4
}

// hints collects what several readers have seen until somebody takes it.
type hints struct {
	bits atomic.Uint32
	wake chan struct{}
	nft  generations
}

func (h *hints) add(bits hint) {
	h.bits.Or(uint32(bits))
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *hints) take() hint { return hint(h.bits.Swap(0)) }

// Watch implements lb.Kernel. Links, addresses and routes are announced by the
// kernel, and so are rules of the nft backend; the tables of the legacy backend
// are looked at every half second by their size, without running a program, and so is
// whether IPVS has been cleared.
func (k *Kernel) Watch(ctx context.Context, notify func(lb.Event)) error {
	w := &k.watcher
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hints{wake: make(chan struct{}, 1)}
	failed := make(chan error, 2)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	start := func(protocol int, groups []int, look func(message) hint) error {
		s, err := dial(protocol, groups...)
		if err != nil {
			return err
		}
		readers.Go(func() {
			defer s.close()
			if err := listen(ctx, s, h, look); err != nil {
				failed <- err
			}
		})
		return nil
	}
	if err := start(unix.NETLINK_ROUTE, []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}, w.routeHint); err != nil {
		return err
	}
	if w.mayUse(NFT) {
		if err := start(unix.NETLINK_NETFILTER, []int{unix.NFNLGRP_NFTABLES}, h.nft.collect); err != nil {
			return err
		}
	}
	return w.watch(ctx, h, failed, notify)
}

// watch takes hints and looks into them, until ctx ends or a reader has failed.
func (w *watcher) watch(ctx context.Context, h *hints, failed <-chan error, notify func(lb.Event)) error {
	tick := time.NewTicker(w.pace.poll)
	defer tick.Stop()
	rules := rulesWatch{}
	var servers serversWatch
	h.add(hintLinks | hintRules4 | hintRules6) // what happened before anybody listened
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		case <-h.wake:
			if !sleep(ctx, burst) {
				return nil
			}
		}
		bits := h.take()
		if bits&hintGeneration != 0 {
			bits |= w.othersChanges(&h.nft)
		}
		if bits&hintOverflow != 0 {
			notify(lb.Event{Host: true, What: "the kernel reported more changes than could be read"})
		}
		if bits&hintLinks != 0 {
			w.checkLinks(ctx, notify)
		}
		w.checkRules(ctx, rules, bits, notify)
		servers.check(notify)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// listen reads announcements until ctx ends.
func listen(ctx context.Context, s *socket, h *hints, look func(message) hint) error {
	stop := s.interruptible(ctx)
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.receiveWaiting(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			h.add(hintOverflow | hintLinks | hintRules4 | hintRules6)
			continue
		case err != nil:
			return fmt.Errorf("subscribe to the kernel: %w", err)
		}
		var bits hint
		for m := range messages(buf[:n]) {
			bits |= look(m)
		}
		if bits != 0 {
			h.add(bits)
		}
	}
}

// lookNFT tells which family's tables an announcement of nf_tables is about, of
// those that iptables-nft writes.
func nftHint(m message) hint {
	switch {
	case len(m.body) < 1:
	case m.body[0] == unix.NFPROTO_IPV4:
		return hintRules4
	case m.body[0] == unix.NFPROTO_IPV6:
		return hintRules6
	}
	return 0
}

// lookRoute tells whether an announcement of rtnetlink is worth a look. What weir
// itself adds is not, nor what it deletes: that is out of the ledger by then.
func (w *watcher) routeHint(m message) hint {
	switch m.typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return hintLinks
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		f, ok := parseAddress(m.body)
		if !ok || f.index != w.addresses.index.Load() {
			return hintLinks
		}
		if m.typ == unix.RTM_DELADDR && w.ours.has(lb.Address{Addr: f.prefix.Addr()}) {
			return hintLinks
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if r, ok := parseRoute(m.body); ok && w.ours.has(r.ID()) {
			return hintLinks
		}
		if r, ok := parseUnreachable(m.body); ok && w.ours.has(r) {
			return hintLinks
		}
	}
	return 0
}

// checkLinks compares the device, its addresses, the pool routes and the host's
// addresses with the ledger.
func (w *watcher) checkLinks(ctx context.Context, notify func(lb.Event)) {
	lost, hosts, err := w.compareLinks(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		notify(lb.Event{Host: true, What: "changed interfaces can't be read: " + err.Error()})
	case len(lost) > 0:
		notify(lb.Event{Lost: lost, Host: hosts, What: lostWhat(lost)})
	case hosts:
		notify(lb.Event{Host: true, What: "addresses of this box changed"})
	}
}

func lostWhat(lost []lb.Object) string {
	s := fmt.Sprintf("%s was removed or altered", lost[0])
	if len(lost) > 1 {
		s += fmt.Sprintf(" with %d other objects", len(lost)-1)
	}
	return s
}

func (w *watcher) compareLinks(ctx context.Context) (lost []lb.Object, hosts bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	obs := lb.Observation{}
	if err := w.addresses.observe(ctx, w.config.Families, &obs); err != nil {
		return nil, false, err
	}
	lost, hosts = w.ours.compare(&obs)
	return lost, hosts, nil
}

// rulesWatch is what is known of each family's rules: whether a change was
// announced, and when the next look is due.
type rulesWatch map[lb.Family]struct {
	announced bool
	next      time.Time
}

// checkRules looks at the rules of each family whose tables seem to have changed.
func (w *watcher) checkRules(ctx context.Context, seen rulesWatch, bits hint, notify func(lb.Event)) {
	for _, f := range w.families() {
		now := seen[f]
		now.announced = now.announced || bits&hintRules(f) != 0
		seen[f] = now
		if time.Now().Before(now.next) {
			continue
		}
		lost, checked, err := w.compareRules(ctx, f, now.announced)
		if !checked {
			continue
		}
		now.announced = false
		now.next = time.Now().Add(w.pace.minInterval)
		switch {
		case err != nil && ctx.Err() == nil:
			notify(lb.Event{What: fmt.Sprintf("%s changed and can't be read: %v", lb.Rules{Family: f}, err)})
		case len(lost) > 0:
			now.next = time.Time{}
			notify(lb.Event{Lost: lost, What: lostWhat(lost)})
		}
		seen[f] = now
	}
}

func (w *watcher) families() []lb.Family {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config.Families
}

// compareRules looks at the rules of a family if there is a reason to.
func (w *watcher) compareRules(ctx context.Context, f lb.Family, announced bool) (lost []lb.Object, checked bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rules[f]
	if !r.inPlace {
		return nil, announced, nil
	}
	if r.backend() == Legacy {
		announced = r.stamp != readStamp(f)
	}
	if !announced {
		return nil, false, nil
	}
	servers := r.servers()
	held, err := r.observe(ctx, nil)
	if err != nil {
		return nil, true, err
	}
	if !held {
		lost = append(lost, lb.Rules{Family: f})
	}
	return append(lost, lostServers(servers, r.servers())...), true, nil
}

// mayUse tells whether a backend is in use or may come to be.
func (w *watcher) mayUse(b Backend) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rules {
		for _, p := range r.candidates {
			if p.backend == b {
				return true
			}
		}
	}
	return false
}
