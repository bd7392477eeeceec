package linux

import "sync/atomic"

// Counters count requests to the kernel since the Kernel was made. They only grow and may be
// read at any time.
type Counters struct {
	// IPVS, IPSet, Route (links, addresses, routes) and Conntrack count the
	// netlink traffic of each part.
	IPVS, IPSet, Route, Conntrack Traffic
	// Reader counts the requests of Kernel.Traffic and the like. They are separate, so that a
	// scrape does not change the other counters.
	Reader Traffic
	// Execs counts runs of programs: iptables-save and iptables-restore.
	Execs atomic.Uint64
	// RulesRead and RulesKept count the audits that read the rules and sets, and those that did not
	// because nothing had changed them (nftRead).
	RulesRead, RulesKept atomic.Uint64
	// Moved counts real servers of scheduler mh that were reordered.
	Moved atomic.Uint64
}

// Traffic counts the requests over the netlink sockets of one part of the kernel.
type Traffic struct {
	// Messages are the requests, Sends the system calls that carried them.
	Messages, Sends atomic.Uint64
	// Errors counts the requests that the kernel refused, including those for an object that
	// existed (or was gone) already.
	Errors atomic.Uint64
	// Retries counts the batches that were repeated after a lost reply.
	Retries atomic.Uint64
}
