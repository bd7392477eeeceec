// Package traffic holds the counters of the kernel by frontend and backend, and the rates
// between two readings of them. It never reads the kernel itself.
package traffic

import "time"

// Totals are the counters of the kernel at one moment, by frontend and backend. Two of
// them give Rates.
type Totals struct {
	Time time.Time `json:"time"`
	// Frontends in the order of weir services; foreign ones have no Service.
	Frontends []Frontend `json:"frontends"`
}

// Frontend is the traffic of a frontend since the kernel made it.
type Frontend struct {
	// Frontend is "192.0.2.1:80/tcp", or the form of lb.Frontend for a mark.
	Frontend string `json:"frontend"`
	Service  string `json:"service"`
	// Check is set if only checks of this box use the frontend.
	Check bool `json:"check,omitempty"`
	Counters
	Backends []Backend `json:"backends"`
}

// Backend is the traffic of a backend of one frontend since the kernel made it.
type Backend struct {
	Backend string `json:"backend"`
	// Active and Inactive are the connections in the kernel now.
	Active   uint32 `json:"active"`
	Inactive uint32 `json:"inactive"`
	Counters
}

// Counters count since the kernel made the virtual or real server.
type Counters struct {
	Connections uint64 `json:"connections"` // new ones
	PacketsIn   uint64 `json:"packets_in"`  // from clients
	PacketsOut  uint64 `json:"packets_out"` // to clients
	BytesIn     uint64 `json:"bytes_in"`    // from clients
	BytesOut    uint64 `json:"bytes_out"`   // to clients
}

// Rates are how much traffic there was on average between two readings.
type Rates struct {
	Time time.Time `json:"time"`
	// Seconds is the time between the readings; 0 if there was one only.
	Seconds float64 `json:"seconds"`
	// Total is that of all frontends, without those of checks.
	Total     Rate            `json:"total"`
	Frontends []FrontendRates `json:"frontends"`
}

// Rate is per second, as clients see the directions; Active and Inactive are connections
// at the second reading.
type Rate struct {
	Connections float64 `json:"connections_per_second"`
	PacketsIn   float64 `json:"packets_in_per_second"`
	PacketsOut  float64 `json:"packets_out_per_second"`
	BytesIn     float64 `json:"bytes_in_per_second"`
	BytesOut    float64 `json:"bytes_out_per_second"`
	Active      uint64  `json:"active"`
	Inactive    uint64  `json:"inactive"`
}

// FrontendRates are those of a frontend; its Active and Inactive are its backends' together.
type FrontendRates struct {
	Frontend string `json:"frontend"`
	Service  string `json:"service"`
	// Check is set if only checks of this box use the frontend.
	Check bool `json:"check,omitempty"`
	Rate
	Backends []BackendRates `json:"backends"`
}

// BackendRates are those of a backend of one frontend.
type BackendRates struct {
	Backend string `json:"backend"`
	Rate
}

// Since returns the rates between an earlier reading and t. A counter that is new or less
// than before has started from zero. Without an earlier reading (the zero Totals) every
// rate is 0.
func (t Totals) Since(before Totals) Rates {
	r := Rates{Time: t.Time, Frontends: make([]FrontendRates, 0, len(t.Frontends))}
	if !before.Time.IsZero() {
		r.Seconds = max(0, t.Time.Sub(before.Time).Seconds())
	}
	was := make(map[string]*Frontend, len(before.Frontends))
	for i := range before.Frontends {
		was[before.Frontends[i].Frontend] = &before.Frontends[i]
	}
	for _, f := range t.Frontends {
		old := was[f.Frontend]
		if old == nil {
			old = &Frontend{}
		}
		x := FrontendRates{
			Frontend: f.Frontend, Service: f.Service, Check: f.Check,
			Rate: f.rate(old.Counters, r.Seconds), Backends: backendRates(f.Backends, old.Backends, r.Seconds),
		}
		for _, b := range f.Backends {
			x.Active += uint64(b.Active)
			x.Inactive += uint64(b.Inactive)
		}
		if !f.Check {
			r.Total = r.Total.plus(x.Rate)
		}
		r.Frontends = append(r.Frontends, x)
	}
	return r
}

func backendRates(now, before []Backend, seconds float64) []BackendRates {
	was := make(map[string]Counters, len(before))
	for _, b := range before {
		was[b.Backend] = b.Counters
	}
	out := make([]BackendRates, len(now))
	for i, b := range now {
		out[i] = BackendRates{Backend: b.Backend, Rate: b.rate(was[b.Backend], seconds)}
		out[i].Active, out[i].Inactive = uint64(b.Active), uint64(b.Inactive)
	}
	return out
}

// rate is per second since the counters were as before.
func (c Counters) rate(before Counters, seconds float64) Rate {
	if seconds == 0 {
		return Rate{}
	}
	if c.Connections < before.Connections || c.PacketsIn < before.PacketsIn || c.BytesIn < before.BytesIn {
		before = Counters{} // the kernel has made it again
	}
	per := func(now, before uint64) float64 { return float64(now-min(now, before)) / seconds }
	return Rate{
		Connections: per(c.Connections, before.Connections),
		PacketsIn:   per(c.PacketsIn, before.PacketsIn), PacketsOut: per(c.PacketsOut, before.PacketsOut),
		BytesIn: per(c.BytesIn, before.BytesIn), BytesOut: per(c.BytesOut, before.BytesOut),
	}
}

func (r Rate) plus(x Rate) Rate {
	return Rate{
		r.Connections + x.Connections, r.PacketsIn + x.PacketsIn, r.PacketsOut + x.PacketsOut,
		r.BytesIn + x.BytesIn, r.BytesOut + x.BytesOut, r.Active + x.Active, r.Inactive + x.Inactive,
	}
}
