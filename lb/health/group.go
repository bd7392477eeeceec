package health

import (
	"net/netip"
	"time"

	"weir/lb"
	"weir/lb/health/bfd"
)

// Kind is the protocol of a check.
type Kind string

// The kinds of checks.
const (
	TCP   Kind = "tcp"   // a connection is accepted
	TLS   Kind = "tls"   // and a TLS handshake completes
	HTTP  Kind = "http"  // a GET is answered as wanted
	HTTPS Kind = "https" // the same over TLS
	GRPC  Kind = "grpc"  // grpc.health.v1.Health/Check returns SERVING
	UDP   Kind = "udp"   // a datagram is answered as wanted
	DNS   Kind = "dns"   // a query over UDP is answered with NOERROR
	SMTP  Kind = "smtp"  // a mail server greets, and accepts HELO and QUIT
	Ping  Kind = "ping"  // an ICMP echo request is answered
	File  Kind = "file"  // a file of this box has no negative number
	Exec  Kind = "exec"  // a program of this box exits with 0
	BFD   Kind = "bfd"   // the BFD session with the backend is up
)

// Check configures the check of a backend. validate.go has the rules
// for its values.
type Check struct {
	Kind Kind
	// Port is checked instead of the backend's own; 0 is the backend's own, and in bfd that of BFD.
	Port uint16
	// VIPs are checked at the backend instead of its own address, each of its family, if there are
	// any: a direct backend has them.
	VIPs []netip.Addr
	// Interval is the time from one check of a backend to the next. Jitter is the share (0 to 1)
	// by which each wait is shortened or lengthened at random. Timeout is the limit of a single
	// check.
	Interval time.Duration
	Jitter   float64
	Timeout  time.Duration
	// Rise and Fall are the numbers of checks in a row that must succeed or fail before a backend
	// goes up or down. The very first check suffices.
	Rise, Fall int

	// Path, Host, Status and Body are for HTTP and HTTPS. Status has the good codes; Body, if not
	// empty, must be part of the first 64 KiB.
	Path, Host string
	Status     []StatusRange
	Body       string
	// ServerName is sent and verified in TLS; empty means the Host or none. Verify requires a
	// certificate of the system's roots, or of CA: certificates in PEM.
	ServerName string
	Verify     bool
	CA         string
	// GRPCService is the service in grpc; empty is the server as a whole. GRPCTLS enables TLS.
	GRPCService string
	GRPCTLS     bool
	// Send and Expect are for UDP: the datagram, and the required start of the answer; an empty
	// Expect accepts any answer.
	Send, Expect []byte
	// DNSName and DNSType are the question in dns.
	DNSName, DNSType string
	// Helo is the name of this box in smtp.
	Helo string
	// File is the absolute name of the file in file, Argv the program in exec.
	File string
	Argv []string
	// BFD has the parameters of the session in bfd, without the address. All checks of an address
	// have the same. The session has its own timing: Interval is only that of reading its state, and
	// Timeout the time that a new session has to come up.
	BFD bfd.Peer
	// MD5 is the digest of the body for HTTP and HTTPS, in lower-case hexadecimal; empty
	// accepts any.
	MD5 string
}

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct {
	From, To int
}

// Group has the checks of one Service: each backend of each port has the same Check. Backends
// that are checked at the same address and port (a check with its own port) are checked once.
type Group struct {
	Service lb.ServiceID
	Check   Check
	Ports   []lb.Port
	// Quorum is the number of backends of a port that must be up in each family that has any;
	// below it the port is lost for that family. It recovers with Quorum+Hysteresis.
	Quorum, Hysteresis int
	// Serves reports whether a backend serves clients of a port already. It continues until its
	// first result; every other backend waits for its first result. nil means that none serves.
	Serves func(port lb.PortKey, backend netip.AddrPort) bool
}

// Backend is the state of a backend, for status.
type Backend struct {
	Service lb.ServiceID
	Port    lb.PortKey
	Backend netip.AddrPort
	// AtVIPs is set if the VIPs are checked at the backend (Check.VIPs).
	AtVIPs bool
	// State is "up", "down" or "unknown" before the first check.
	State string
	// Void is set if the last checks had no result (Totals.Void); State is out of date then.
	Void bool
	// Since is the time of the last transition, Error that of the last failed or void check.
	Since time.Time
	Error string
	// Checked is the end of the last check, Took its duration.
	Checked time.Time
	Took    time.Duration
	// Checks and Failures count the results of the target. Backends that are checked at the same
	// address and port share them.
	Checks, Failures uint64
	// Flaps counts the changes between up and down.
	Flaps uint64
}
