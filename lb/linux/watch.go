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
	// burst is the time to collect changes after the first: they come in bursts. One of nf_tables is a
	// whole transaction, and after the removal of a table no packet is served until the repair.
	burst, nftBurst = 20 * time.Millisecond, 2 * time.Millisecond
)

// watcher detects foreign changes.
type watcher struct {
	*core
	pace      pace
	addresses *addresses
	ours      ledger
	// own has the numbers of weir's own changes of nf_tables.
	own []uint32
	// read is the last complete read of the rules and sets in nf_tables, with weir's own changes since.
	read nftRead
	// hookTables keep translations while weir's own tables are gone (NFTHooksTable); nil with iptables.
	hookTables *nftTables
	// changes is the subscription to changes of nf_tables; nil without one.
	changes *subscription
	// notOwner is the logged reason why weir is not the owner of the table of a family.
	notOwner map[lb.Family]string
}

// hint is a set of possible changes. The kernel's announcements do not name the program that
// made a change, so Watch checks.
type hint uint32

const (
	hintLinks hint = 1 << iota
	hintRules4
	hintRules6
	hintTable4 // weir's own table of nf_tables
	hintTable6
	hintOverflow
	hintGeneration // generations has collected a change
	hintMissed     // of nf_tables, while the subscription was paused
)

// hintRules returns the hint for a family's rules.
func hintRules(f lb.Family) hint {
	if f == lb.IPv6 {
		return hintRules6
	}
	return hintRules4
}

// hintTable returns the hint for weir's own table of a family.
func hintTable(f lb.Family) hint {
	if f == lb.IPv6 {
		return hintTable6
	}
	return hintTable4
}

// allRules is the hint that anything about rules may have changed.
const allRules = hintRules4 | hintRules6 | hintTable4 | hintTable6

// hints collects the hints of several readers.
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

// Watch implements lb.Kernel. The kernel announces changes of links, addresses and routes, and
// of rules of the nft backend. The sizes of the legacy tables are checked every half second,
// without a program, and so is whether IPVS was cleared.
func (k *Kernel) Watch(ctx context.Context, notify func(lb.Event)) error {
	w := &k.watcher
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hints{wake: make(chan struct{}, 1)}
	failed := make(chan error, 2)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	start := func(protocol int, groups []int, hintOf func(message) hint) (*socket, error) {
		s, err := dial(protocol, groups...)
		if err != nil {
			return nil, err
		}
		readers.Go(func() {
			defer s.close()
			if err := listen(ctx, s, h, hintOf); err != nil {
				failed <- err
			}
		})
		return s, nil
	}
	if _, err := start(unix.NETLINK_ROUTE, []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}, w.routeHint); err != nil {
		return err
	}
	if w.mayUse(NFT) || w.mayUse(NFTables) {
		s, err := start(unix.NETLINK_NETFILTER, []int{unix.NFNLGRP_NFTABLES}, h.nft.collect)
		if err != nil {
			return err
		}
		w.subscribe(&subscription{s, h})
		defer w.subscribe(nil)
	}
	return w.watch(ctx, h, failed, notify)
}

// watch checks the hinted changes, until ctx ends or a reader has failed.
func (w *watcher) watch(ctx context.Context, h *hints, failed <-chan error, notify func(lb.Event)) error {
	tick := time.NewTicker(w.pace.poll)
	defer tick.Stop()
	// due ends the wait for a check that came too early.
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	rules := rulesWatch{}
	var servers serversWatch
	h.add(hintLinks | hintRules4 | hintRules6) // changes before the subscription
	for {
		// A lost reply costs the socket, and with it the ownership.
		w.takeOver(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		case <-due.C:
		case <-h.wake:
			wait := burst
			if hint(h.bits.Load()) == hintGeneration {
				wait = nftBurst
			}
			if !sleep(ctx, wait) {
				return nil
			}
		}
		bits := h.take()
		if bits&hintGeneration != 0 {
			bits |= w.othersChanges(&h.nft, rules)
		}
		if bits&hintOverflow != 0 {
			notify(lb.Event{Host: true, What: "the kernel reported more changes than could be read"})
		}
		if bits&hintMissed != 0 {
			notify(lb.Event{Host: true, What: "another program changed nf_tables while weir did"})
		}
		if bits&hintLinks != 0 {
			w.checkLinks(ctx, notify)
		}
		w.checkRules(ctx, rules, bits, notify)
		due.Reset(rules.wait(time.Now()))
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

// listen receives announcements until ctx ends.
func listen(ctx context.Context, s *socket, h *hints, hintOf func(message) hint) error {
	stop := s.interruptible(ctx)
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.receiveWaiting(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			h.add(hintOverflow | hintLinks | allRules)
			continue
		case err != nil:
			return fmt.Errorf("subscribe to the kernel: %w", err)
		}
		var bits hint
		for m := range messages(buf[:n]) {
			bits |= hintOf(m)
		}
		if bits != 0 {
			h.add(bits)
		}
	}
}

// nftHint returns the hint of an announcement of nf_tables: for weir's own table, or for one of
// those that iptables-nft writes. All announcements have the name of the table as their first
// attribute.
func nftHint(m message) hint {
	if len(m.body) < 4 {
		return 0
	}
	f := lb.IPv4
	switch m.body[0] {
	case unix.NFPROTO_IPV4:
	case unix.NFPROTO_IPV6:
		f = lb.IPv6
	default:
		return 0
	}
	if cString(attribute(m.body[4:], unix.NFTA_TABLE_NAME)) == NFTable {
		return hintTable(f)
	}
	return hintRules(f)
}

// routeHint reports whether an announcement of rtnetlink needs a check. weir's own additions
// need none, nor its own deletions: they have left the ledger by then.
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
