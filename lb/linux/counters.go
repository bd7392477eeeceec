package linux

import "sync/atomic"

// Counters tell what the kernel was asked to do, since the Kernel was made. They
// only grow and may be read at any time.
type Counters struct {
	// IPVS, IPSet, Route (links, addresses, routes) and Conntrack count the
	// netlink traffic of each part.
	IPVS, IPSet, Route, Conntrack Traffic
	// Reader is what people and scrapes made weir read of IPVS: Kernel.Traffic. It
	// is apart, so that looking does not alter what is looked at.
	Reader Traffic
	// Execs are the programs that were run: iptables-save and iptables-restore.
	Execs atomic.Uint64
	// Moved are the real servers of scheduler mh that were put in order.
	Moved atomic.Uint64
}

// Traffic counts what went over the netlink sockets of one part of the kernel.
type Traffic struct {
	// Messages are the requests, Sends the system calls that carried them.
	Messages, Sends atomic.Uint64
	// Errors are the requests that the kernel refused; those that only say that
	// the object was there (or gone) already are among them.
	Errors atomic.Uint64
	// Retries are the batches that were sent again, because a reply was lost.
	Retries atomic.Uint64
}
