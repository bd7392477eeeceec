package drill

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/cmd/weirlab/internal/traffic"
	"weir/cmd/weirlab/lab"
)

// holding is which boxes have a VIP from an instant on, until the next one.
type holding struct {
	at    time.Time
	boxes []int
}

// owners records the owners of a VIP, from ARP or from the router's routes.
type owners interface {
	owners(since time.Time) []holding
	end()
}

func boxesOf(set map[int]bool) []int { return slices.Sorted(maps.Keys(set)) }

// ownership is what holdings add up to.
type ownership struct {
	most   int           // at once
	double time.Duration // for how long more than one had it
	moves  int           // from one set of boxes to another one; an interruption of one owner is none
}

// sum adds up. A time without an owner, or without an answer, is passed over.
func sum(all []holding, until time.Time) (o ownership) {
	var before []int
	for i, h := range all {
		end := until
		if i+1 < len(all) {
			end = all[i+1].at
		}
		o.most = max(o.most, len(h.boxes))
		if len(h.boxes) > 1 {
			o.double += end.Sub(h.at)
		}
		if len(h.boxes) == 0 {
			continue
		}
		if before != nil && !slices.Equal(before, h.boxes) {
			o.moves++
		}
		before = h.boxes
	}
	return o
}

// course lists the changes of owners, with the time without an answer before each: a box without a processor was silent,
// and one that lost its address to a living box was not.
func course(all []holding) string {
	var changes []string
	var before holding
	for _, h := range all {
		if len(h.boxes) == 0 {
			continue
		}
		if before.boxes != nil && !slices.Equal(before.boxes, h.boxes) {
			changes = append(changes, fmt.Sprintf("%v to %v after %s", before.boxes, h.boxes, traffic.Round(h.at.Sub(before.at))))
		}
		before = h
	}
	return strings.Join(changes, ", ")
}

// singles leaves out the times with more than one owner, which are a part of a move from one to
// another, not moves of their own.
func singles(all []holding) (out []holding) {
	for _, h := range all {
		if len(h.boxes) <= 1 {
			out = append(out, h)
		}
	}
	return out
}

// routeWatch receives from the router's kernel the next hops of a VIP.
type routeWatch struct {
	to   netip.Prefix
	stop chan struct{}

	mu  sync.Mutex
	all []holding
}

func watchRoutes(router *lab.Machine, vip netip.Addr) (*routeWatch, error) {
	w := &routeWatch{to: netip.PrefixFrom(vip, vip.BitLen()), stop: make(chan struct{})}
	updates := make(chan netlink.RouteUpdate, 1024)
	err := router.Do(func() error {
		return netlink.RouteSubscribeWithOptions(updates, w.stop, netlink.RouteSubscribeOptions{ListExisting: true})
	})
	if err != nil {
		return nil, fmt.Errorf("%s: watch routes: %w", router.Name(), err)
	}
	go func() {
		for u := range updates {
			w.take(u)
		}
	}()
	return w, nil
}

func (w *routeWatch) take(u netlink.RouteUpdate) {
	if u.Dst == nil {
		return
	}
	addr, _ := netip.AddrFromSlice(u.Dst.IP)
	if bits, _ := u.Dst.Mask.Size(); netip.PrefixFrom(addr.Unmap(), bits) != w.to {
		return
	}
	via := map[int]bool{}
	if u.Type == unix.RTM_NEWROUTE {
		for _, hop := range append(u.MultiPath, &netlink.NexthopInfo{Gw: u.Gw}) {
			if gw := hop.Gw.To4(); gw != nil {
				via[int(gw[3])] = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, holding{time.Now(), boxesOf(via)})
}

func (w *routeWatch) owners(since time.Time) (out []holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.all {
		if h.at.Before(since) {
			out = out[:0]
			h.at = since
		}
		out = append(out, h)
	}
	return out
}

func (w *routeWatch) end() { close(w.stop) }
