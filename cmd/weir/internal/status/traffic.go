package status

import (
	"time"
)

// Traffic is what the kernel has counted at one moment, by frontend and backend. Two of
// them give Rates.
type Traffic struct {
	Time time.Time `json:"time"`
	// Frontends in the order of weir services; strangers' have no Service.
	Frontends []FrontendTraffic `json:"frontends"`
}

// FrontendTraffic is the traffic of a frontend since the kernel made it.
type FrontendTraffic struct {
	// Frontend is "192.0.2.1:80/tcp", or as lb.Frontend says it of a mark.
	Frontend string `json:"frontend"`
	Service  string `json:"service"`
	Counters
	Backends []BackendTraffic `json:"backends"`
}

// BackendTraffic is the traffic of a backend of one frontend since the kernel made it.
type BackendTraffic struct {
	Backend string `json:"backend"`
	// Active and Inactive are the connections that the kernel knows now.
	Active   uint32 `json:"active"`
	Inactive uint32 `json:"inactive"`
	Counters
}

// Rates are how much traffic there was on average between two readings.
type Rates struct {
	Time time.Time `json:"time"`
	// Seconds is the time between the readings; 0 if there was one only.
	Seconds   float64         `json:"seconds"`
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
	Rate
	Backends []BackendRates `json:"backends"`
}

// BackendRates are those of a backend of one frontend.
type BackendRates struct {
	Backend string `json:"backend"`
	Rate
}

// CountedAt leaves of virtual servers what they had counted at a time. Those of which
// nobody has read the counters have counted nothing.
func (s Services) CountedAt(at time.Time) Traffic {
	out := Traffic{Time: at, Frontends: make([]FrontendTraffic, len(s.Frontends))}
	for i, f := range s.Frontends {
		x := FrontendTraffic{Frontend: f.Key.String(), Service: f.Service, Backends: make([]BackendTraffic, len(f.Servers))}
		if f.Traffic != nil {
			x.Counters = *f.Traffic
		}
		for j, b := range f.Servers {
			x.Backends[j] = BackendTraffic{Backend: b.Address, Active: b.Active, Inactive: b.Inactive}
			if b.Traffic != nil {
				x.Backends[j].Counters = *b.Traffic
			}
		}
		out.Frontends[i] = x
	}
	return out
}

// Since gives the rates between an earlier reading and t. What before does not have was
// made since, and has counted from zero; so has what counts less than it did. Without an
// earlier reading (the zero Traffic) every rate is 0.
func (t Traffic) Since(before Traffic) Rates {
	r := Rates{Time: t.Time, Frontends: make([]FrontendRates, 0, len(t.Frontends))}
	if !before.Time.IsZero() {
		r.Seconds = max(0, t.Time.Sub(before.Time).Seconds())
	}
	was := make(map[string]*FrontendTraffic, len(before.Frontends))
	for i := range before.Frontends {
		was[before.Frontends[i].Frontend] = &before.Frontends[i]
	}
	for _, f := range t.Frontends {
		old := was[f.Frontend]
		if old == nil {
			old = &FrontendTraffic{}
		}
		x := FrontendRates{
			Frontend: f.Frontend, Service: f.Service, Rate: f.rate(old.Counters, r.Seconds), Backends: backendRates(f.Backends, old.Backends, r.Seconds),
		}
		for _, b := range f.Backends {
			x.Active += uint64(b.Active)
			x.Inactive += uint64(b.Inactive)
		}
		r.Total = r.Total.plus(x.Rate)
		r.Frontends = append(r.Frontends, x)
	}
	return r
}

func backendRates(now, before []BackendTraffic, seconds float64) []BackendRates {
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
		before = Counters{} // the kernel made it anew
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
