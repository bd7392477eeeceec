package linux

import "weir/lb"

// Orders gives a digest of the real servers of each virtual server with scheduler mh:
// their addresses, ports and weights, in the order in which the kernel has them, as
// last read or made. Two boxes whose digests of a frontend are equal lead every client
// of it to the same backend. It may be called at any time; there is nothing where
// virtual servers are rules.
func (k *Kernel) Orders() map[lb.Frontend]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return nil
}
