package status

import "time"

// Health is what the checks say of each backend, and what has no check.
type Health struct {
	// Backends in the order of Service, port and address.
	Backends []CheckedBackend `json:"backends"`
	// Unchecked are the services without a check, by name.
	Unchecked []Unchecked `json:"unchecked"`
}

// CheckedBackend is a backend of a port of a service, and what its check says.
type CheckedBackend struct {
	Service string `json:"service"`
	// Port is that of the service, such as "80/tcp".
	Port    string `json:"port"`
	Backend string `json:"backend"`
	// Verdict is up, down, or unknown before the first check; Since is when it became so.
	Verdict string    `json:"verdict"`
	Since   time.Time `json:"since,omitzero"`
	// Checked is when the last check ended, Took how long it took, in seconds.
	Checked time.Time `json:"checked,omitzero"`
	Took    float64   `json:"took_seconds"`
	// Error is what the last check that failed met; of a backend that is up it is past.
	Error    string `json:"error,omitempty"`
	Checks   uint64 `json:"checks_total"`
	Failures uint64 `json:"failures_total"`
	// Lost tells that too few backends of the port are up for its quorum: it has what the
	// service says for that case, its fallback or nobody.
	Lost bool `json:"lost,omitempty"`
}

// Unchecked is a service that has no check.
type Unchecked struct {
	Service  string `json:"service"`
	Backends int    `json:"backends"`
	// Why says who knows instead whether its backends work.
	Why string `json:"why"`
}

// Well tells whether no backend is down.
func (h Health) Well() bool {
	for _, b := range h.Backends {
		if b.Verdict == "down" {
			return false
		}
	}
	return true
}
