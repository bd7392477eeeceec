package health

import (
	"net/netip"
	"time"

	"weir/lb"
)

// Kind is the protocol of a check.
type Kind string

// The kinds of checks.
const (
	TCP   Kind = "tcp"   // a connection is accepted
	TLS   Kind = "tls"   // and a TLS handshake completes
	HTTP  Kind = "http"  // a GET is answered as wanted
	HTTPS Kind = "https" // the same over TLS
	GRPC  Kind = "grpc"  // grpc.health.v1.Health/Check says SERVING
	UDP   Kind = "udp"   // a datagram is answered as wanted
)

// Check is how a backend is asked, and when it is believed. The values are
// validated by whoever makes one (config): no field that counts is zero.
type Check struct {
	Kind Kind
	// Port is asked instead of the backend's own; 0 is the backend's own.
	Port uint16
	// Interval is the time from one check of a backend to the next, Jitter the
	// share of it (0 to 1) by which each wait is shortened or lengthened at
	// random, Timeout the limit of a single check.
	Interval time.Duration
	Jitter   float64
	Timeout  time.Duration
	// Rise and Fall are how many checks in a row must succeed or fail before a
	// backend goes up or down. The very first check decides alone.
	Rise, Fall int

	// Path, Host, Status and Body are for HTTP and HTTPS. Status are the codes
	// that are good; Body, if not empty, must be part of the first 64 KiB.
	Path, Host string
	Status     []StatusRange
	Body       string
	// ServerName is sent and verified in TLS; empty means the Host or none.
	// Verify demands a certificate that the system's roots, or CAFile, vouch for.
	ServerName string
	Verify     bool
	CAFile     string
	// GRPCService is asked for in grpc; empty is the server as a whole. GRPCTLS
	// speaks TLS.
	GRPCService string
	GRPCTLS     bool
	// Send and Expect are for UDP: the datagram that is sent, and what the answer
	// must begin with; an empty Expect takes any answer.
	Send, Expect []byte
}

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct {
	From, To int
}

// Group is the checks of one Service: each backend of each port is asked with
// the same Check. Backends that are asked at the same address and port (a check
// with a port of its own) are asked once.
type Group struct {
	Service lb.ServiceID
	Check   Check
	Ports   []lb.Port
	// Quorum is how many backends of a port must be up in each family that has
	// any; below it the port is lost for that family. Once lost it takes
	// Quorum+Hysteresis to come back.
	Quorum, Hysteresis int
	// Serves tells whether a backend serves clients of a port already. Such a one
	// goes on until its first result; every other backend waits for
	// its first result. nil means that none serves.
	Serves func(port lb.PortKey, backend netip.AddrPort) bool
}

// Backend is where a check goes and what it has found, for status.
type Backend struct {
	Service lb.ServiceID
	Port    lb.PortKey
	Backend netip.AddrPort
	// State is "up", "down" or "unknown" before the first check.
	State string
	// Since is when it became so, Error the error of the last failed check.
	Since time.Time
	Error string
	// Checked is when the last check ended, Took how long it took.
	Checked time.Time
	Took    time.Duration
	// Checks and Failures count, and Spent adds up, since the target is known.
	// Backends that are asked at the same address and port share them.
	Checks, Failures uint64
	// Flaps counts the changes between up and down.
	Flaps uint64
	Spent time.Duration
}
