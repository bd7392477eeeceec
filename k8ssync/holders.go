package k8ssync

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
)

// holders are the Services of a cluster that hold addresses: weir assigned them, by claims in the
// lease cluster. An API server writes the status and the age of a Service, but not these claims. The
// Provider reports them, and the snapshot has them for a start without the lease cluster. Make one
// with newHolders. It is safe for concurrent use.
type holders struct {
	mu       sync.Mutex
	of       map[netip.Addr][]key // sorted
	changed  map[netip.Addr]struct{}
	reported bool // by the Provider
}

// maxHolders limits the addresses: those of the claims that are known, and as many that may be ignored.
const maxHolders = 200_000

func newHolders() *holders {
	return &holders{of: map[netip.Addr][]key{}, changed: map[netip.Addr]struct{}{}}
}

// holding is an address of a Service.
type holding struct {
	Addr               netip.Addr
	Namespace, Service string
}

// set replaces the holders of an address, and reports whether they differ.
func (h *holders) set(a netip.Addr, keys []key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.put(a, keys)
}

// replace replaces the holders of all addresses, and reports whether they differ. With keep, those of
// addresses that are not in all stay.
func (h *holders) replace(all map[netip.Addr][]key, keep bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = true
	differ := false
	for a := range h.of {
		if _, held := all[a]; !held && !keep {
			differ = h.put(a, nil) || differ
		}
	}
	for a, keys := range all {
		differ = h.put(a, keys) || differ
	}
	return differ
}

func (h *holders) put(a netip.Addr, keys []key) bool {
	keys = slices.SortedFunc(slices.Values(keys), key.compare)
	if slices.Equal(h.of[a], keys) || len(h.of[a]) == 0 && len(h.of) >= maxHolders {
		return false
	}
	h.changed[a] = struct{}{}
	if len(keys) == 0 {
		delete(h.of, a)
	} else {
		h.of[a] = keys
	}
	return true
}

// restore sets what a snapshot has, unless the Provider was faster.
func (h *holders) restore(list []holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reported {
		return
	}
	of := map[netip.Addr][]key{}
	for _, one := range list {
		of[one.Addr] = append(of[one.Addr], key{one.Namespace, one.Service})
	}
	for a, keys := range of {
		h.put(a, keys)
	}
}

// have reports whether a Service holds an address.
func (h *holders) have(a netip.Addr, k key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.of[a], k)
}

// take returns the addresses with other holders than at the last call.
func (h *holders) take() map[netip.Addr]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.changed
	h.changed = map[netip.Addr]struct{}{}
	return out
}

// shown returns the holders of the addresses in the statuses of services, sorted.
func (h *holders) shown(services []*service) []holding {
	var out []holding
	for _, s := range services {
		for _, a := range slices.Concat(s.Ingress, s.Proxied) {
			if one := (holding{a, s.Namespace, s.Name}); one.valid() && h.have(a, s.key) {
				out = append(out, one)
			}
		}
	}
	slices.SortFunc(out, holding.compare)
	return out
}

func (h holding) compare(o holding) int {
	return cmp.Or(h.Addr.Compare(o.Addr), cmp.Compare(h.Namespace, o.Namespace), cmp.Compare(h.Service, o.Service))
}

// valid reports whether a holding is a possible one.
func (h holding) valid() bool {
	return addrValid(h.Addr) && h.Service != ""
}
